"""Base of the kinds that put one function over every element of a payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from amp_runtime.nodes.one_to_one import OneToOne
from amp_runtime.nodes.schema_checks import only_floats
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import PortSpec
from workers.activations import Activation


class Elementwise(OneToOne):
    """Input `x`, output `y`: every array of the payload, of any shape, in floats.

    The gradient is taken from the output, which is kept.

    Class attributes:
        activation: the function.
    """

    activation: ClassVar[Activation]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": only_floats(inputs["x"], dtype)}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        output = {name: x.copy() for name, x in payload.items()}
        for y in output.values():
            self.activation.apply(y)
        return output, {f"y.{name}": y for name, y in output.items()}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        if not wants_input:
            return None
        chain = self.activation.chain
        return {name: chain(g, saved[f"y.{name}"]) for name, g in gradient.items()}
