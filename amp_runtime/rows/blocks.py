"""Rows in blocks of varying size: a row store whose blocks are looked up by number.

    number --> (first, count) --> rows first, first + 1, ... of the named columns

A block's rows lie side by side, so the rows of many blocks are a few array operations.
Closed blocks leave holes, which are closed up when the store is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from amp_runtime.rows.picking import picked
from amp_runtime.rows.segments import ranges
from amp_runtime.rows.spec import Array, Int64

_CLOSED = -1


ColumnSpec: TypeAlias = "tuple[tuple[int, ...], npt.DTypeLike]"
"""Feature shape and dtype."""


class Blocks:
    """Named columns of rows, in blocks that are numbered by the caller.

    Args:
        columns: {name: feature shape and dtype}.
    """

    def __init__(self, columns: Mapping[str, ColumnSpec]) -> None:
        self._first = np.zeros(64, np.int64)
        self._count = np.full(64, _CLOSED, np.int64)
        self._capacity = 256
        self._columns = {n: np.zeros((256, *shape), d) for n, (shape, d) in columns.items()}
        self._end = 0
        self._live = 0

    def open(self, numbers: Int64, counts: Int64) -> tuple[int, int]:
        """Make a block of `counts` rows for each of `numbers`, all distinct and closed.

        Returns:
            Where the rows of these blocks begin, and how many there are.
        """
        if len(numbers) and (highest := int(numbers.max())) >= len(self._first):
            more = max(highest + 1 - len(self._first), len(self._first))
            self._first = np.concatenate([self._first, np.zeros(more, np.int64)])
            self._count = np.concatenate([self._count, np.full(more, _CLOSED)])
        total = int(counts.sum())
        if self._end + total > self._capacity:
            self._make_room(total)
        first = self._end
        self._first[numbers] = counts.cumsum() + (first - counts)
        self._count[numbers] = counts
        self._end += total
        self._live += total
        return first, total

    def close(self, numbers: Int64) -> None:
        """Give up the rows of open blocks."""
        self._live -= int(self._count[numbers].sum())
        self._count[numbers] = _CLOSED

    def counts(self, numbers: Int64) -> Int64:
        """Return the sizes of open blocks, [numbers]; new memory."""
        return self._count[numbers]

    def first(self, numbers: Int64) -> Int64:
        """Return the first row of each block, until the next `open`; new memory."""
        return self._first[numbers]

    def rows(self, numbers: Int64) -> Int64:
        """Return the rows of open blocks, one block behind the other, until the next `open`."""
        return ranges(self._first[numbers], self._count[numbers])

    def put(self, rows: Int64, values: Mapping[str, Array]) -> None:
        """Copy `values` ({name: [rows, *shape]}) into the columns at `rows`."""
        for name, array in values.items():
            self._columns[name][rows] = array

    def take(self, name: str, rows: Int64) -> Array:
        """Return column `name` at `rows`, [rows, *shape], new memory."""
        return picked(self._columns[name], rows)

    def column(self, name: str) -> Array:
        """Return a whole column, until the next `open`."""
        return self._columns[name]

    def reorder(self, rows: Int64, order: Int64) -> None:
        """Let `rows[i]` hold from now on what `rows[order[i]]` holds, in all columns."""
        for column in self._columns.values():
            column[rows] = picked(column, rows[order])

    def _make_room(self, total: int) -> None:
        """Move the open blocks together, into columns of which half is free then."""
        while 2 * (self._live + total) > self._capacity:
            self._capacity *= 2
        numbers = np.flatnonzero(self._count != _CLOSED)
        rows = self.rows(numbers)
        for name, column in self._columns.items():
            moved = np.zeros((self._capacity, *column.shape[1:]), column.dtype)
            moved[: len(rows)] = picked(column, rows)
            self._columns[name] = moved
        counts = self._count[numbers]
        self._first[numbers] = np.cumsum(counts) - counts
        self._end = self._live
