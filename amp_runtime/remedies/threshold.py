"""Gradients that are too stale are not used."""

from __future__ import annotations

from amp_runtime.remedies.remedy import Remedy
from amp_runtime.rows.spec import Array, Int32


class DropBeyond(Remedy):
    """A row whose staleness is above a limit adds nothing to dL/dparameters; its dL/dx flows.

    Source: the threshold of Ringmaster ASGD, arXiv:2501.16168.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def shares(self, staleness: Int32) -> Array | None:
        within = staleness <= self._limit
        return None if within.all() else within.astype(float)
