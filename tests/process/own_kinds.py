"""A user's model with a node kind of the user's own. Copied beside a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt

from amp_runtime.graph import PerExample
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec


class Affine(Parameterised):
    """y = factor * x + shift: one factor, one shift."""

    kind = "affine"

    @dataclass(frozen=True, slots=True)
    class Options:
        factor: Annotated[float, Gt(0), "where the factor begins"] = 1.0

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": inputs["x"]}

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._terms: list[tuple[Array, Array]] = []

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        return {"factor": np.array([self.options.factor]), "shift": np.zeros(1)}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        x = single(payload)
        return {"x": x * self.parameters["factor"] + self.parameters["shift"]}, {"x": x}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        self._terms.append((saved["x"], gradient["x"]))
        return {"x": gradient["x"] * self.parameters["factor"]} if wants_input else None

    def add_gradients(self, into: Mapping[str, Array]) -> None:
        for x, gradient in self._terms:
            into["factor"][...] += (x * gradient).sum()
            into["shift"][...] += gradient.sum()
        self._terms.clear()


def examples(split, seed, *, train: int = 60, valid: int = 10):
    for i in range(train if split == "train" else valid):
        x = np.array([i % 4 - 1.0, i % 3 - 1.0])
        yield {"x": [x], "target": [3 * x - 1]}


def build(graph):
    x = graph.input("x", each=PerExample, state={}, payload={"x": "x"})
    graph.add("squared_error", "loss", graph.add("own_kinds:Affine", "affine", x))
