"""Joins the rows of several ports with equal states; features side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.limits import MinLen
from amp_runtime.nodes.joining import Joining
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.nodes.schema_checks import one_schema
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import ArraySpec, Int64, PortSpec


class Concat(Joining):
    """Inputs as named by `inputs`, each {one array: [rows, n_i]}; output `y` {x: [rows, n]}."""

    kind = "concat"

    @dataclass(frozen=True, slots=True)
    class Options:
        inputs: Annotated[tuple[str, ...], MinLen(2), "names of the input ports, in order"]

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
        arrays = [next(iter(spec.arrays.items())) for spec in context.inputs.values()]
        self._names = [name for name, _ in arrays]
        widths = [array.shape[0] for _, array in arrays]
        self._cuts = list(pairwise(np.cumsum([0, *widths]).tolist()))

    def keep(self, number: int, positions: Int64, payload: Payload) -> None:
        start, _ = self._cuts[number]
        self.stash.column("x", (self._cuts[-1][1],), np.dtype(self.context.dtype))
        self.stash.put_part("x", positions, start, single(payload))

    def combine(self, positions: Int64) -> Payload:
        return {"x": self.stash.take("x", positions)}

    def divide(self, positions: Int64, gradient: Payload) -> Sequence[Payload]:
        return [
            {name: gradient["x"][:, start:end]}
            for name, (start, end) in zip(self._names, self._cuts, strict=True)
        ]
