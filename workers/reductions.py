"""How a group makes one row of its members, and gives its gradient to them.

Members of many groups lie one behind the other, `counts` [groups] of each, in the order
of their positions. A sum, mean or maximum of no members is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from amp_runtime.rows.segments import ranges, reduce_segments
from amp_runtime.rows.spec import Array, Int64


@dataclass(frozen=True, slots=True)
class Reduction:
    """combine(members, counts) -> groups; divide(gradient, counts, saved) -> members.

    Attributes:
        save: what `divide` needs to know of the members: [groups, *shape].
    """

    combine: Callable[[Array, Int64], Array]
    divide: Callable[[Array, Int64, Array | None], Array]
    save: Callable[[Array, Int64], Array] | None = None


def _stack(members: Array, counts: Int64) -> Array:
    return members.reshape(len(counts), -1, *members.shape[1:])


def _unstack(gradient: Array, counts: Int64, saved: Array | None) -> Array:
    return gradient.reshape(-1, *gradient.shape[2:])


def _sum(members: Array, counts: Int64) -> Array:
    return reduce_segments(np.add, members, counts)


def _to_each(gradient: Array, counts: Int64, saved: Array | None) -> Array:
    return np.repeat(gradient, counts, axis=0)


def _share(groups: Array, counts: Int64) -> Array:
    """Return `groups` [groups, *shape], each divided by its count."""
    shared: Array = groups / _along(np.maximum(counts, 1), groups).astype(groups.dtype)
    return shared


def _first_of_the_largest(members: Array, counts: Int64) -> Array:
    """Return for each group and feature the number of the member that is the maximum.

    Of equal ones it is the first, so that it does not depend on the order of arrival.
    """
    largest = reduce_segments(np.maximum, members, counts)
    # A maximum of NaN equals nothing: such a group goes on with NaN, and does not fail here.
    is_largest = (members == np.repeat(largest, counts, axis=0)) | np.isnan(members)
    number = np.where(is_largest, _numbers(counts, members), len(members))
    return reduce_segments(np.minimum, number, counts)


def _to_the_first(gradient: Array, counts: Int64, saved: Array | None) -> Array:
    assert saved is not None
    spread = np.repeat(gradient, counts, axis=0)
    return np.where(np.repeat(saved, counts, axis=0) == _numbers(counts, spread), spread, 0)


def _numbers(counts: Int64, like: Array) -> Int64:
    """Return 0, 1, ... within each group, to be compared with members `like`."""
    return _along(ranges(np.zeros(len(counts)), counts), like)


def _along(values: Int64, like: Array) -> Int64:
    """Return `values` [n] with as many axes as `like` [n, *shape]."""
    return values.reshape(len(values), *[1] * (like.ndim - 1))


REDUCTIONS: Mapping[str, Reduction] = {
    "stack": Reduction(_stack, _unstack),
    "sum": Reduction(_sum, _to_each),
    "mean": Reduction(
        lambda members, counts: _share(_sum(members, counts), counts),
        lambda gradient, counts, saved: np.repeat(_share(gradient, counts), counts, axis=0),
    ),
    "max": Reduction(
        lambda members, counts: reduce_segments(np.maximum, members, counts),
        _to_the_first,
        _first_of_the_largest,
    ),
}
