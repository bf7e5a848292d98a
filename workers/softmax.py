"""y = exp(x) / sum(exp(x)), over the features of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.nodes.one_to_one import OneToOne
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import PortSpec


class Softmax(OneToOne):
    """Input `x`, output `y`: every array of the payload, floats [rows, ..., n], over its last
    axis. Before a `softmax_cross_entropy` it is one too many: that takes logits."""

    kind = "softmax"

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if any(a.dtype != dtype or not a.shape for a in spec.arrays.values()):
            raise ShapeMismatchError(
                f"port 'x' takes arrays {dtype}[rows, ..., n], but is given {spec}"
            )
        return {"y": spec}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        output = {}
        for name, x in payload.items():
            y = x - x.max(axis=-1, keepdims=True)  # so that exp cannot overflow
            np.exp(y, out=y)
            y /= y.sum(axis=-1, keepdims=True)
            output[name] = y
        return output, {f"y.{name}": y for name, y in output.items()}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        if not wants_input:
            return None
        found = {}
        for name, g in gradient.items():
            y = saved[f"y.{name}"]
            found[name] = y * (g - (g * y).sum(axis=-1, keepdims=True))
        return found
