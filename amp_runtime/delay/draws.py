"""By how many updates rows are delayed, as the option `delay` says.

A number is for every row. Else each instance has a number of its own between 0 and 1, a hash
of the run's seed, the node's name and the instance, which says where in a distribution it
stands: the same wherever nodes run, and whichever rows are merged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from amp_runtime.errors import StartError
from amp_runtime.rows.hashing import hashed
from amp_runtime.rows.spec import Array, Int32

WINDOWS = "windows"
"""Key that a `trace` has beside its options, once the run was read: (updates, {staleness: rows}
as two lists) one behind the other."""

Window = tuple[int, Sequence[int], Sequence[int]]


class Delays(Protocol):
    """How old the weights are that rows are computed with.

    Attributes:
        most: updates, of any row.
    """

    @property
    def most(self) -> int: ...
    def of(self, version: int, instances: Int32) -> int | Array:
        """Return updates, int [rows] or one for all.

        Args:
            version: of the weights of now.
            instances: of the rows, [rows].
        """


class Fixed:
    """Every row is delayed by as many updates."""

    def __init__(self, updates: int) -> None:
        self.most = updates

    def of(self, version: int, instances: Int32) -> int:
        return self.most


class Drawn:
    """Each instance has a delay of its own.

    Args:
        key: uint64 [1], of the run's seed and the node's name.
        values, weights: of a distribution, [n] each.
    """

    def __init__(self, key: Array, values: Sequence[int], weights: Any) -> None:
        self._key = key
        self._distribution = _Distribution(values, weights)
        self.most = self._distribution.most

    def of(self, version: int, instances: Int32) -> Array:
        return self._distribution.at(quantiles(self._key, instances))


class Recorded:
    """As `Drawn`, of what a recorded run had at the same update; after its last, from its first.

    Args:
        windows: of updates one behind the other.
    """

    def __init__(self, key: Array, windows: Sequence[Window]) -> None:
        self._key = key
        self._ends = np.cumsum([updates for updates, _, _ in windows]).tolist()
        self._distributions = [_Distribution(values, rows) for _, values, rows in windows]
        self.most = max(distribution.most for distribution in self._distributions)

    def of(self, version: int, instances: Int32) -> Array:
        window = bisect_right(self._ends, version % self._ends[-1])
        return self._distributions[window].at(quantiles(self._key, instances))


class Unread:
    """A `trace` whose run was not read: where nothing is trained."""

    most = 0

    def __init__(self, run: str, where: str) -> None:
        self._run = run
        self._where = where

    def of(self, version: int, instances: Int32) -> int:
        raise StartError(
            f"delay: the trace of run {self._run!r} was not read before training",
            where=self._where,
            fix="give the graph to amp_runtime.output.recorded_delays.with_recorded_delays first",
        )


class _Distribution:
    def __init__(self, values: Sequence[int], weights: Any) -> None:
        self._values = np.asarray(values, np.int32)
        shares = np.cumsum(np.asarray(weights, np.float64))
        self._shares = shares / shares[-1]
        self.most = int(self._values.max())

    def at(self, quantiles: Array) -> Array:
        return self._values[np.searchsorted(self._shares, quantiles, side="right")]


def quantiles(key: Array, instances: Int32) -> Array:
    """Return a number of each instance's own, float64 [rows], from 0 to below 1."""
    return (hashed(key, [instances]) >> np.uint64(11)) * 2.0**-53


def make_delays(option: int | Mapping[str, Any], key: Array, where: str) -> Delays:
    """Return what a checked option `delay` asks for.

    Args:
        key: as of `Drawn`.
        where: the node, for errors.
    """
    if isinstance(option, int):
        return Fixed(option)
    match option["name"]:
        case "random":
            values = range(option["low"], option["high"] + 1)
            return Drawn(key, values, np.ones(len(values)))
        case "geometric":
            values = range(option["high"] + 1)
            factor = option["mean"] / (1 + option["mean"])
            return Drawn(key, values, factor ** np.arange(len(values)))
        case _:
            windows = option.get(WINDOWS)
            return Recorded(key, windows) if windows else Unread(option["run"], where)
