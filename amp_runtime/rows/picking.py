"""Some rows of an array, as `array[rows]` gives them: of wide rows two to ten times as fast.

numpy walks through the elements of what it indexes by an array; `take` copies row by row, and
so does an assignment to an array of which an element is a whole row.
"""

from __future__ import annotations

import math

import numpy as np

from amp_runtime.rows.spec import Array


def picked(array: Array, rows: Array) -> Array:
    """Return `array[rows]`, new memory.

    Args:
        rows: positions, int [n]; no mask.
    """
    # Of single numbers indexing is the faster.
    return array[rows] if array.ndim == 1 else array.take(rows, axis=0)


def whole_rows(column: Array) -> Array | None:
    """Return contiguous `column` [n, *shape] as [n]: each element a row, of bytes.

    None: its rows are single numbers, or without a byte.
    """
    n_bytes = column.itemsize * math.prod(column.shape[1:])
    if column.ndim == 1 or not n_bytes:
        return None
    return column.reshape(len(column), -1).view(np.dtype((np.void, n_bytes)))[:, 0]


def part_of_rows(column: Array, start: int, n: int) -> Array:
    """Return numbers `start` to `start + n` of each row of contiguous `column`, as `whole_rows`."""
    part = np.dtype((np.void, n * column.itemsize))
    offset = start * column.itemsize
    return np.ndarray((len(column),), part, column, offset, column.strides[:1])


def as_whole_rows(array: Array, rows: np.dtype[np.void]) -> Array:
    """Return `array` [n, *shape] as [n] elements of `rows`; a copy where it is not contiguous."""
    contiguous = np.ascontiguousarray(array)
    if contiguous.ndim != 2:
        contiguous = contiguous.reshape(len(array), rows.itemsize // array.itemsize)
    return contiguous.view(rows)[:, 0]
