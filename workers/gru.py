"""One step of a gated recurrent unit: (x, h) -> h.

    r, z = sigmoid([x, h] @ weight + bias)             blocks of `features` columns, in
    n = tanh(x @ weight + bias + r * (h @ weight + bias_h))   PyTorch's order: r, z, n
    h' = (1 - z) * n + z * h

The reset gate r is applied after the product, as in PyTorch and cuDNN; the first paper has
it before: h @ weight there is (r * h) @ weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.parameterised import Parameterised, uniform
from amp_runtime.nodes.schema_checks import vectors
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec
from workers.activations import ACTIVATIONS


class Gru(Parameterised):
    """Input `x` {x: [rows, in], h: [rows, features]}, output `y` {h}.

    Parameters: weight [in + features, 3 * features], bias [3 * features], and bias_h
    [features], all from a uniform distribution within 1 / sqrt(features).
    Source: Cho et al., arXiv:1406.1078.
    """

    kind = "gru"

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        vectors(spec, ("x", "h"), dtype)
        return {"y": PortSpec({"h": spec.arrays["h"]}, spec.schema)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        (n_in,), (n,) = (inputs["x"].arrays[name].shape for name in ("x", "h"))
        return 5.0 + 6.0 * (n_in + n) * 3 * n / 50e3  # as a linear's

    def __init__(self, context: NodeContext) -> None:
        arrays = context.inputs["x"].arrays
        (self._n_in,), (self._n,) = arrays["x"].shape, arrays["h"].shape
        super().__init__(context)

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        n_in, n = self._n_in, self._n
        shapes = {"weight": (n_in + n, 3 * n), "bias": (3 * n,), "bias_h": (n,)}
        return {name: uniform(generator, 1 / np.sqrt(n), s) for name, s in shapes.items()}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        n, x, h = self._n, payload["x"], payload["h"]
        of_x, of_h = self._parts()
        gates = self.product(x, self.parameters["weight"][of_x])
        gates += self.parameters["bias"]
        by_h = self.product(h, self.parameters["weight"][of_h])
        gates[:, : 2 * n] += by_h[:, : 2 * n]
        ACTIVATIONS["sigmoid"].apply(gates[:, : 2 * n])
        r, z, new = np.split(gates, 3, axis=1)
        recalled = by_h[:, 2 * n :] + self.parameters["bias_h"]
        new += r * recalled
        ACTIVATIONS["tanh"].apply(new)
        return {"h": new + z * (h - new)}, {"x": x, "h": h, "gates": gates, "recalled": recalled}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        r, z, new = np.split(saved["gates"], 3, axis=1)
        x, h, to_h = saved["x"], saved["h"], gradient["h"]
        to_new = to_h * (1 - z) * (1 - new * new)
        to_r = to_new * saved["recalled"] * r * (1 - r)
        to_z = to_h * (h - new) * z * (1 - z)
        by_x = np.concatenate([to_r, to_z, to_new], axis=1)
        by_h = np.concatenate([to_r, to_z, to_new * r], axis=1)
        self.terms.add(x, h, by_x, by_h)
        if not wants_input:
            return None
        of_x, of_h = self._parts()
        to_x = self.product_back(by_x, "weight", of_x)
        return {"x": to_x, "h": self.product_back(by_h, "weight", of_h) + to_h * z}

    def read_backward(self, wants_input: bool) -> tuple[str, ...]:
        return ("weight",) if wants_input else ()

    def add_gradients(self, into: Mapping[str, Array]) -> None:
        x, h, by_x, by_h = self.terms.take()
        of_x, of_h = self._parts()
        into["weight"][of_x] += x.T @ by_x
        into["weight"][of_h] += h.T @ by_h
        into["bias"][...] += by_x.sum(axis=0)
        into["bias_h"][...] += by_h[:, 2 * self._n :].sum(axis=0)

    def _parts(self) -> tuple[slice, slice]:
        """Return the rows of `weight` that x and h are multiplied with."""
        return slice(self._n_in), slice(self._n_in, None)
