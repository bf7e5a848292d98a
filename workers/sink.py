"""Where rows end that nobody needs: answers null at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amp_runtime.nodes.node import Node
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from amp_runtime.rows.spec import PortSpec


class Sink(Node):
    """Input `x`, no output."""

    kind = "sink"
    outputs = ()
    is_end = True

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        return 0.5

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        return (Answer(rows.return_to, None),)
