"""Matching the rows of several ports by key, in bulk.

A key's entry is a stash position, made when its first row comes. The waiting keys
are kept sorted, so that finding, adding and removing many is a few array calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amp_runtime.errors import DuplicateStateError
from amp_runtime.rows.spec import Array, Int64
from amp_runtime.rows.stash import Stash


class KeyIndex:
    """int64 keys to int64 values, sorted by key; all operations are in bulk."""

    def __init__(self) -> None:
        self._table = np.zeros((2, 0), np.int64)  # keys, and their values
        self._keys = self._table[0]

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, keys: Int64) -> tuple[Int64, Array]:
        """Return (values [rows], found mask [rows]); values are 0 where not found."""
        if not len(self._keys):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
        at = self._keys.searchsorted(keys)
        known, values = self._table.take(at, axis=1, mode="clip")
        found = known == keys
        values *= found
        return values, found

    def insert(self, keys: Int64, values: Int64) -> None:
        """Add keys that are not here yet; `keys` must be sorted."""
        at = self._keys.searchsorted(keys) + np.arange(len(keys))
        old = np.ones(len(self._keys) + len(keys), bool)
        old[at] = False
        table = np.empty((2, len(old)), np.int64)
        table[:, old] = self._table
        table[0, at] = keys
        table[1, at] = values
        self._set(table)

    def remove(self, keys: Int64) -> None:
        """Remove keys that are here."""
        kept = np.ones(len(self._keys), bool)
        kept[self._keys.searchsorted(keys)] = False
        self._set(self._table[:, kept])

    def _set(self, table: Int64) -> None:
        self._table, self._keys = table, table[0]


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where the rows of one batch went.

    Attributes:
        positions: int64 [rows], the stash position of each row's entry.
        complete: mask [rows]: this row was the last that its entry waited for.
    """

    positions: Int64
    complete: Array


class Join:
    """Entries that wait until a row has come on every port.

    Args:
        ports: names of the ports, for errors.
        stash: holds the entries; one position is allocated per key.
    """

    def __init__(self, ports: tuple[str, ...], stash: Stash) -> None:
        self._ports = ports
        self._stash = stash
        self._index = KeyIndex()
        self._all = (1 << len(ports)) - 1

    @property
    def waiting(self) -> int:
        """Entries that are not complete."""
        return len(self._index)

    def arrive(self, port: int, keys: Int64) -> Arrival:
        """Enter one row per key on `port`.

        Raises:
            DuplicateStateError: a second row with one key on this port.
        """
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        if (ordered[1:] == ordered[:-1]).any():
            raise self._duplicate(port)
        positions, found = self._index.find(ordered)
        if not found.all():
            positions[~found] = self._stash.allocate(int((~found).sum()))
        arrived = self._stash.column("arrived", (), np.int64)
        arrived[positions[~found]] = 0
        if (arrived[positions] >> port & 1).any():
            raise self._duplicate(port)
        arrived[positions] |= 1 << port
        complete = arrived[positions] == self._all
        if (done := found & complete).any():
            self._index.remove(ordered[done])
        if (begun := ~found & ~complete).any():
            self._index.insert(ordered[begun], positions[begun])
        in_row_order = np.empty_like(positions)
        in_row_order[order] = positions
        complete_in_row_order = np.empty_like(complete)
        complete_in_row_order[order] = complete
        return Arrival(in_row_order, complete_in_row_order)

    def _duplicate(self, port: int) -> DuplicateStateError:
        return DuplicateStateError(
            "a second row with the same state",
            where=f"node {self._stash.name!r}, port {self._ports[port]!r}",
            fix="a state must be unique per visit: change it in every cycle (isu), and do not "
            "bring two branches of a bcast together in a phi",
        )
