"""Nodes that wait until a row of one state has come on every input port."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.nodes.schema_checks import one_spec
from amp_runtime.rows.join import Join
from amp_runtime.rows.message import Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.spec import Int32, Int64, PortSpec


class Joining(Node):
    """Several inputs, one output `y`: a row leaves when its state has come on all ports.

    The rows of a batch leave together, in the order in which the last port brought
    them. A kind writes, for all rows at once:

        keep(number, positions, payload)   stash what came on port `number`
        combine(positions) -> payload      what leaves for complete entries
        divide(positions, gradient)        -> the gradient of each port, in order
    """

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        return 1.5  # of each port: they come and go by copies alone

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._ports = tuple(context.inputs)
        self._join = Join(self._ports, self.stash)
        self._schema = context.outputs["y"].schema
        self._answered: list[Int64] = []

    @classmethod
    def input_ports(cls, options: Any) -> tuple[str, ...]:
        return tuple(options.inputs)

    @abstractmethod
    def keep(self, number: int, positions: Int64, payload: Payload) -> None:
        """Stash the payload of port `number` at `positions` [rows]."""

    @abstractmethod
    def combine(self, positions: Int64) -> Payload:
        """Return what leaves for the complete entries at `positions`, new memory."""

    @abstractmethod
    def divide(self, positions: Int64, gradient: Payload) -> Sequence[Payload]:
        """Return dL/d(what came) for each port, in order; without arrays it is null."""

    @property
    def waiting(self) -> int:
        return self._join.waiting

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        number = self._ports.index(port)
        arrival = self._join.arrive(number, self._schema.pack(rows.state))
        self.keep(number, arrival.positions, rows.payload)
        self.stash.put(arrival.positions, {f"return_to.{number}": rows.return_to})
        done = arrival.positions[arrival.complete]
        if not len(done):
            return ()
        columns = self.stamp("y", done, rows.state[arrival.complete])
        return (Emission("y", Rows(columns, self.combine(done), rows.width)),)

    def backward(self, port: str, slots: Int32, gradient: Payload | None) -> Sequence[Answer]:
        positions = self.stash.answer(slots)
        self._answered.append(positions)
        parts: Sequence[Payload | None] = [None] * len(self._ports)
        if gradient is not None:
            divided = zip(self._ports, self.divide(positions, gradient), strict=True)
            parts = [self.wanted(port, part, "divide") for port, part in divided]
        return [
            Answer(self.stash.take(f"return_to.{number}", positions), part or None)
            for number, part in enumerate(parts)
        ]

    def accumulate(self) -> None:
        for positions in self._answered:
            self.stash.free(positions)
        self._answered.clear()


def floats_alike(inputs: Mapping[str, PortSpec], dtype: str) -> PortSpec:
    """Return the spec that all inputs share, of floating arrays only.

    Raises:
        ShapeMismatchError, SchemaMismatchError: two inputs differ, or hold whole numbers.
    """
    spec = one_spec(inputs)
    if any(array.dtype != dtype for array in spec.arrays.values()):
        raise ShapeMismatchError(f"its ports take {dtype} arrays, but are given {spec}")
    return spec
