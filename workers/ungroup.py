"""Cuts the first axis of each row into rows; their gradients are put side by side again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError, UserFunctionError
from amp_runtime.nodes.fan_out import Children
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.spreading import Spread, Spreading
from amp_runtime.nodes.state_change import leaving_schema
from amp_runtime.rows.message import Payload, Rows
from amp_runtime.rows.spec import Array, ArraySpec, Int64, PortSpec


class Ungroup(Spreading):
    """Input `x` {arrays: [rows, size, *features]}, output `y` {the same: [rows, *features]}.

    The inverse of a group that stacks. Where `count` is less than `size`, the first rows
    leave, and the gradient of the others is zero; where it is 0, the row is answered at
    once, with null.
    """

    kind = "ungroup"

    @dataclass(frozen=True, slots=True)
    class Options:
        state: Annotated[
            str,
            "package.module:function of (columns, structure) that returns the state columns that "
            "it changes, for each row that leaves; `@position` is its place on the axis",
        ]
        count: Annotated[
            str | None,
            "package.module:function of (columns, structure) that returns, for each row, how many "
            "rows leave; none: all",
        ] = None
        columns: Annotated[
            Mapping[str, int] | None,
            "{state column: bits} of what leaves, beside instance and example; none: as it came",
        ] = None

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if len({a.shape[:1] for a in spec.arrays.values()} | {()}) != 2:
            raise ShapeMismatchError(
                f"port 'x' takes arrays [rows, size, ...] of one size, but is given {spec}"
            )
        arrays = {name: ArraySpec(a.shape[1:], a.dtype) for name, a in spec.arrays.items()}
        return {"y": PortSpec(arrays, leaving_schema(spec.schema, options.columns))}

    def __init__(self, context: NodeContext) -> None:
        self._size = next(iter(context.inputs["x"].arrays.values())).shape[0]
        count = context.options.count
        super().__init__(context, self._size if count is None else count)

    def counted(self, counts: Int64, rows: Rows) -> Int64:
        if (more := counts > self._size).any():
            at = int(np.flatnonzero(more)[0])
            raise UserFunctionError(
                f"{self.options.count} returned {int(counts[at])}, more than the {self._size} "
                "rows that came",
                where=f"node {self.name!r} (kind ungroup), {self.columns(rows, 'x').words(at)}",
            )
        return counts

    def opened(self, positions: Int64, spread: Spread) -> None:
        self.stash.put(positions, {"number": spread.number})

    def payload(self, rows: Rows, spread: Spread) -> Payload:
        return {name: x[spread.parent, spread.number] for name, x in rows.payload.items()}

    def collect(self, sums: Array, children: Children, gradient: Array) -> None:
        sums[children.parents, self.stash.take("number", children.positions)] = gradient
