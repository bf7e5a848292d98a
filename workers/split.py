"""Cuts the features of each row; their gradients are put side by side again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.nodes.fan_out import Children, FanOut
from amp_runtime.nodes.node import NodeContext
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from amp_runtime.rows.spec import Array, ArraySpec, PortSpec


class Split(FanOut):
    """Input `x` {one array: [rows, n]}, outputs as named by `outputs`, each as many features
    as it says; together they are n. The inverse of concat."""

    kind = "split"
    one_per_port = True

    @dataclass(frozen=True, slots=True)
    class Options:
        outputs: Annotated[
            Mapping[str, int], "{output port: its features}, 2 or more, in the order of the cuts"
        ]

        def __post_init__(self) -> None:
            if len(self.outputs) < 2:
                raise ValueError(f"outputs: {dict(self.outputs)} cuts nothing; name 2 or more")
            for port, size in self.outputs.items():
                if size < 1:
                    raise ValueError(f"outputs: {port!r} takes {size} features, less than 1")

    @classmethod
    def output_ports(cls, options: Any) -> tuple[str, ...]:
        return tuple(options.outputs)

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec, width = inputs["x"], sum(options.outputs.values())
        if [(a.shape, a.dtype) for a in spec.arrays.values()] != [((width,), dtype)]:
            raise ShapeMismatchError(
                f"port 'x' takes one array {dtype}[rows, {width}], as many features as its "
                f"outputs {dict(options.outputs)} together, but is given {spec}"
            )
        (name,) = spec.arrays
        return {
            port: PortSpec({name: ArraySpec((size,), dtype)}, spec.schema)
            for port, size in options.outputs.items()
        }

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        ends = np.cumsum([0, *context.options.outputs.values()]).tolist()
        self._cuts = dict(zip(context.options.outputs, pairwise(ends), strict=True))

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        parents = self.open_parents(rows, len(self._cuts))
        ((name, x),) = rows.payload.items()
        return [
            Emission(
                output,
                Rows(
                    self.open_children(output, parents, rows.state),
                    {name: np.ascontiguousarray(x[:, start:end])},
                    rows.width,
                ),
            )
            for output, (start, end) in self._cuts.items()
        ]

    def collect(self, sums: Array, children: Children, gradient: Array) -> None:
        start, end = self._cuts[children.port]
        sums[children.parents, start:end] = gradient
