"""More momentum for stale gradients: what is predicted along must hold its direction so long."""

from __future__ import annotations

from amp_runtime.optim.base import Optimizer
from amp_runtime.remedies.remedy import Remedy
from amp_runtime.remedies.running import RunningMean

STEADY = 4.0
"""A momentum m averages the gradients of some 1 / (1 - m) updates: one, and so many times s."""

MADE = 3.0
"""... but of no more than the updates made so far, divided by this. Then an optimiser's mean has
its full weight, to within exp(-MADE), when its momentum leaves the option's, whose correction for
the bias of the beginning goes on."""


class RaisedMomentum(Remedy):
    """The optimiser's momentum is at least 1 - 1 / (1 + 4 s), s the mean staleness.

    A gradient then moves the weights as far in all, by smaller steps over more updates. With the
    weights predicted s updates ahead, delayed steps on a square loss stay stable up to larger
    steps the more momentum there is: `docs/compensation.md` has the limits.
    """

    def __init__(self, staleness: RunningMean, optimizer: Optimizer) -> None:
        self._staleness = staleness
        self._optimizer = optimizer

    def momentum(self) -> float:
        over = min(1 + STEADY * self._staleness.mean, self._optimizer.steps / MADE)
        return 1 - 1 / over if over > 1 else 0.0
