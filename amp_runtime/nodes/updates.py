"""When a parameterised node takes a local update, and what the gradient is divided by.

The objective is the mean loss per example, and losses sum over their rows. A step
therefore divides the gradient sum by the examples that its rows stand for:

    auto       rows / (rows per example at this node), measured over retired instances
    integer    rows: the paper's plain count and mean over rows
    synchronous  the examples of the step, told by the controller
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

import numpy as np

from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array, Int32
from amp_runtime.rows.structure import InstanceCounter

_ROUNDING = 1e-6
"""Rows by which a count may fall short of a threshold that is no whole number."""


class Schedule(enum.StrEnum):
    ASYNCHRONOUS = "asynchronous"
    SYNCHRONOUS = "synchronous"


@dataclass(frozen=True, slots=True)
class UpdatePolicy:
    """The options of a node that decide when it updates.

    Attributes:
        update_every: examples per update.
        min_update_frequency: `auto`, or a number of gradient rows.
        replica, replicas: which instances are this node's own: those whose rows come to it.
        nan_limit: updates that are not applied, as in `finite.NotApplied`.
    """

    schedule: Schedule = Schedule.ASYNCHRONOUS
    update_every: int = 100
    min_update_frequency: int | Literal["auto"] = "auto"
    replica: int = 0
    replicas: int = 1
    nan_limit: int = 10


class LocalUpdates:
    """Counts the gradient rows of one node; says when a step is due and its divisor.

    Attributes:
        rows: gradient rows in the accumulator.
        instances: theirs, a piece a batch.
    """

    def __init__(self, policy: UpdatePolicy) -> None:
        self.policy = policy
        self.rows = 0
        self.instances: list[Int32] = []
        self._count = 0.0
        self._unretired = InstanceCounter()
        self._retired_rows = 0
        self._retired_examples = 0
        self._own_examples = 0
        self._stepped_examples = 0
        self._step_examples = 0

    @property
    def examples(self) -> int:
        """Examples that retired in training, anybody's, before the step that comes next."""
        synchronous = self.policy.schedule is Schedule.SYNCHRONOUS
        return self._stepped_examples if synchronous else self._retired_examples

    @property
    def rows_per_example(self) -> float:
        """Rows that an example of its own brings to this node, over all retired; 0 if unknown."""
        return self._retired_rows / self._own_examples if self._own_examples else 0.0

    @property
    def examples_per_update(self) -> float:
        """Examples, anybody's, that retire from one update to the next; 0 if unknown."""
        if self.policy.schedule is Schedule.SYNCHRONOUS:
            return float(self._step_examples)
        frequency = self.policy.min_update_frequency
        if frequency == "auto":
            own = float(self.policy.update_every)
        else:
            own = frequency / self.rows_per_example if self.rows_per_example else 0.0
        return own * self.policy.replicas

    def add(self, instances: Int32) -> None:
        """Count gradient rows, one for each entry of `instances` [rows]."""
        self.rows += len(instances)
        self._count += len(instances)
        self.instances.append(instances)
        self._unretired.add(instances)

    def add_unused(self, instances: Int32) -> None:
        """Count rows whose gradient is not used: examples bring them, but no update is nearer."""
        self._unretired.add(instances)

    def on_retired(self, instances: Array, n_examples: Array) -> None:
        """Learn from instances that retired; those with 0 examples were not trained on."""
        self._retired_examples += int(np.sum(n_examples))
        if (n := self.policy.replicas) > 1:
            own = instances % n == self.policy.replica
            instances, n_examples = instances[own], n_examples[own]
        self._retired_rows += int(self._unretired.pop(instances).sum())
        self._own_examples += int(np.sum(n_examples))

    def synchronous_step_done(self, n_examples: int) -> None:
        """Learn that all nodes have stepped for `n_examples`, this one perhaps without rows."""
        self._stepped_examples += n_examples
        self._step_examples = max(self._step_examples, n_examples)  # an epoch's last is smaller

    def due(self) -> float | None:
        """Return the divisor of a step that is due now, or None."""
        policy = self.policy
        if policy.schedule is Schedule.SYNCHRONOUS or not self.rows:
            return None
        if policy.min_update_frequency != "auto":
            return float(self.rows) if self._count >= policy.min_update_frequency else None
        rate = self.rows_per_example
        if not rate or self._own_examples < policy.update_every:
            return None
        return self.rows / rate if self._count >= policy.update_every * rate - _ROUNDING else None

    def left_over(self) -> float | None:
        """Return the divisor for gradients short of a full step, a full step's, or None."""
        policy = self.policy
        if policy.schedule is Schedule.SYNCHRONOUS or not self.rows:
            return None
        if policy.min_update_frequency != "auto":
            return float(max(self.rows, policy.min_update_frequency))
        rate = self.rows_per_example
        return max(policy.update_every, self.rows / rate) if rate else float(policy.update_every)

    def stepped(self, *, left_over: bool = False) -> None:
        """Start counting anew; rows beyond the threshold count towards the next step."""
        policy = self.policy
        if policy.min_update_frequency != "auto":
            threshold = float(policy.min_update_frequency)
        else:
            threshold = policy.update_every * self.rows_per_example
        # Whole thresholds beyond the first are not owed: they would be paid with steps on
        # a handful of rows, while the gradient of all rows went into this one.
        surplus = self._count % threshold if threshold > 0 and not left_over else 0.0
        # A count that is short of the threshold by rounding alone has met it: see `due`.
        surplus = 0.0 if threshold - surplus <= _ROUNDING else surplus
        self._count = min(surplus, float(self.rows))
        self.rows = 0
        self.instances.clear()

    def save(self) -> Saved:
        """Return what it goes on from; no instance is in flight, so none is counted apart."""
        return Saved({name: getattr(self, f"_{name}") for name in _COUNTED} | {"rows": self.rows})

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` returned."""
        self.rows = saved.numbers["rows"]
        for name in _COUNTED:
            setattr(self, f"_{name}", saved.numbers[name])


_COUNTED = (
    "count",
    "retired_rows",
    "retired_examples",
    "own_examples",
    "stepped_examples",
    "step_examples",
)
