"""The weights that rows in flight were computed with, kept for their backward.

A version is the number of updates that made it. Only a version that rows refer to is
kept, and it is copied when it is about to be overwritten, not before:

    forward     refer(version, n)     n more rows of it are in flight
    step        keep(version, live)   a copy, where rows refer to it
    backward    at(version, live)     its weights: the copy, or the live ones
                release(versions)     with its last row the copy is gone

So what is held is bounded by the versions in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, Int32, Int64


class WeightVersions:
    """The weights of one node that rows in flight refer to.

    Args:
        names: the parameters that are needed; the others are never copied.

    Attributes:
        peak: the most copies that were held at once.
        peak_bytes: what they took.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(names)
        self.peak = 0
        self.peak_bytes = 0
        self._rows: dict[int, int] = {}
        self._copies: dict[int, dict[str, Array]] = {}

    @property
    def rows(self) -> int:
        """Rows in flight."""
        return sum(self._rows.values())

    @property
    def held(self) -> int:
        """Copies that are held now."""
        return len(self._copies)

    def refer(self, version: int, n_rows: int) -> None:
        """Note that `n_rows` more rows, perhaps 0, were computed with `version`."""
        if n_rows:
            self._rows[version] = self._rows.get(version, 0) + n_rows

    def keep(self, version: int, weights: Mapping[str, Array], *, is_copy: bool = False) -> None:
        """Keep the weights of `version`, if rows refer to it.

        Args:
            weights: those of now, about to be overwritten, of which a copy is made.
            is_copy: nobody will overwrite them: they are kept as they are.
        """
        if self.names and version in self._rows:
            self._copies[version] = {
                name: weights[name] if is_copy else weights[name].copy() for name in self.names
            }
            self.peak = max(self.peak, self.held)
            one_bytes = sum(weights[name].nbytes for name in self.names)
            self.peak_bytes = self.peak * one_bytes

    def at(self, version: int, live: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the needed arrays of a version: those of `live` if nothing overwrote it."""
        return self._copies.get(version) or {name: live[name] for name in self.names}

    def release(self, versions: Int32) -> None:
        """Note that rows were answered, one for each entry of `versions` [rows]."""
        for version, count in zip(*np.unique(versions, return_counts=True), strict=True):
            left = self._rows[int(version)] - int(count)
            if left:
                self._rows[int(version)] = left
            else:
                del self._rows[int(version)]
                self._copies.pop(int(version), None)


def split(versions: Int32) -> Iterator[tuple[int, Int64]]:
    """Yield each version once, oldest first, and the places where it stands in `versions`."""
    order = np.argsort(versions, kind="stable")
    found, starts = np.unique(versions[order], return_index=True)
    for version, places in zip(found, np.split(order, starts[1:]), strict=True):
        yield int(version), places


def put_together(parts: Iterable[tuple[Int64, Payload]], n_rows: int) -> Payload:
    """Return one payload of parts, each with the places of its rows among `n_rows`."""
    whole: dict[str, Array] = {}
    for places, part in parts:
        for name, array in part.items():
            if name not in whole:
                whole[name] = np.zeros((n_rows, *array.shape[1:]), array.dtype)
            whole[name][places] = array
    return whole
