"""Smaller steps for stale gradients: row by row, or of the whole node, for ever or annealed."""

from __future__ import annotations

import numpy as np

from amp_runtime.remedies.remedy import Remedy
from amp_runtime.remedies.running import RunningMean
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array, Int32


class ByRow(Remedy):
    """A row's gradient is divided by its staleness, where that is above 1.

    Source: staleness-aware SGD, Zhang, Gupta, Lian and Liu, arXiv:1511.05950.
    """

    def shares(self, staleness: Int32) -> Array | None:
        return 1 / np.maximum(staleness, 1) if (staleness > 1).any() else None


class ByNode(Remedy):
    """The learning rate is divided by (1 + s)^0.5, s the mean staleness of recent updates.

    Without momentum, and bounded by curvature alone, a learning rate that diverges s updates late
    is sin(pi / (4 s + 2)) of the one that does on time: some 0.8 / s of it. Noise bounds it too,
    and less so when late, so the root is taken. Ours.
    """

    def __init__(self, staleness: RunningMean) -> None:
        self._staleness = staleness

    def lr_factor(self) -> float:
        return float((1 + self._staleness.mean) ** -0.5)


class Annealed(Remedy):
    """The learning rate is divided by s^p, with p falling from 1 to 0 over so many updates.

    s is the mean staleness of recent updates, at least 1.

    Source: PipeMare's T1, Yang et al., arXiv:1910.05124.
    """

    def __init__(self, staleness: RunningMean, over: int) -> None:
        self._staleness = staleness
        self._over = over
        self._updates = 0

    def lr_factor(self) -> float:
        power = 1 - min(self._updates / self._over, 1.0)
        return float(max(self._staleness.mean, 1.0) ** -power)

    def stepped(self) -> None:
        self._updates += 1

    def save(self) -> Saved:
        return Saved({"updates": self._updates})

    def restore(self, saved: Saved, where: str) -> None:
        self._updates = saved.numbers["updates"]
