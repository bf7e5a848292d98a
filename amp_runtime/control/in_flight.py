"""Which instances are in flight, what they owe, and whether another may be admitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amp_runtime.errors import InvariantError, VerifyError
from amp_runtime.rows.segments import counted
from amp_runtime.rows.spec import Array, Int32, Int64
from amp_runtime.rows.stash import Stash
from amp_runtime.rows.structure import InstanceTable

MAX_COLUMNS = 64
"""More state columns than MAX_KEY_BITS allow do not exist."""


@dataclass(frozen=True, slots=True)
class Retirement:
    """Instances whose last row came back: int32 [k], and examples of each, int32 [k]."""

    instances: Int32
    n_examples: Int32


class InFlight:
    """Counts injected rows back.

    At most `max_keys` instances and `max_rows` injected rows are in flight; an
    instance is always admitted when none is, and order is kept.

    Attributes:
        rows: injected and not answered.
        admitted, retired: instances so far.
    """

    def __init__(self, max_keys: int, max_rows: int, *, verify: bool = False) -> None:
        self.max_keys = max_keys
        self.max_rows = max_rows
        self.rows = self.admitted = self.retired = 0
        self._verify = verify
        self._slots = Stash("controller")
        self._table = InstanceTable(["owed", "examples"])

    @property
    def instances(self) -> int:
        return self._table.live

    def admissible(self, n_rows: Int64, max_keys: int | None = None) -> int:
        """Return how many of the next instances, with `n_rows` [k] each, may be admitted."""
        keys = self.max_keys if max_keys is None else min(max_keys, self.max_keys)
        free_keys = max(keys - self.instances, 0)
        fits = self.rows + np.cumsum(n_rows[:free_keys]) <= self.max_rows
        count = int(fits.sum())  # cumulative rows only grow: a prefix fits
        return max(count, 1) if not self.instances and free_keys and len(n_rows) else count

    def admit(self, instances: Int32, n_rows: Int64, n_examples: Int32) -> None:
        positions = self._table.add(instances.astype(np.int64))
        self._table.columns["owed"][positions] = n_rows
        self._table.columns["examples"][positions] = n_examples
        self.rows += int(n_rows.sum())
        self.admitted += len(instances)

    def stamp(self, state: Int32) -> Int32:
        """Return slots for rows with `state` [rows, n], one answer due to each."""
        positions = self._slots.allocate(len(state))
        self._slots.put(positions, {"instance": state[:, 0]})
        if self._verify:
            emitted = np.full((len(state), MAX_COLUMNS), -1, np.int32)
            emitted[:, : state.shape[1]] = state
            self._slots.put(positions, {"emitted": emitted})
        return self._slots.slots(positions)

    def answer(self, columns: Int32) -> Retirement:
        """Take answers to injected rows; return the instances that are done with them.

        Args:
            columns: int32 [rows, 1 (+ n)]: slots, and under `verify` the states.
        Raises:
            UnmatchedBackwardError: a slot was not injected, or is answered already.
            VerifyError: an answer brings back another state than was injected.
        """
        slots = columns[:, 0]
        positions = self._slots.answer(slots)
        if self._verify:
            emitted = self._slots.take("emitted", positions)[:, : columns.shape[1] - 1]
            if columns.shape[1] == 1 or (emitted != columns[:, 1:]).any():
                raise VerifyError(
                    "an answer brings back another state than was injected", where="controller"
                )
        instances, counts = counted(self._slots.take("instance", positions))
        self._slots.free(positions)
        self.rows -= len(slots)
        at, _ = self._table.find(instances)
        owed: Array = self._table.columns["owed"]
        owed[at] -= counts
        done = owed[at] == 0
        retired = instances[done]
        n_examples = self._table.columns["examples"][at[done]].astype(np.int32)
        self._table.remove(retired.astype(np.int64))
        self.retired += len(retired)
        return Retirement(retired, n_examples)

    def span_left(self, next_instance: int, max_age: int) -> int:
        """Return how many instances from `next_instance` on are younger than `max_age`.

        Age is counted in instances from the oldest in flight, or from the next where
        none is.
        """
        live = self._table.instances()
        oldest = int(live.min()) if len(live) else next_instance
        return max(max_age - (next_instance - oldest), 0)

    def numbers(self) -> frozenset[int]:
        """Return the numbers of all instances in flight."""
        return frozenset(self._table.instances().tolist())

    def oldest(self) -> list[int]:
        """Return the numbers of up to five instances in flight, oldest first."""
        return [int(i) for i in np.sort(self._table.instances())[:5]]

    def assert_drained(self) -> None:
        """Assert that nothing is in flight.

        Raises:
            InvariantError: an instance or an injected row is still out.
        """
        if self.instances or self.rows or self._slots.used:
            raise InvariantError(
                f"controller: {self.instances} instances and {self.rows} rows are in flight"
            )
