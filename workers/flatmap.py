"""Copies a row to each of its children; their gradients are summed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.spreading import Spread, Spreading
from amp_runtime.nodes.state_change import leaving_schema
from amp_runtime.rows.message import Payload, Rows
from amp_runtime.rows.spec import PortSpec


class Flatmap(Spreading):
    """Input `x`, output `y`: for each row `count` rows, with the payload of the row.

    For each edge of a node, say. A row without children is answered at once, with null.
    """

    kind = "flatmap"

    @dataclass(frozen=True, slots=True)
    class Options:
        count: Annotated[
            int | str,
            "package.module:function of (columns, structure) that returns, for each row, how "
            "many children it has; or a fixed number",
        ]
        state: Annotated[
            str,
            "package.module:function of (columns, structure) that returns the state columns that "
            "it changes, for each child; `@position` is its number among those of its row",
        ]
        columns: Annotated[
            Mapping[str, int] | None,
            "{state column: bits} of what leaves, beside instance and example; none: as it came",
        ] = None

        def __post_init__(self) -> None:
            if isinstance(self.count, int) and self.count < 1:
                raise ValueError(f"count: {self.count} children, less than 1")

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        return {"y": PortSpec(spec.arrays, leaving_schema(spec.schema, options.columns))}

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context, context.options.count)

    def payload(self, rows: Rows, spread: Spread) -> Payload:
        return {name: array[spread.parent] for name, array in rows.payload.items()}
