"""What a replica of a node holds at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amp_runtime.rows.spec import Array


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a replica shares, or goes on from.

    Attributes:
        arrays: {parameter: array}, or {parameter: its gradient}.
        beside: {`kept@parameter`: array} that its optimiser keeps, where that is averaged;
            of a gradient by rows of a table {`rows@parameter`: int32 [rows]}.
        count: updates since what was last answered; of a gradient: its rows.
        steps: of its optimiser.
    """

    arrays: Mapping[str, Array]
    beside: Mapping[str, Array] = field(default_factory=dict)
    count: int = 0
    steps: int = 0
