"""One step of a long short-term memory: (x, h, c) -> (h, c).

i, f, o = sigmoid([x, h] @ weight + bias)   each a block of `features` columns,
g = tanh([x, h] @ weight + bias)            in PyTorch's order: i, f, g, o
c' = f * c + i * g
h' = o * tanh(c')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.one_to_one import Parameterised, uniform
from amp_runtime.nodes.schema_checks import vectors
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec
from workers.activations import ACTIVATIONS


class Lstm(Parameterised):
    """Input `x` {x: [rows, in], h: [rows, features], c: [rows, features]}, output `y` {h, c}.

    Parameters: weight [in + features, 4 * features] from a uniform distribution within
    1 / sqrt(features), bias [4 * features] of zeros but for the forget gate's.
    Source: Gers, Schmidhuber, Cummins, Neural Computation 12(10), 2000.
    """

    kind = "lstm"

    @dataclass(frozen=True, slots=True)
    class Options:
        forget_bias: Annotated[float, "initial bias of the forget gate"] = 1.0

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        _, width_h, width_c = vectors(spec, ("x", "h", "c"), dtype)
        if width_h != width_c:
            raise ShapeMismatchError(f"its h and c are of one width, but it is given {spec}")
        return {"y": PortSpec({name: spec.arrays[name] for name in ("h", "c")}, spec.schema)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        (n_in,), (n,) = (inputs["x"].arrays[name].shape for name in ("x", "h"))
        return 5.0 + 6.0 * (n_in + n) * 4 * n / 50e3  # as a linear's

    def __init__(self, context: NodeContext) -> None:
        arrays = context.inputs["x"].arrays
        (self._n_in,), (self._n,) = arrays["x"].shape, arrays["h"].shape
        super().__init__(context)
        self._terms: list[tuple[Array, Array]] = []

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        n = self._n
        bias = np.zeros(4 * n)
        bias[n : 2 * n] = self.options.forget_bias
        weight = uniform(generator, 1 / np.sqrt(n), (self._n_in + n, 4 * n))
        return {"weight": weight, "bias": bias}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        n, c = self._n, payload["c"]
        xh = np.concatenate([payload["x"], payload["h"]], axis=1)
        gates = xh @ self.parameters["weight"]
        gates += self.parameters["bias"]
        ACTIVATIONS["sigmoid"].apply(gates[:, : 2 * n])
        ACTIVATIONS["tanh"].apply(gates[:, 2 * n : 3 * n])
        ACTIVATIONS["sigmoid"].apply(gates[:, 3 * n :])
        i, f, g, o = np.split(gates, 4, axis=1)
        new_c = f * c
        new_c += i * g
        squashed = np.tanh(new_c)
        output = {"h": o * squashed, "c": new_c}
        return output, {"xh": xh, "gates": gates, "old": c, "squashed": squashed}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        i, f, g, o = np.split(saved["gates"], 4, axis=1)
        squashed = saved["squashed"]
        to_h, to_c = (gradient.get(name, np.zeros_like(f)) for name in ("h", "c"))
        to_c = to_c + to_h * o * (1 - squashed * squashed)
        delta = np.concatenate(
            [
                to_c * g * i * (1 - i),
                to_c * saved["old"] * f * (1 - f),
                to_c * i * (1 - g * g),
                to_h * squashed * o * (1 - o),
            ],
            axis=1,
        )
        self._terms.append((saved["xh"], delta))
        if not wants_input:
            return None
        to_xh = delta @ self.parameters["weight"].T
        return {"x": to_xh[:, : self._n_in], "h": to_xh[:, self._n_in :], "c": to_c * f}

    def add_gradients(self, into: Mapping[str, Array]) -> None:
        for xh, delta in self._terms:
            into["weight"][...] += xh.T @ delta
            into["bias"][...] += delta.sum(axis=0)
        self._terms.clear()
