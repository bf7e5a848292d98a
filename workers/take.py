"""Picks arrays of a payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from amp_runtime.errors import ShapeMismatchError, nearest
from amp_runtime.limits import MinLen
from amp_runtime.nodes.node import Node
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from amp_runtime.rows.spec import PortSpec


class Take(Node):
    """Input `x`, output `y`: the arrays that `arrays` names; the others get no gradient.

    An array keeps its name: its gradient goes straight to the node that stamped the row, and
    comes there under the name by which it left. Kinds that take one array take any name.
    """

    kind = "take"
    transparent = True

    @dataclass(frozen=True, slots=True)
    class Options:
        arrays: Annotated[tuple[str, ...], MinLen(1), "names of the arrays that pass"]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        for name in options.arrays:
            if name not in spec.arrays:
                raise ShapeMismatchError(
                    f"no array {name!r} in what port 'x' is given{nearest(name, spec.arrays)}",
                    fix=f"its arrays are {', '.join(spec.arrays)}",
                )
        return {"y": PortSpec({name: spec.arrays[name] for name in options.arrays}, spec.schema)}

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        taken = {name: rows.payload[name] for name in self.options.arrays}
        return (Emission("y", Rows(rows.columns, taken, rows.width)),)
