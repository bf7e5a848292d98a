"""A running mean of staleness."""

from __future__ import annotations

from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Int32

_REMEMBERED = 0.9
"""What a mean over the rows of an update counts beside that of the next: about ten updates."""


class RunningMean:
    """The mean staleness of rows, over recent updates.

    Attributes:
        mean: of the updates that were closed; 0 before the first.
    """

    def __init__(self) -> None:
        self.mean = 0.0
        self._weight = 0.0
        self._rows = 0
        self._sum = 0

    def add(self, staleness: Int32) -> None:
        """Add rows to the update that comes next."""
        self._rows += len(staleness)
        self._sum += int(staleness.sum())

    def close(self) -> None:
        """Learn that the update was made."""
        if not self._rows:
            return
        self._weight = _REMEMBERED * self._weight + 1
        self.mean += (self._sum / self._rows - self.mean) / self._weight
        self._rows = self._sum = 0

    def save(self) -> Saved:
        """Return what it goes on from."""
        return Saved(
            {"mean": self.mean, "weight": self._weight, "rows": self._rows, "sum": self._sum}
        )

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` returned."""
        numbers = saved.numbers
        self.mean, self._weight = numbers["mean"], numbers["weight"]
        self._rows, self._sum = numbers["rows"], numbers["sum"]
