"""An instance's read-only arrays, in one arena per worker, taken in bulk.

    instance --table--> first example row --+ example--> (start, count) per field --> values

All look-ups are vectorised over rows; memory is reused after instances retire.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import numpy as np

from amp_runtime.errors import InvariantError, MissingStructureError
from amp_runtime.rows.segments import counted, ranges, repeated
from amp_runtime.rows.spec import Array, ArraySpec, Columns, Int32, Int64

_COUNTED_TOGETHER = 64
"""Batches of rows that are counted at once."""


class InstanceTable:
    """int64 columns by live instance number: an open ring, looked up in bulk.

    Instances are numbered in order of injection, so the live ones lie close
    together: position = instance mod capacity, doubled while two would share one.
    """

    def __init__(self, columns: Iterable[str] = ()) -> None:
        self._keys = np.full(64, -1, np.int64)
        self.columns = {name: np.zeros(64, np.int64) for name in columns}
        self.live = 0

    def find(self, instances: Array) -> tuple[Int64, Array]:
        """Return (positions, found mask), [rows] each."""
        wide = instances.astype(np.int64, copy=False)  # indexing by others takes twice as long
        positions = wide & (len(self._keys) - 1)
        return positions, self._keys[positions] == wide

    def add(self, instances: Array) -> Int64:
        """Make entries for distinct new instances, all columns zero; return positions.

        Raises:
            InvariantError: one is live already, or named twice.
        """
        if repeated(instances):
            raise InvariantError(f"an instance is named twice in {instances.tolist()}")
        while True:
            positions = instances & (len(self._keys) - 1)
            taken = self._keys[positions] >= 0
            if (self._keys[positions] == instances).any():
                raise InvariantError(f"an instance of {instances.tolist()} is live already")
            if not taken.any() and not repeated(positions):
                break
            self._grow()
        self._keys[positions] = instances
        for column in self.columns.values():
            column[positions] = 0
        self.live += len(instances)
        return positions

    def remove(self, instances: Array) -> None:
        positions, found = self.find(instances)
        self._keys[positions[found]] = -1
        self.live -= int(found.sum())

    def instances(self) -> Int64:
        """Return the live instances, in no order."""
        return self._keys[self._keys >= 0]

    def _grow(self) -> None:
        size = 2 * len(self._keys)
        old = np.flatnonzero(self._keys >= 0)
        keys = self._keys[old]
        new = keys & (size - 1)
        self._keys = np.full(size, -1, np.int64)
        self._keys[new] = keys
        for name, column in self.columns.items():
            grown = np.zeros(size, np.int64)
            grown[new] = column[old]
            self.columns[name] = grown


class InstanceCounter:
    """Counts rows per live instance."""

    def __init__(self) -> None:
        self._table = InstanceTable(["count"])
        self._uncounted: list[Array] = []

    def __len__(self) -> int:
        self._count()
        return self._table.live

    def add(self, instances: Array) -> None:
        """Count one row for each entry of `instances` [rows]; it is kept for a while."""
        self._uncounted.append(instances)  # rows come in many batches, and are asked for once
        if len(self._uncounted) >= _COUNTED_TOGETHER:
            self._count()

    def _count(self) -> None:
        if not self._uncounted:
            return
        together = np.concatenate(self._uncounted, dtype=np.int64)
        self._uncounted.clear()
        distinct, counts = counted(together)
        positions, found = self._table.find(distinct)
        if not found.all():
            self._table.add(distinct[~found])
            positions, _ = self._table.find(distinct)
        self._table.columns["count"][positions] += counts

    def pop(self, instances: Array) -> Int64:
        """Return and forget the counts of `instances`; 0 where none was counted."""
        self._count()
        instances = np.asarray(instances, np.int64)
        positions, found = self._table.find(instances)
        counts = np.where(found, self._table.columns["count"][positions], 0)
        self._table.remove(instances)
        return counts


class _Buffer:
    """A growing array of which the first `used` rows are in use."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic] | type) -> None:
        self.values = np.zeros((64, *shape), dtype)
        self.used = 0

    def append(self, values: Array) -> int:
        """Copy `values` behind the used rows; return where they start."""
        start, self.used = self.used, self.used + len(values)
        if self.used > len(self.values):
            grown = np.zeros((2 * self.used, *self.values.shape[1:]), self.values.dtype)
            grown[:start] = self.values[:start]
            self.values = grown
        self.values[start : self.used] = values
        return start

    def keep(self, index: Int64) -> None:
        """Keep the rows at `index` only, in that order."""
        kept = self.values[index]
        self.values[: len(kept)] = kept
        self.used = len(kept)


