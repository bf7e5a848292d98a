"""What a data source says beside its examples: what ids stand for, notes to the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amp_runtime.rows.spec import Array


@dataclass(frozen=True, slots=True)
class Unit:
    """What a standardised value means: value * deviation + mean, in the unit.

    Attributes:
        name: as it stands in a name.
    """

    name: str
    mean: float
    deviation: float


@dataclass(frozen=True, eq=False)
class About:
    """What holds for all examples of a split.

    Attributes:
        vocabularies: {field: what its values 0, 1, ... stand for}; a model may ask for
            their number (`Graph.entries`), and predictions may be told in these words.
        vectors: {field: float array [values, features]}: what an embedding of its values
            may begin with (`Graph.vectors`).
        scales: {field: {metric: what an absolute error of its values is multiplied by}}: for
            values that were standardised, the error in units that say more (`Graph.scales`).
        units: {field: what its values, which were standardised, mean}: predictions are told in
            that unit too.
        notes: sentences for the user: what was left out, what was found.
        told: {name: plain values, one an example}: what an example of a file was, for who
            reads its prediction.
    """

    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    vectors: Mapping[str, Array] = field(default_factory=dict)
    scales: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    units: Mapping[str, Unit] = field(default_factory=dict)
    told: Mapping[str, Sequence[Any]] = field(default_factory=dict)


SILENT = About()
