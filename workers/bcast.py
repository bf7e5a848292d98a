"""Copies rows to every output; their gradients are summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from amp_runtime.limits import MinLen
from amp_runtime.nodes.fan_out import FanOut
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from amp_runtime.rows.spec import PortSpec


class Bcast(FanOut):
    """Input `x`, outputs as named by `outputs`. The builder inserts one wherever an output
    is drawn more than once."""

    kind = "bcast"
    one_per_port = True

    @dataclass(frozen=True, slots=True)
    class Options:
        outputs: Annotated[tuple[str, ...], MinLen(2), "names of the output ports"]

    @classmethod
    def output_ports(cls, options: Any) -> tuple[str, ...]:
        return tuple(options.outputs)

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return dict.fromkeys(options.outputs, inputs["x"])

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        outputs = self.options.outputs
        parents = self.open_parents(rows, len(outputs))
        return [
            Emission(
                out, Rows(self.open_children(out, parents, rows.state), rows.payload, rows.width)
            )
            for out in outputs
        ]