class StructureArena:
    """The structure of all live instances that this worker's nodes need.

    Args:
        fields: {name: spec}, the fields that the nodes here declared.
    """

    def __init__(self, fields: Mapping[str, ArraySpec]) -> None:
        self.fields = dict(fields)
        self._table = InstanceTable(["first", "examples"])
        self._values = {n: _Buffer(s.shape, s.numpy_dtype) for n, s in self.fields.items()}
        self._starts = {name: _Buffer((), np.int64) for name in self.fields}
        self._counts = {name: _Buffer((), np.int64) for name in self.fields}
        self._examples = 0
        self._live_examples = 0
        self._newest = -1

    def only(self, names: Iterable[str]) -> StructureArena:
        """Return the same arena as a node sees it that declared `names`: for taking, not adding.

        What another node in the worker needs is not there, so that a field which a function
        forgot to declare is an error wherever the nodes are.
        """
        view = copy.copy(self)
        view.fields = {name: self.fields[name] for name in names}
        return view

    @property
    def live(self) -> int:
        """Instances whose structure is here."""
        return self._table.live

    def has(self, instances: Int32) -> bool:
        """Return whether the structure of all of `instances` [rows] has come.

        It comes in the order of their numbers, so that of an instance is here once that of a
        later one is; rows of one that has retired there are none.
        """
        return int(instances.max()) <= self._newest

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Take in the arrays of a `protocol.Structure`; they are copied."""
        n_examples = arrays["n_examples"].astype(np.int64)
        total = int(n_examples.sum())
        if self._examples > 256 and 2 * self._live_examples < self._examples:
            self._compact()
        positions = self._table.add(arrays["instances"].astype(np.int64))
        self._newest = max(self._newest, int(arrays["instances"].max(initial=-1)))
        self._table.columns["first"][positions] = (
            self._examples + np.cumsum(n_examples) - n_examples
        )
        self._table.columns["examples"][positions] = n_examples
        for name in self.fields:
            counts = arrays[f"#{name}"].astype(np.int64)
            start = self._values[name].append(arrays[name])
            self._starts[name].append(start + np.cumsum(counts) - counts)
            self._counts[name].append(counts)
        self._examples += total
        self._live_examples += total

    def remove(self, instances: Array) -> None:
        """Free the structure of instances that have retired."""
        positions, found = self._table.find(instances.astype(np.int64))
        self._live_examples -= int(self._table.columns["examples"][positions[found]].sum())
        self._table.remove(instances.astype(np.int64))

    def take(self, name: str, columns: Columns, index: Array | int = 0) -> Array:
        """Return element `index` of field `name` for each row's example.

        Args:
            columns: the rows' states.
            index: element number within the example, [rows] or one for all.
        Returns:
            [rows, *shape], new memory.
        Raises:
            MissingStructureError: no such field, instance, example or element.
        """
        row = self._rows(name, columns)
        n_elements = self._counts[name].values[row]
        bad = n_elements <= index
        if not isinstance(index, int) or index < 0:
            bad |= index < 0
        if bad.any():
            at = int(np.flatnonzero(np.broadcast_to(bad, row.shape))[0])
            raise MissingStructureError(
                f"element {int(np.broadcast_to(index, row.shape)[at])} of structure field "
                f"{name!r}, which has {int(n_elements[at])} in this example",
                where=columns.words(at),
            )
        values: Array = self._values[name].values[self._starts[name].values[row] + index]
        return values

    def count(self, name: str, columns: Columns) -> Int64:
        """Return how many elements field `name` has for each row's example, [rows]."""
        counts: Int64 = self._counts[name].values[self._rows(name, columns)]
        return counts

    def _rows(self, name: str, columns: Columns) -> Int64:
        if name not in self.fields:
            raise MissingStructureError(
                f"structure field {name!r} is not among those declared {sorted(self.fields)}",
                fix=f"declare it: @needs({name!r})",
            )
        positions, found = self._table.find(columns.instance)
        if not found.all():
            at = int(np.flatnonzero(~found)[0])
            raise MissingStructureError("no structure here", where=columns.words(at))
        example = columns.example
        if (bad := self._table.columns["examples"][positions] <= example).any():
            at = int(np.flatnonzero(bad)[0])
            raise MissingStructureError("no such example", where=columns.words(at))
        row: Int64 = self._table.columns["first"][positions] + example
        return row

    def _compact(self) -> None:
        """Move the live instances' rows together, oldest first."""
        positions, _ = self._table.find(np.sort(self._table.instances()))
        first = self._table.columns["first"]
        n_examples = self._table.columns["examples"][positions]
        rows = ranges(first[positions], n_examples)
        for name in self.fields:
            starts, counts = self._starts[name], self._counts[name]
            self._values[name].keep(ranges(starts.values[rows], counts.values[rows]))
            counts.keep(rows)
            kept = counts.values[: counts.used]
            starts.values[: counts.used] = np.cumsum(kept) - kept
            starts.used = counts.used
        first[positions] = np.cumsum(n_examples) - n_examples
        self._examples = self._live_examples
