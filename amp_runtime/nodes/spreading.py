"""Fan-out nodes with one output, that emit as many rows for each as its state tells."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_runtime.nodes.fan_out import FanOut
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.state_change import StateChange, WholeNumbers, with_positions
from amp_runtime.rows.message import Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.segments import ranges
from amp_runtime.rows.spec import Int64


@dataclass(frozen=True, slots=True)
class Spread:
    """The children of some rows.

    Attributes:
        parent: int64 [children], the row that each is a child of.
        number: int64 [children], 0, 1, ... among those of its parent.
    """

    parent: Int64
    number: Int64


class Spreading(FanOut):
    """Input `x`, output `y`: the option `state` tells the state of each child.

    A row without children is answered at once, with null. A kind writes, for all rows:

        payload(rows, spread) -> the payload of the children
        counted(numbers, rows) -> int64 [rows], how many children each row has
    """

    changes_state = True

    @classmethod
    def state_functions(cls, options: Any) -> Sequence[str]:
        return [f for f in (options.state, options.count) if isinstance(f, str)]

    def __init__(self, context: NodeContext, count: int | str) -> None:
        super().__init__(context)
        self._before = context.inputs["x"].schema
        after = context.outputs["y"].schema
        self._count = WholeNumbers(self, count)
        self._state = StateChange(self, self.options.state, self._before, after)

    @abstractmethod
    def payload(self, rows: Rows, spread: Spread) -> Payload:
        """Return the payload of the children, new memory."""

    def counted(self, counts: Int64, rows: Rows) -> Int64:
        """Return the numbers of children [rows], after checking them."""
        return counts

    def opened(self, positions: Int64, spread: Spread) -> None:
        """Stash what the gradient of the children at `positions` needs."""

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        counts = self.counted(self._count(self.columns(rows, port)), rows)
        childless = counts == 0
        results: list[Emission | Answer] = []
        if childless.any():
            results.append(Answer(rows.return_to[childless], None))
            rows, counts = rows.take(~childless), counts[~childless]
        if not len(rows):
            return results
        spread = Spread(
            np.repeat(np.arange(len(rows)), counts), ranges(np.zeros(len(rows)), counts)
        )
        state = self._state(with_positions(rows.state[spread.parent], self._before, spread.number))
        parents = self.open_parents(rows, counts)
        columns = self.open_children("y", parents[spread.parent], state)
        self.opened(self.stash.peek(columns[:, 1]), spread)
        children = Rows(columns, self.payload(rows, spread), state.shape[1])
        return [*results, Emission("y", children)]
