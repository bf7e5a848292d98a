"""Changes the state; the payload passes.

The paper's invertible state update; no inverse is needed here, because answers go
straight back to the node that stamped the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.nodes.state_change import StateChange
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from amp_runtime.rows.spec import PortSpec


class Isu(Node):
    """Input `x`, output `y`: the state as `update` returns it; the payload unchanged."""

    kind = "isu"
    transparent = True
    changes_state = True

    @dataclass(frozen=True, slots=True)
    class Options:
        update: Annotated[
            str,
            "package.module:function of (columns, structure) that returns the columns it "
            "changes: {name: int array [rows]}; neither `instance` nor `example`",
        ]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": inputs["x"]}

    @classmethod
    def state_functions(cls, options: Any) -> Sequence[str]:
        return (options.update,)

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        schema = context.inputs["x"].schema
        self._update = StateChange(self, self.options.update, schema, schema)

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        columns = rows.columns.copy()
        changed = Rows(columns, rows.payload, rows.width)
        changed.state[...] = self._update(self.columns(rows, port))
        return (Emission("y", changed),)
