"""What one replica of a node shares with the others, and how it goes on from what comes back.

    averaged   asynchronous: its parameters, and where they are averaged what its optimiser keeps
    summed     synchronous: its gradient, before each step

Imported by workers that host replicas alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.nodes.updates import Schedule
from amp_runtime.optim.row_gradients import RowSums
from amp_runtime.optim.snapshot import Snapshot
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array


class AveragedReplica:
    """Shares its parameters every so many updates, and goes on training meanwhile.

    With s what it shared and x what it is when y comes back: x <- y + (x - s), to the bit y
    where it has not changed. That y replaces what was shared, and keeps what came after.

    Attributes:
        moves: how often it went on from what came back; versions that are no updates.

    Args:
        every: updates after which it shares unasked; inf: never.
        optimizer_state: averaged, kept or reset, as in `optim.averaging`.
    """

    def __init__(self, node: Parameterised, every: float, optimizer_state: str) -> None:
        self.node = node
        self.moves = 0
        self._every = every
        self._optimizer_state = optimizer_state
        self._pending = False
        self._shared: dict[str, Array] = {}
        self._shared_version = 0
        self._shared_steps = 0
        self._shared_updates = 0
        self._answered_updates = 0
        self._own: dict[str, Array] = {}

    @property
    def updates(self) -> int:
        return self.node.version - self.moves

    @property
    def due(self) -> bool:
        """Whether it is to share now, unasked."""
        return not self._pending and self.updates - self._shared_updates >= self._every

    @property
    def pending(self) -> bool:
        """Whether it has shared, and nothing has come back."""
        return self._pending

    def share(self, *, at_barrier: bool) -> Snapshot:
        """Return a snapshot; one that is on its way no longer counts at a barrier."""
        node, optimizer = self.node, self.node.optimizer
        self._pending = not at_barrier
        self._shared = {name: array.copy() for name, array in node.parameters.items()}
        # What it shared and got no answer to, as an epoch's end came between, is news still.
        count = self.updates - self._answered_updates
        self._shared_updates = self.updates
        self._shared_version, self._shared_steps = node.version, optimizer.steps
        beside = {}
        if self._optimizer_state == "averaged":
            beside = {name: array.copy() for name, array in optimizer.save().arrays.items()}
        return Snapshot(self._shared, beside, count, optimizer.steps)

    def go_on(self, held: Snapshot) -> None:
        """Put `held` in the place of what was shared."""
        node, optimizer = self.node, self.node.optimizer
        node.before_overwriting()  # rows in flight may need these weights
        unchanged = node.version == self._shared_version
        self._answered_updates = self._shared_updates
        for name, own in node.parameters.items():
            if unchanged:
                own[...] = held.arrays[name]
            else:
                own += held.arrays[name] - self._shared[name]
        node.overwritten()
        node.version += 1
        self.moves += 1
        self._pending, self._shared = False, {}
        match self._optimizer_state:
            case "averaged":
                # What few updates since have added to it is let go: a mean square plus a
                # difference might be negative.
                for name, kept in optimizer.save().arrays.items():
                    kept[...] = held.beside[name]
                optimizer.steps += held.steps - self._shared_steps
            case "reset":
                optimizer.reset()

    def save(self) -> Saved:
        """Return what it goes on from; what it shared and got no answer to is news again."""
        self._pending, self._shared = False, {}
        return Saved(
            {
                "moves": self.moves,
                "shared_updates": self._shared_updates,
                "answered_updates": self._answered_updates,
            }
        )

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` returned; the node has been restored before."""
        numbers = saved.numbers
        self.moves, self._shared_updates = numbers["moves"], numbers["shared_updates"]
        self._answered_updates = numbers["answered_updates"]

    def evaluate_with(self, arrays: Mapping[str, Array]) -> None:
        """Stand in for the centre, until `resume`."""
        for name, own in self.node.parameters.items():
            self._own[name] = own.copy()
            own[...] = arrays[name]
        self.node.overwritten()

    def resume(self) -> None:
        """Take up its own parameters again, if it gave them up."""
        for name, own in self._own.items():
            self.node.parameters[name][...] = own
        self._own.clear()
        self.node.overwritten()


class SummedReplica:
    """Shares its gradient before a step, and steps with that of all."""

    moves = 0
    due = False
    pending = False

    def __init__(self, node: Parameterised) -> None:
        self.node = node

    def share(self, *, at_barrier: bool) -> Snapshot:
        arrays, beside = {}, {}
        for name, gradient in self.node.gradients.items():
            if isinstance(gradient, RowSums):
                taken = gradient.take()
                arrays[name] = taken.values
                beside[f"rows@{name}"] = taken.rows.astype(np.int32)
            else:
                arrays[name] = gradient.copy()
        return Snapshot(arrays, beside, self.node.updates.rows)

    def go_on(self, held: Snapshot) -> None:
        """Put the gradient of all in the place of its own."""
        for name, gradient in self.node.gradients.items():
            if isinstance(gradient, RowSums):
                gradient.add(held.beside[f"rows@{name}"], held.arrays[name])
            else:
                gradient[...] = held.arrays[name]
        self.node.updates.rows = held.count

    def evaluate_with(self, arrays: Mapping[str, Array]) -> None:
        raise AssertionError("replicas that step together are evaluated as they are")

    def resume(self) -> None:
        """Nothing was given up."""

    def save(self) -> Saved:
        """Return nothing: all that it goes on from is the node's."""
        return Saved()

    def restore(self, saved: Saved) -> None:
        """Nothing was saved."""


Replica = AveragedReplica | SummedReplica


def make_replica(node: Parameterised, training: Mapping[str, Any], schedule: Schedule) -> Replica:
    """Return what stands beside a node with these training options, one replica of several."""
    if schedule is Schedule.SYNCHRONOUS:
        return SummedReplica(node)
    every = training["average_every"]
    # Of a scheme without the option, each replica's optimiser keeps what it has.
    optimizer_state = training["averaging"].get("optimizer_state", "kept")
    return AveragedReplica(node, math.inf if every == "epoch" else every, optimizer_state)
