"""The weights of a node's last updates, and which of them rows are computed with.

    forward     split(rows, version)      rows by the version that they are computed with
                at(version)               its weights
    step        keep(version, weights)    a copy, before they are overwritten

What is kept is what rows of the version were computed with where nothing is injected: where
weights are predicted, the predicted ones, from the optimiser and the staleness of then. So a
row is computed as if its forward had been so many updates ago, but for its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from amp_runtime.delay.draws import Delays
from amp_runtime.remedies.weight_versions import split
from amp_runtime.rows.message import Rows
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array


class InjectedDelay:
    """The past weights of one node.

    Attributes:
        past: {version: its weights, never written to}, the oldest first, without gaps, as many
            as the longest delay at most.
    """

    def __init__(self, delays: Delays) -> None:
        self.past: dict[int, Mapping[str, Array]] = {}
        self._delays = delays

    @property
    def n_bytes(self) -> int:
        """Memory of all that is kept."""
        return sum(a.nbytes for weights in self.past.values() for a in weights.values())

    def split(self, rows: Rows, version: int) -> Iterator[tuple[int, Rows]]:
        """Yield versions, the oldest first, and the rows that are computed with each.

        Before there were as many updates as a row is to be delayed, it is the oldest version.

        Args:
            version: of the weights of now.
        """
        delays = self._delays.of(version, rows.state[:, 0])
        oldest = next(iter(self.past), version)
        used = np.atleast_1d(np.maximum(version - delays, oldest))
        if (used == used[0]).all():
            yield int(used[0]), rows
            return
        for one, places in split(used):
            yield one, rows.take(places)

    def at(self, version: int) -> Mapping[str, Array]:
        """Return the weights of a past version."""
        return self.past[version]

    def keep(self, version: int, weights: Mapping[str, Any]) -> Mapping[str, Array] | None:
        """Copy `version`, which is about to be overwritten; return the copy, None if none is kept.

        The oldest is let go, as no row will ask for it.

        Args:
            weights: arrays, or tables that are predicted where they are read.
        """
        if not self._delays.most:
            return None
        if len(self.past) == self._delays.most:
            del self.past[next(iter(self.past))]
        copy = {name: np.array(array[...]) for name, array in weights.items()}
        self.past[version] = copy
        return copy

    def forget(self) -> None:
        """Learn that the weights come from elsewhere: none of the past are theirs."""
        self.past.clear()

    def save(self) -> Saved:
        """Return what it goes on from."""
        saved = Saved()
        for version, weights in self.past.items():
            saved.add(str(version), Saved(arrays=weights))
        saved.numbers["versions"] = list(self.past)
        return saved

    def restore(self, saved: Saved, like: Mapping[str, Array], where: str) -> None:
        """Go on from what `save` returned; from nothing where no delay was injected.

        Args:
            like: weights of these names, shapes and dtypes.
            where: the node, for errors.
        """
        versions = saved.numbers.get("versions", ())
        for version in versions[max(len(versions) - self._delays.most, 0) :]:
            weights = {name: np.empty_like(array) for name, array in like.items()}
            saved.part(str(version)).fill(weights, where)
            self.past[version] = weights
