"""Arithmetic on segments: rows that belong together and lie one behind the other."""

from __future__ import annotations

import numpy as np

from amp_runtime.rows.spec import Array, Int64

MOST_PASSES = 16
LEAST_WIDTH = 8
"""Segments of up to so many rows, of at least so many numbers, are reduced in passes."""


def ranges(starts: Array, counts: Array) -> Int64:
    """Return the integers of all `range(start, start + count)`, one after another."""
    counts = np.asarray(counts, np.int64)
    ends = counts.cumsum()
    firsts: Int64 = (np.asarray(starts, np.int64) - (ends - counts)).repeat(counts)
    firsts += np.arange(len(firsts))
    return firsts


def run_starts(values: Array) -> Int64:
    """Return where each run of equal values begins in `values` [n]."""
    changes = np.ones(len(values), bool)
    changes[1:] = values[1:] != values[:-1]
    return changes.nonzero()[0]


def run_lengths(starts: Int64, n: int) -> Int64:
    """Return how long each of the runs is that begin at `starts` and end before `n`."""
    lengths = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
    lengths[-1:] = n - starts[-1:]
    return lengths


def distinct(values: Array) -> Array:
    """Return each of `values` [n] once, sorted."""
    ordered = np.sort(values)
    return ordered[run_starts(ordered)]


def counted(values: Array) -> tuple[Array, Int64]:
    """Return each of `values` [n] once, sorted, and how often it is there."""
    ordered = np.sort(values)
    starts = run_starts(ordered)
    return ordered[starts], run_lengths(starts, len(ordered))


def repeated(values: Array) -> bool:
    """Return whether any of `values` [n] is there twice."""
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())


def numbered_within(values: Array) -> Int64:
    """Return for each of `values` [n] how many equal ones stand before it."""
    order = values.argsort(kind="stable")
    starts = run_starts(values[order])
    numbers = np.zeros(len(values), np.int64)
    if len(starts) < len(values):
        numbers[order] = ranges(np.zeros(len(starts)), run_lengths(starts, len(values)))
    return numbers


def reduce_segments(function: np.ufunc, values: Array, counts: Int64) -> Array:
    """Return `function` reduced over each of the segments that `values` consists of.

    Args:
        values: [rows, *shape], one segment behind the other.
        counts: int64 [segments], rows of each; they add up to all rows.
    Returns:
        [segments, *shape], new memory; zeros for a segment without rows.
    """
    if len(counts) and counts.max() <= MOST_PASSES and values[:1].size >= LEAST_WIDTH:
        return _reduced_by_passes(function, values, counts)
    reduced = np.zeros((len(counts), *values.shape[1:]), values.dtype)
    filled = counts > 0
    if filled.any():
        # reduceat gives an empty segment the row where it would begin, so it gets none.
        starts = (np.cumsum(counts) - counts)[filled]
        reduced[filled] = function.reduceat(values, starts, axis=0)
    return reduced


def _reduced_by_passes(function: np.ufunc, values: Array, counts: Int64) -> Array:
    """Reduce the first two rows of all segments, then the third, and so on.

    Over short segments of wide rows it takes an eighth of reduceat's time, which goes through
    them row by row. The longest come first, so that those that a pass reaches lie together.
    """
    order = np.argsort(-counts, kind="stable")
    falling = counts[order]
    rows = (counts.cumsum() - counts)[order]
    reached = np.searchsorted(-falling, -np.arange(1, falling[0] + 1), side="right")
    found = np.zeros((len(counts), *values.shape[1:]), values.dtype)
    for number, n in enumerate(reached.tolist()):
        some = values.take(rows[:n] + number, axis=0)
        if number:
            function(found[:n], some, out=found[:n])
        else:
            found[:n] = some
    reduced = np.empty_like(found)
    reduced[order] = found
    return reduced
