"""The gradient of a table of which few rows are touched: those rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_runtime.rows.picking import picked
from amp_runtime.rows.segments import reduce_segments, run_starts
from amp_runtime.rows.spec import Array, Int64

SMALL_TABLE_ROWS = 64
"""In a table of no more, most rows come often: a product adds them up, and nothing is sorted."""

_MANY = 1024
"""Rows that wait to be added up at least, so that a small table is not added up at each call."""


@dataclass(slots=True)
class RowGradient:
    """A gradient whose other rows are zero.

    Attributes:
        rows: int64 [n], each once, ascending.
        values: [n, *shape], of these rows.
        lazy: whether an optimiser leaves the other rows, and what it keeps of them, as
            they are, even where a gradient of zero would change them.
    """

    rows: Int64
    values: Array
    lazy: bool


class RowSums:
    """Adds up gradients by row of a table; cost and memory follow the rows touched.

    Args:
        table: the parameter.
        lazy: as in `RowGradient`.
    """

    def __init__(self, table: Array, *, lazy: bool) -> None:
        self._shape, self._dtype = table.shape, table.dtype
        self.lazy = lazy
        self._terms: list[tuple[Int64, Array]] = []
        self._waiting = 0
        self._together = 0

    def add(self, rows: Array, values: Array) -> None:
        """Add `values` [n, *shape] to rows `rows` [n], in which a row may stand twice.

        Neither is kept.
        """
        if len(rows):
            self._terms.append(self._summed(rows, values))
            self._waiting += len(self._terms[-1][0])
            if self._waiting > max(_MANY, 2 * self._together):
                self._add_up()

    def take(self) -> RowGradient:
        """Return the sum, new memory, and begin anew."""
        self._add_up()
        if self._terms:
            ((rows, values),) = self._terms
        else:
            rows, values = np.empty(0, np.int64), np.empty((0, *self._shape[1:]), self._dtype)
        self._terms, self._waiting, self._together = [], 0, 0
        return RowGradient(rows, values, self.lazy)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the sum as a table, new memory: `np.asarray(sums)`."""
        table = np.zeros(self._shape, self._dtype)
        self._add_up()
        for rows, values in self._terms:
            table[rows] = values
        return table if dtype is None else table.astype(dtype)

    def _add_up(self) -> None:
        """Make one term of all."""
        if len(self._terms) > 1:
            rows, values = zip(*self._terms, strict=True)
            self._terms = [self._summed(np.concatenate(rows), np.concatenate(values))]
        self._waiting = self._together = sum(len(rows) for rows, _ in self._terms)

    def _summed(self, rows: Array, values: Array) -> tuple[Int64, Array]:
        """Return each row once, ascending, and the sum of its values; new memory."""
        if self._shape[0] <= SMALL_TABLE_ROWS:
            return _summed_by_product(rows, values, self._shape[0])
        return _summed_in_order(rows, values)


def _summed_by_product(rows: Array, values: Array, n: int) -> tuple[Int64, Array]:
    # What is not finite spoils all of them, as it does the update.
    which = np.arange(n)[:, None] == rows
    sums = which.astype(values.dtype) @ values.reshape(len(values), -1)
    touched = which.any(axis=1).nonzero()[0]
    return touched, picked(sums, touched).reshape(-1, *values.shape[1:])


def _summed_in_order(rows: Array, values: Array) -> tuple[Int64, Array]:
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = run_starts(ordered)
    counts = np.diff(starts, append=len(rows))
    summed = picked(values, order[starts])
    # Most rows of a large table come once, and a sum over one costs as much as over many.
    several = counts > 1
    if several.any():
        together = picked(values, order[np.repeat(several, counts)])
        summed[several] = reduce_segments(np.add, together, counts[several])
    return ordered[starts].astype(np.int64), summed
