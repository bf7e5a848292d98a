"""What a data source says beside its examples: what ids stand for, and notes to the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class About:
    """What holds for all examples of a split.

    Attributes:
        vocabularies: {field: what its values 0, 1, ... stand for}; a model may ask for
            their number (`Graph.entries`), and predictions may be told in these words.
        notes: sentences for the user: what was left out, what was found.
    """

    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


SILENT = About()
