"""Merges edges: rows of any input leave by the one output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from amp_runtime.limits import MinLen
from amp_runtime.nodes.node import Node
from amp_runtime.nodes.schema_checks import one_spec
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from amp_runtime.rows.spec import PortSpec


class Phi(Node):
    """Inputs as named by `inputs`, output `y`; rows and return addresses pass unchanged."""

    kind = "phi"
    transparent = True
    infers_from_any = True

    @dataclass(frozen=True, slots=True)
    class Options:
        inputs: Annotated[tuple[str, ...], MinLen(2), "names of the input ports"]

    @classmethod
    def input_ports(cls, options: Any) -> tuple[str, ...]:
        return tuple(options.inputs)

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": one_spec(inputs)}

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        return (Emission("y", rows),)
