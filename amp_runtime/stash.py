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
from amp_runtime.spec import Array, Int32, Int64

POSITION_BITS = 22
MAX_POSITIONS = 1 << POSITION_BITS
_POSITION_MASK = MAX_POSITIONS - 1
_USE_MASK = (1 << 9) - 1

_FREE, _OPEN, _ANSWERED = 0, 1, 2
_STATUS_WORDS = {_FREE: "free", _OPEN: "open", _ANSWERED: "answered already"}


class Stash:
    """Rows in integer slots, with named columns; positions are reused oldest first.

    A position is free, open (owes one answer) or answered (its columns are still
    needed until `free`). Columns are made at the first `put`.

    Args:
        name: of the node, for errors.

    Attributes:
        peak: the most positions that were used at once.
    """

    def __init__(self, name: str, capacity: int = 256) -> None:
        self.name = name
        self._columns: dict[str, Array] = {}
        self._status = np.zeros(capacity, np.uint8)
        self._uses = np.zeros(capacity, np.int32)
        self._mark = np.zeros(capacity, np.int64)
        self._ring = np.arange(capacity)
        self._head = 0
        self._n_free = capacity
        self.peak = 0

    @property
    def capacity(self) -> int:
        return len(self._status)

    @property
    def used(self) -> int:
        """Positions that are not free."""
        return self.capacity - self._n_free

    def allocate(self, n: int) -> Int64:
        """Return `n` positions, now open, the longest free first; [n], new memory."""
        if n > self._n_free:
            self._grow(n)
        at = self._head + np.arange(n)
        at %= self.capacity
        positions = self._ring[at]
        self._head = (self._head + n) % self.capacity
        self._n_free -= n
        self.peak = max(self.peak, self.used)
        self._status[positions] = _OPEN
        return positions

    def slots(self, positions: Int64) -> Int32:
        """Return the slots that stand for `positions` in return addresses; int32 [rows]."""
        slots: Int32 = (positions | (self._uses[positions] << POSITION_BITS)).astype(np.int32)
        return slots

    def peek(self, slots: Int32) -> Int64:
        """Return the positions of `slots`, all of which must be open.

        Raises:
            UnmatchedBackwardError: a slot is free (never issued) or answered already.
        """
        positions = (slots & _POSITION_MASK).astype(np.int64)
        good = positions < self.capacity
        inside = positions if good.all() else np.where(good, positions, 0)
        good &= self._status[inside] == _OPEN
        good &= (slots >> POSITION_BITS) == self._uses[inside]
        if not good.all():
            raise self._unmatched(slots, int(np.flatnonzero(~good)[0]))
        return positions

    def answer(self, slots: Int32) -> Int64:
        """Take the answers to `slots`: return their positions, no longer open.

        Raises:
            UnmatchedBackwardError: a slot is free, answered already, or named twice.
        """
        positions = self.peek(slots)
        order = np.arange(len(positions))
        self._mark[positions] = order
        twice = self._mark[positions] != order
        if twice.any():
            raise self._unmatched(
                slots, int(np.flatnonzero(twice)[0]), "named twice in one message"
            )
        self._status[positions] = _ANSWERED
        return positions

    def free(self, positions: Int64) -> None:
        """Give positions back; what their columns hold may be overwritten."""
        if not self._status[positions].all():
            raise InvariantError(f"{self.name}: a stash position is freed twice")
        self._status[positions] = _FREE
        self._uses[positions] = (self._uses[positions] + 1) & _USE_MASK
        at = self._head + self._n_free + np.arange(len(positions))
        self._ring[at % self.capacity] = positions
        self._n_free += len(positions)

    def put(self, positions: Int64, values: Mapping[str, Array]) -> None:
        """Copy `values` ({name: [rows, *shape]}) into the columns at `positions`."""
        for name, array in values.items():
            column = self._columns.get(name)
            if column is None:
                column = np.zeros((self.capacity, *array.shape[1:]), array.dtype)
                self._columns[name] = column
            column[positions] = array

    def column(
        self, name: str, shape: tuple[int, ...], dtype: type | np.dtype[np.generic]
    ) -> Array:
        """Return a whole column, made on first use; a later `allocate` may replace it."""
        if name not in self._columns:
            self._columns[name] = np.zeros((self.capacity, *shape), dtype)
        return self._columns[name]

    def take(self, name: str, positions: Int64) -> Array:
        """Return column `name` at `positions`, [rows, *shape], new memory."""
        return self._columns[name][positions]

    def open_positions(self) -> Int64:
        """Return the positions that owe an answer."""
        return np.flatnonzero(self._status == _OPEN)

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
        self._status = _grown(self._status, size)
        self._uses = _grown(self._uses, size)
        self._mark = np.zeros(size, np.int64)
        self._columns = {name: _grown(column, size) for name, column in self._columns.items()}

    def _unmatched(self, slots: Int32, row: int, why: str = "") -> UnmatchedBackwardError:
        position, use = int(slots[row]) & _POSITION_MASK, int(slots[row]) >> POSITION_BITS
        if not why and (position >= self.capacity or int(slots[row]) < 0):
            why = "outside the stash"
        elif not why and use != self._uses[position]:
            why = f"now at use {int(self._uses[position])}"
        why = why or _STATUS_WORDS[int(self._status[position])]
        return UnmatchedBackwardError(
            f"an answer to slot {position} (use {use}), which is {why}", where=f"node {self.name!r}"
        )


def _grown(column: Array, size: int) -> Array:
    grown = np.zeros((size, *column.shape[1:]), column.dtype)
    grown[: len(column)] = column
    return grown
