"""y = max(x, 0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_runtime.nodes.one_to_one import OneToOne
from amp_runtime.nodes.schema_checks import only_floats
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import PortSpec


class Relu(OneToOne):
    """Input `x`, output `y`: every array of the payload, of any shape, in floats."""

    kind = "relu"

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": only_floats(inputs["x"], dtype)}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        output = {name: x.clip(min=0) for name, x in payload.items()}
        return output, {f"positive.{name}": x > 0 for name, x in payload.items()}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        if not wants_input:
            return None
        return {name: g * saved[f"positive.{name}"] for name, g in gradient.items()}
