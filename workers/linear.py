"""y = activation(x @ weight + bias)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.limits import Gt
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.nodes.parameterised import Parameterised, uniform
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, ArraySpec, PortSpec
from workers.activations import ACTIVATIONS


class Linear(Parameterised):
    """Input `x` {one array: [rows, ...]}, output `y` {x: [rows, features]}.

    All features of a row are taken as one vector of length `in`, the last axis counting
    fastest. Parameters: weight [in, features] and bias [features], both from a uniform
    distribution within 1 / sqrt(in).
    """

    kind = "linear"

    @dataclass(frozen=True, slots=True)
    class Options:
        features: Annotated[int, Gt(0), "width of the output"]
        bias: Annotated[bool, "whether a bias is added"] = True
        activation: Annotated[
            Literal["relu", "tanh", "sigmoid"] | None, "function fused behind the product"
        ] = None

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        arrays = list(spec.arrays.values())
        if len(arrays) != 1 or not arrays[0].shape or arrays[0].dtype != dtype:
            raise ShapeMismatchError(
                f"port 'x' takes one array {dtype}[rows, in, ...], but is given {spec}"
            )
        return {"y": PortSpec({"x": ArraySpec((options.features,), dtype)}, spec.schema)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        (spec,) = inputs["x"].arrays.values()
        # y, dx and dW are 2 * in * out operations each, at some 50 per nanosecond.
        return 3.0 + 6.0 * math.prod(spec.shape) * int(options.features) / 50e3

    def __init__(self, context: NodeContext) -> None:
        ((self._input, array),) = context.inputs["x"].arrays.items()
        self._shape = array.shape
        super().__init__(context)
        self._activation = ACTIVATIONS.get(self.options.activation)

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        n_in = math.prod(self._shape)
        bound = 1 / np.sqrt(n_in)
        parameters = {"weight": uniform(generator, bound, (n_in, self.options.features))}
        if self.options.bias:
            parameters["bias"] = uniform(generator, bound, (self.options.features,))
        return parameters

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        x = single(payload).reshape(-1, math.prod(self._shape))
        y = self.product(x, self.parameters["weight"])
        if self.options.bias:
            y += self.parameters["bias"]
        if self._activation is None:
            return {"x": y}, {"x": x}
        self._activation.apply(y)
        return {"x": y}, {"x": x, "y": y}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        delta = gradient["x"]
        if self._activation is not None:
            delta = self._activation.chain(delta, saved["y"])
        self.terms.add(saved["x"], delta)
        if not wants_input:
            return None
        return {self._input: self.product_back(delta, "weight").reshape(-1, *self._shape)}

    def read_backward(self, wants_input: bool) -> tuple[str, ...]:
        return ("weight",) if wants_input else ()

    def add_gradients(self, into: Mapping[str, Array]) -> None:
        x, delta = self.terms.take()
        into["weight"][...] += x.T @ delta
        if self.options.bias:
            into["bias"][...] += delta.sum(axis=0)
