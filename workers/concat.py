"""Joins the rows of several ports with equal states; features side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.nodes.node import Node, NodeContext, single
from amp_runtime.nodes.schema_checks import one_schema
from amp_runtime.rows.join import Join
from amp_runtime.rows.message import Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.spec import ArraySpec, Int32, Int64, PortSpec


class Concat(Node):
    """Inputs as named by `inputs`, each {one array: [rows, n_i]}; output `y` {x: [rows, sum n_i]}.

    A row leaves when a row of its state has come on every port; the rows of a batch
    leave together, in the order in which the last port brought them.
    """

    kind = "concat"

    @dataclass(frozen=True, slots=True)
    class Options:
        inputs: Annotated[tuple[str, ...], MinLen(2), "names of the input ports, in order"]

    @classmethod
    def input_ports(cls, options: Any) -> tuple[str, ...]:
        return tuple(options.inputs)

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        for port, spec in inputs.items():
            if [(len(a.shape), a.dtype) for a in spec.arrays.values()] != [(1, dtype)]:
                raise ShapeMismatchError(
                    f"port {port!r} takes one array {dtype}[rows, n], but is given {spec}"
                )
        schema = one_schema(inputs)
        width = sum(a.shape[0] for spec in inputs.values() for a in spec.arrays.values())
        return {"y": PortSpec({"x": ArraySpec((width,), dtype)}, schema)}

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._ports = tuple(context.inputs)
        self._join = Join(self._ports, self.stash)
        self._schema = context.outputs["y"].schema
        self._names = [next(iter(context.inputs[port].arrays)) for port in self._ports]
        widths = [next(iter(context.inputs[p].arrays.values())).shape[0] for p in self._ports]
        self._cuts = list(pairwise(np.cumsum([0, *widths]).tolist()))
        self._answered: list[Int64] = []

    @property
    def waiting(self) -> int:
        return self._join.waiting

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        number = self._ports.index(port)
        arrival = self._join.arrive(number, self._schema.pack(rows.state))
        positions, complete = arrival.positions, arrival.complete
        start, end = self._cuts[number]
        joined = self.stash.column("x", (self._cuts[-1][1],), np.dtype(self.context.dtype))
        joined[positions, start:end] = single(rows.payload)
        self.stash.put(positions, {f"return_to.{number}": rows.return_to})
        done = positions[complete]
        if not len(done):
            return ()
        columns = self.stamp("y", done, rows.state[complete])
        return (Emission("y", Rows(columns, {"x": joined[done]}, rows.width)),)

    def backward(self, port: str, slots: Int32, gradient: Payload | None) -> Sequence[Answer]:
        positions = self.stash.answer(slots)
        self._answered.append(positions)
        answers = []
        for number, (name, (start, end)) in enumerate(zip(self._names, self._cuts, strict=True)):
            part: Payload | None = None
            if gradient is not None and self._ports[number] in self.context.wants_gradient:
                part = {name: gradient["x"][:, start:end]}
            answers.append(Answer(self.stash.take(f"return_to.{number}", positions), part))
        return answers

    def accumulate(self) -> None:
        for positions in self._answered:
            self.stash.free(positions)
        self._answered.clear()
