"""Matching a varying number of rows by key, in bulk.

A key's entry is a stash position, made when its first row comes; its members lie side by
side in a block. An entry is complete when as many have come as it expects, and stays
known until it is closed: until then a member too many is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from amp_runtime.errors import DuplicateStateError, GroupSizeError
from amp_runtime.rows.blocks import Blocks, ColumnSpec
from amp_runtime.rows.join import KeyIndex
from amp_runtime.rows.segments import (
    distinct,
    numbered_within,
    repeated,
    run_lengths,
    run_starts,
)
from amp_runtime.rows.spec import Columns, Int64
from amp_runtime.rows.stash import Stash

Expect = Callable[[Int64], Int64]
"""How many members the entries of some rows expect: given positions in a batch."""


class Gathering:
    """Entries that wait for their members.

    Args:
        stash: holds the entries; one position is allocated per key.
        columns: {name: feature shape and dtype} of what the caller keeps of a member.
        whole: what an entry stands for, for errors.
        announced: an entry waits until it is announced, too, so it may have no members.

    Attributes:
        members: rows by entry: the columns, and `filled` of its own.
    """

    def __init__(
        self,
        stash: Stash,
        columns: Mapping[str, ColumnSpec],
        *,
        whole: str = "group",
        announced: bool = False,
    ) -> None:
        self.members = Blocks({**columns, "filled": ((), np.bool_)})
        self._stash = stash
        self._whole = whole
        self._announced = announced
        self._index = KeyIndex()
        self._n_complete = 0

    @property
    def waiting(self) -> int:
        """Entries that are not complete."""
        return len(self._index) - self._n_complete

    def enter(self, keys: Int64, expect: Expect) -> Int64:
        """Return the entry of each of `keys` [rows], made where there is none."""
        order = keys.argsort(kind="stable")
        ordered = keys[order]
        starts = run_starts(ordered)
        distinct_keys = ordered[starts]
        entries, found = self._index.find(distinct_keys)
        if not found.all():
            missing = (~found).nonzero()[0]
            new_keys = distinct_keys[missing]
            new = self._stash.allocate(len(missing))
            counts = expect(order[starts[missing]])
            first, total = self.members.open(new, counts)
            self.members.column("filled")[first : first + total] = False
            self._stash.column("key", (), np.int64)[new] = new_keys
            self._stash.column("arrived", (), np.int64)[new] = 0
            self._stash.column("announced", (), np.bool_)[new] = not self._announced
            self._index.insert(new_keys, new)
            entries[missing] = new
        of_row = np.empty(len(keys), np.int64)
        of_row[order] = entries.repeat(run_lengths(starts, len(keys)))
        return of_row

    def announce(self, entries: Int64, columns: Columns) -> None:
        """Note the rows that announce `entries` [rows].

        Raises:
            DuplicateStateError: one is announced already, or twice.
        """
        announced = self._stash.column("announced", (), np.bool_)
        again = announced[entries] | (numbered_within(entries) > 0)
        if again.any():
            at = int(np.flatnonzero(again)[0])
            raise self._duplicate(
                f"a second row that announces its {self._whole}", "key", columns, at
            )
        announced[entries] = True

    def place(self, entries: Int64, positions: Int64 | None, columns: Columns) -> Int64:
        """Return the row of `members` for each of the members that came.

        Args:
            entries: of each member, [rows].
            positions: its place among those of its entry; None: in order of arrival.
            columns: its state, for errors.
        Raises:
            GroupSizeError: there are more members than the entry expects.
            DuplicateStateError: a second member with one place.
        """
        arrived = self._stash.column("arrived", (), np.int64)
        expected = self.members.counts(entries)
        number = arrived[entries] + numbered_within(entries)
        if (surplus := number >= expected).any():
            at = int(np.flatnonzero(surplus)[0])
            raise GroupSizeError(
                f"a member more than the {int(expected[at])} that its {self._whole} expects",
                where=self._where("x", columns, at),
                fix="the expected count must be how many rows come, and a state be unique per "
                "visit",
            )
        np.add.at(arrived, entries, 1)
        if positions is None:
            return self.members.first(entries) + number
        rows = self.members.first(entries) + positions
        filled = self.members.column("filled")
        if filled[rows].any() or repeated(rows):
            again = filled[rows] | (numbered_within(rows) > 0)
            at = int(np.flatnonzero(again)[0])
            what = f"a second member at position {int(positions[at])} of its {self._whole}"
            raise self._duplicate(what, "x", columns, at)
        filled[rows] = True
        return rows

    def completed(self, entries: Int64) -> Int64:
        """Return those of `entries` [rows] that have become complete, each once.

        `entries` are those of rows that were just placed or announced.
        """
        touched = distinct(entries)
        whole = self._stash.take("arrived", touched) == self.members.counts(touched)
        if self._announced:
            whole &= self._stash.take("announced", touched)
        complete: Int64 = touched[whole]
        self._n_complete += len(complete)
        return complete

    def close(self, entries: Int64) -> None:
        """Forget complete entries and their members; the stash positions stay the caller's."""
        self._index.remove(self._stash.take("key", entries))
        self.members.close(entries)
        self._n_complete -= len(entries)

    def _duplicate(self, what: str, port: str, columns: Columns, at: int) -> DuplicateStateError:
        return DuplicateStateError(
            what,
            where=self._where(port, columns, at),
            fix="a state must be unique per visit: change it in every cycle (isu), and do not "
            "bring two branches of a bcast together in a phi",
        )

    def _where(self, port: str, columns: Columns, at: int) -> str:
        return f"node {self._stash.name!r}, port {port!r}, {columns.words(at)}"
