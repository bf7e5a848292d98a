"""Changes the state; the payload passes.

The paper's invertible state update; no inverse is needed here, because answers go
straight back to the node that stamped the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import UserFunctionError, nearest
from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.rows.message import ADDRESS_COLUMNS, Answer, Emission, Mode, Rows
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
        self._update = self.state_function(self.options.update)
        self._schema = context.inputs["x"].schema
        self._changeable = [n for n in self._schema.names if n not in ("instance", "example")]

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        changed = self.call(self._update, rows, port)
        if not isinstance(changed, Mapping):
            raise self._wrong(f"returned {type(changed).__name__}, not a dict of columns")
        columns = rows.columns.copy()
        for name, values in changed.items():
            if name not in self._changeable:
                raise self._wrong(
                    f"changes {name!r}, which is no column it may change"
                    f"{nearest(name, self._changeable)}"
                )
            values = np.asarray(values)
            if values.dtype.kind not in "iu" or values.shape not in ((), (len(rows),)):
                raise self._wrong(
                    f"returned {values.dtype}{list(values.shape)} for {name!r}, "
                    f"not int[{len(rows)}]"
                )
            at = ADDRESS_COLUMNS + self._schema.index[name]
            columns[:, at] = values
            if (wrapped := columns[:, at] != values).any():
                worst = np.broadcast_to(values, len(rows))[wrapped][0]
                raise self._wrong(f"returned {worst} for {name!r}, outside int32")
        changed_rows = Rows(columns, rows.payload, rows.width)
        self._schema.pack(changed_rows.state)  # refuses values outside their declared bits
        return (Emission("y", changed_rows),)

    def _wrong(self, what: str) -> UserFunctionError:
        where = f"node {self.name!r} (kind isu)"
        return UserFunctionError(f"{self.options.update} {what}", where=where)
