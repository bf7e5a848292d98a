"""Gradients that are not finite: their updates are not applied, and a run with many is over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from amp_runtime.errors import DivergedError
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array, Int32

WINDOW = 100
"""Updates of a node among which those that were not applied are counted."""


def are_finite(gradients: Iterable[Array]) -> bool:
    """Return whether no value is NaN or infinite, and no sum of squares is too large for its dtype.

    One pass by BLAS an array. Optimisers and clipping square a gradient, so one whose squares
    overflow would do as much harm as an infinite one.
    """
    return all(math.isfinite(np.vdot(gradient, gradient)) for gradient in gradients)


class NotApplied:
    """The updates of one node that were not applied.

    Attributes:
        count: all so far.
        first: the first of them, in words; '' while there is none.

    Args:
        limit: of the last WINDOW updates so many may be; one more ends the run.
    """

    def __init__(self, limit: int, where: str) -> None:
        self.limit = limit
        self.count = 0
        self.first = ""
        self._where = where
        self._recent: list[int] = []

    def add(self, update: int, instances: Sequence[Int32], parameters: Mapping[str, Array]) -> None:
        """Note an update that is not applied.

        Args:
            update: its number, from 1; those that are not applied have one too.
            instances: of the rows that it would be made of, a piece a batch.
            parameters: of the node.
        Raises:
            DivergedError: there are too many; names the update, its instances and what to do.
        """
        self.count += 1
        words = f"update {update}{of_instances(instances)}"
        self.first = self.first or words
        self._recent = [n for n in self._recent if n > update - WINDOW] + [update]
        if len(self._recent) <= self.limit:
            return
        broken = [name for name, array in parameters.items() if not np.isfinite(array).all()]
        itself = f"; parameter {', '.join(map(repr, broken))} is not finite itself"
        raise DivergedError(
            f"training has diverged: the gradients of {len(self._recent)} of the last "
            f"{min(update, WINDOW)} updates were not finite, the first that of {self.first}, the "
            f"last that of {words}{itself * bool(broken)}",
            where=self._where,
            fix="try a smaller training.optimizer.lr, or training.clip={norm: 1.0}; or raise "
            "training.nan_limit",
        )

    def save(self) -> Saved:
        return Saved({"count": self.count, "first": self.first, "recent": self._recent})

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` returned."""
        numbers = saved.numbers
        self.count, self.first = numbers["count"], numbers["first"]
        self._recent = list(numbers["recent"])


def of_instances(pieces: Sequence[Int32]) -> str:
    """Return ` of instance 7` or ` of instances 7 to 9`; '' of none."""
    if not sum(map(len, pieces)):
        return ""
    instances = np.concatenate(pieces)
    first, last = int(instances.min()), int(instances.max())
    return f" of instance {first}" if first == last else f" of instances {first} to {last}"
