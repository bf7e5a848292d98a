"""A node kind that counts, in whole numbers, how often it was trained on each example.

Whatever order rows come in, and whatever they are merged with, its parameter says after n
epochs n for each example: anything else acted twice, or not at all. Copied beside a config.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt

from amp_runtime.graph import PerExample
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec

FIRST_ROWS = "first-rows"
"""A file of the folder that a run is started in: when a node was made, and first given rows."""


class Counts(Parameterised):
    """Passes `x` [rows, 1] on, the number of the example that a row is of."""

    kind = "counts"

    @dataclass(frozen=True, slots=True)
    class Options:
        examples: Annotated[int, Gt(0), "in the data"]
        timed: Annotated[
            bool, "each new node tells FIRST_ROWS when it was given its first rows"
        ] = False

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": inputs["x"]}

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._seen: list[Array] = []
        self._made = time.monotonic()
        self._tells = self.options.timed

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        return {"count": np.zeros(self.options.examples)}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        if self._tells:
            self._tells = False
            with Path(FIRST_ROWS).open("a") as file:
                file.write(f"{self._made} {time.monotonic()}\n")
        x = single(payload)
        return {"x": x}, {"x": x}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        self._seen.append(saved["x"][:, 0].astype(np.int64))
        return {"x": gradient["x"]} if wants_input else None

    def add_gradients(self, into: Mapping[str, Array]) -> None:
        # Not as a gradient: a step would divide it. Its gradient is zero, and no step moves it.
        for numbers in self._seen:
            np.add.at(self.parameters["count"], numbers, 1.0)
        self._seen.clear()


def examples(split, seed, *, train: int = 40, valid: int = 0):
    for number in range(train if split == "train" else valid):
        yield {"x": [[float(number)]], "target": [[0.0]]}


def build(graph, *, train: int = 40, nodes: int = 2, timed: bool = False):
    """x -> counts-1 -> counts-2 ... -> loss"""
    x = graph.input("x", each=PerExample, state={}, payload={"x": "x"})
    for number in range(1, nodes + 1):
        x = graph.add("counting:Counts", f"counts-{number}", x, examples=train, timed=timed)
    graph.add("squared_error", "loss", x)
