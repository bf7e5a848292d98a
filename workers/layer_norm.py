"""y = gain * (x - mean) / sqrt(variance + eps) + bias, over the features of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.limits import Gt
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec


class LayerNorm(Parameterised):
    """Input `x` {one array: [rows, n]}, output `y` of the same form.

    Parameters: gain [n], ones, and bias [n], zeros. It keeps no running statistics, so
    training and evaluation are the same.
    Source: Ba, Kiros, Hinton, arXiv:1607.06450.
    """

    kind = "layer_norm"

    @dataclass(frozen=True, slots=True)
    class Options:
        eps: Annotated[float, Gt(0), "added to the variance"] = 1e-5

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [(len(a.shape), a.dtype) for a in spec.arrays.values()] != [(1, dtype)]:
            raise ShapeMismatchError(
                f"port 'x' takes one array {dtype}[rows, n], but is given {spec}"
            )
        return {"y": spec}

    def __init__(self, context: NodeContext) -> None:
        ((self._name, self._spec),) = context.inputs["x"].arrays.items()
        super().__init__(context)

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        return {"gain": np.ones(self._spec.shape), "bias": np.zeros(self._spec.shape)}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        x = single(payload)
        centred = x - x.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        scale = 1 / np.sqrt(variance + np.asarray(self.options.eps, x.dtype))
        centred *= scale
        y = centred * self.parameters["gain"]
        y += self.parameters["bias"]
        return {self._name: y}, {"normal": centred, "scale": scale}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        delta, normal = gradient[self._name], saved["normal"]
        self.terms.add(normal, delta)
        if not wants_input:
            return None
        # x moves the mean and the variance too: take their shares out.
        d = delta * self.parameters["gain"]
        d = d - d.mean(axis=1, keepdims=True) - normal * (d * normal).mean(axis=1, keepdims=True)
        return {self._name: d * saved["scale"]}

    def read_backward(self, wants_input: bool) -> tuple[str, ...]:
        return ("gain",) if wants_input else ()

    def add_gradients(self, into: Mapping[str, Array]) -> None:
        normal, delta = self.terms.take()
        into["gain"][...] += (delta * normal).sum(axis=0)
        into["bias"][...] += delta.sum(axis=0)
