"""A forget gate by itself: what a child's memory contributes to its parent's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.parameterised import Parameterised, uniform
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec
from workers.activations import ACTIVATIONS
from workers.lstm_cell import OVERHEAD, both, state_spec, state_widths


class Forget(Parameterised):
    """Input `x` {x: [rows, in], h: [rows, features], c: [rows, features]}, output `y` {h, c}.

        c' = sigmoid([x, h] @ weight + bias) * c,  h' = h

    x is the parent's input, h and c are the child's.

    Parameters: weight [in + features, features], bias [features].
    Source: Tai, Socher, Manning, arXiv:1503.00075, equation 4.
    """

    kind = "forget"

    @dataclass(frozen=True, slots=True)
    class Options:
        forget_bias: Annotated[float, "initial bias of the gate"] = 1.0

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": state_spec(inputs["x"], dtype)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        n_in, n = state_widths(inputs["x"])
        return OVERHEAD + 6.0 * (n_in + n) * n / 50e3

    def __init__(self, context: NodeContext) -> None:
        self._n_in, self._n = state_widths(context.inputs["x"])
        super().__init__(context)

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        n = self._n
        weight = uniform(generator, 1 / np.sqrt(n), (self._n_in + n, n))
        return {"weight": weight, "bias": np.full(n, self.options.forget_bias)}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        c = payload["c"]
        inputs = np.concatenate([payload["x"], payload["h"]], axis=1)
        gate = self.product(inputs, self.parameters["weight"])
        gate += self.parameters["bias"]
        ACTIVATIONS["sigmoid"].apply(gate)
        return {"h": payload["h"], "c": gate * c}, {"inputs": inputs, "gate": gate, "c": c}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        gate, c = saved["gate"], saved["c"]
        to_h, to_c = both(gradient, c)
        to_gate = to_c * c * gate * (1 - gate)
        self.terms.add(saved["inputs"], to_gate)
        if not wants_input:
            return None
        to_inputs = self.product_back(to_gate, "weight")
        to_h = to_inputs[:, self._n_in :] + to_h
        return {"x": to_inputs[:, : self._n_in], "h": to_h, "c": to_c * gate}

    def read_backward(self, wants_input: bool) -> tuple[str, ...]:
        return ("weight",) if wants_input else ()

    def add_gradients(self, into: Mapping[str, Array]) -> None:
        inputs, to_gate = self.terms.take()
        into["weight"][...] += inputs.T @ to_gate
        into["bias"][...] += to_gate.sum(axis=0)
