"""What a node keeps between a row's forward and its answer: a columnar row store.

A slot, as it stands in a return address, is a position in the store plus, in the
upper bits, how often that position has been used before: a late second answer to
a reused position is refused by name.

    bit   31   30 ........ 22   21 ................ 0
          0      use counter         position
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amp_runtime.errors import InvariantError, UnmatchedBackwardError
from amp_runtime.rows.picking import as_whole_rows, part_of_rows, picked, whole_rows
from amp_runtime.rows.spec import Array, Int32, Int64

POSITION_BITS = 22
MAX_POSITIONS = 1 << POSITION_BITS
_POSITION_MASK = MAX_POSITIONS - 1
_USE_MASK = (1 << 9) - 1

_FREE = -1
_ANSWERED = -2
"""And below: an answered position holds -2 - its row in the message that answered it."""


class Stash:
    """Rows in integer slots, with named columns; positions are reused oldest first.

    A position is free, open (owes one answer) or answered (its columns are still
    needed until `free`). Columns are made at the first `put`.

    Args:
        name: of the node, for errors.

    Attributes:
        capacity: positions that there are.
        peak: the most positions that were used at once.
    """

    def __init__(self, name: str, capacity: int = 256) -> None:
        self.name = name
        self._columns: dict[str, Array] = {}
        self._whole_rows: dict[str, Array | None] = {}
        self._parts: dict[tuple[str, int], Array] = {}
        # One look-up tells whether a slot may be answered: an open position holds the
        # slot that stands for it, any other a negative number.
        self._open = np.full(capacity, _FREE, np.int32)
        self._uses = np.zeros(capacity, np.int32)
        self._ring = np.arange(capacity)
        self._marks = np.zeros(0, np.int32)
        self._head = 0
        self._n_free = capacity
        self.capacity = capacity
        self.peak = 0

    @property
    def used(self) -> int:
        """Positions that are not free."""
        return self.capacity - self._n_free

    @property
    def nbytes(self) -> int:
        """Memory of all columns, of free positions too."""
        return sum(column.nbytes for column in self._columns.values())

    def allocate(self, n: int) -> Int64:
        """Return `n` positions, now open, the longest free first; [n], new memory."""
        if n > self._n_free:
            self._grow(n)
        end = self._head + n
        if end <= self.capacity:
            positions = self._ring[self._head : end].copy()
        else:
            positions = self._ring.take(np.arange(self._head, end), mode="wrap")
        self._head = end % self.capacity
        self._n_free -= n
        if (used := self.capacity - self._n_free) > self.peak:
            self.peak = used
        self._open[positions] = positions | (self._uses[positions] << POSITION_BITS)
        return positions

    def slots(self, positions: Int64) -> Int32:
        """Return the slots of open `positions`, as for return addresses; int32 [rows]."""
        return self._open[positions]

    def peek(self, slots: Int32) -> Int64:
        """Return the positions of `slots`, all of which must be open.

        Raises:
            UnmatchedBackwardError: a slot is free (never issued) or answered already.
        """
        positions = (slots & _POSITION_MASK).astype(np.int64)
        try:
            found = self._open[positions]
        except IndexError:
            outside = int((positions >= self.capacity).argmax())
            raise self._unmatched(slots, outside) from None
        # Bytes compare much faster than arrays do.
        if found.tobytes() != slots.tobytes() or (
            # The mark of row r is a negative slot of position MAX_POSITIONS - 2 - r: where that
            # may hold it, in the largest stash, the sign must tell.
            self.capacity > MAX_POSITIONS // 2 and len(slots) and slots.min() < 0
        ):
            good = (found == slots) & (slots >= 0)
            raise self._unmatched(slots, int(np.flatnonzero(~good)[0]))
        return positions

    def answer(self, slots: Int32) -> Int64:
        """Take the answers to `slots`: return their positions, no longer open.

        Raises:
            UnmatchedBackwardError: a slot is free, answered already, or named twice.
        """
        positions = self.peek(slots)
        n = len(positions)
        if n > len(self._marks):
            self._marks = np.arange(_ANSWERED, _ANSWERED - 2 * n, -1, dtype=np.int32)
        marks = self._marks[:n]
        self._open[positions] = marks
        # Of a slot named twice only the last mark is left.
        left = self._open[positions]
        if left.tobytes() != marks.tobytes():
            twice = int(np.flatnonzero(left != marks)[0])
            raise self._unmatched(slots, twice, "named twice in one message")
        return positions

    def free(self, positions: Int64) -> None:
        """Give answered positions back; what their columns hold may be overwritten."""
        n = len(positions)
        if n and self._open[positions].max() > _ANSWERED:
            raise InvariantError(
                f"{self.name}: a stash position is freed twice, or before it was answered"
            )
        self._open[positions] = _FREE
        uses = self._uses[positions]
        uses += 1
        uses &= _USE_MASK
        self._uses[positions] = uses
        tail = (self._head + self._n_free) % self.capacity
        if tail + n <= self.capacity:
            self._ring[tail : tail + n] = positions
        else:
            self._ring.put(np.arange(tail, tail + n), positions, mode="wrap")
        self._n_free += n

    def close(self, positions: Int64) -> None:
        """Free open positions, all distinct, that nobody will answer."""
        self._open[positions] = _ANSWERED
        self.free(positions)

    def put(self, positions: Int64, values: Mapping[str, Array]) -> None:
        """Copy `values` ({name: [rows, *shape]}) into the columns at `positions`."""
        for name, array in values.items():
            column = self._columns.get(name)
            if column is None:
                column = self.column(name, array.shape[1:], array.dtype)
            rows = self._whole_rows[name]
            if rows is None or array.dtype != column.dtype:
                column[positions] = array
            else:
                rows[positions] = as_whole_rows(array, rows.dtype)

    def column(
        self, name: str, shape: tuple[int, ...], dtype: type | np.dtype[np.generic]
    ) -> Array:
        """Return a whole column, made on first use; a later `allocate` may replace it."""
        if name not in self._columns:
            self._keep(name, np.zeros((self.capacity, *shape), dtype))
        return self._columns[name]

    def put_part(self, name: str, positions: Int64, start: int, array: Array) -> None:
        """Copy `array` [rows, n] into numbers `start` to `start + n` of a column that is there."""
        column = self._columns[name]
        rows = self._parts.get((name, start))
        if rows is None:
            rows = self._parts[name, start] = part_of_rows(column, start, array.shape[1])
        rows[positions] = as_whole_rows(array, rows.dtype)

    def _keep(self, name: str, column: Array) -> None:
        self._columns[name], self._whole_rows[name] = column, whole_rows(column)
        self._parts.clear()

    def take(self, name: str, positions: Int64) -> Array:
        """Return column `name` at `positions`, [rows, *shape], new memory."""
        return picked(self._columns[name], positions)

    def open_positions(self) -> Int64:
        """Return the positions that owe an answer."""
        return np.flatnonzero(self._open >= 0)

    def _grow(self, n: int) -> None:
        old, needed = self.capacity, self.used + n
        if needed > MAX_POSITIONS:
            raise InvariantError(
                f"{self.name}: {needed} rows in flight, more than a stash holds ({MAX_POSITIONS})",
                fix="lower training.max_active_keys or training.max_active_rows",
            )
        size = old
        while size < needed:
            size *= 2
        size = min(size, MAX_POSITIONS)
        waiting = self._ring[(self._head + np.arange(self._n_free)) % old]
        self._ring = np.zeros(size, np.int64)
        self._n_free += size - old
        self._ring[: self._n_free] = np.concatenate([waiting, np.arange(old, size)])
        self._head = 0
        self.capacity = size
        self._open = _grown(self._open, size, _FREE)
        self._uses = _grown(self._uses, size)
        for name, column in self._columns.items():
            self._keep(name, _grown(column, size))

    def _unmatched(self, slots: Int32, row: int, why: str = "") -> UnmatchedBackwardError:
        position, use = int(slots[row]) & _POSITION_MASK, int(slots[row]) >> POSITION_BITS
        if not why:
            if position >= self.capacity or int(slots[row]) < 0:
                why = "outside the stash"
            elif use != self._uses[position]:
                why = f"now at use {int(self._uses[position])}"
            else:
                why = "free" if self._open[position] == _FREE else "answered already"
        return UnmatchedBackwardError(
            f"an answer to slot {position} (use {use}), which is {why}",
            where=f"node {self.name!r}",
            fix="a node kind behind it must answer every row that it is given once, and no other",
        )


def _grown(column: Array, size: int, fill: int = 0) -> Array:
    grown = np.full((size, *column.shape[1:]), fill, column.dtype)
    grown[: len(column)] = column
    return grown
