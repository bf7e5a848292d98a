"""y = table[x]: a row of parameters for each token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt

from amp_runtime.errors import NodeError, ShapeMismatchError
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.nodes.one_to_one import Parameterised
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, ArraySpec, PortSpec


class Embedding(Parameterised):
    """Input `x` {one array: int32 [rows]}, output `y` {x: [rows, features]}.

    Parameter: table [entries, features] from a normal distribution. Every update
    treats the gradient as dense, as torch.nn.Embedding does by default.
    """

    kind = "embedding"

    @dataclass(frozen=True, slots=True)
    class Options:
        entries: Annotated[int, Gt(0), "tokens are 0 to entries - 1"]
        features: Annotated[int, Gt(0), "width of the output"]
        std: Annotated[float, Gt(0), "standard deviation of the initial table"] = 1.0

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [(a.shape, a.dtype) for a in spec.arrays.values()] != [((), "int32")]:
            raise ShapeMismatchError(f"port 'x' takes one array int32[rows], but is given {spec}")
        return {"y": PortSpec({"x": ArraySpec((options.features,), dtype)}, spec.schema)}

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._terms: list[tuple[Array, Array]] = []

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        shape = (self.options.entries, self.options.features)
        return {"table": generator.normal(0, self.options.std, shape)}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        tokens = single(payload)
        if len(tokens) and not (0 <= tokens.min() and tokens.max() < self.options.entries):
            bad = tokens[(tokens < 0) | (tokens >= self.options.entries)][0]
            raise NodeError(
                f"token {int(bad)} is outside 0 to {self.options.entries - 1}",
                where=f"node {self.name!r} (kind embedding)",
                fix="raise its option `entries`, or mend the data",
            )
        return {"x": self.parameters["table"][tokens]}, {"x": tokens}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        self._terms.append((saved["x"], gradient["x"]))
        return None

    def add_gradients(self, into: Mapping[str, Array]) -> None:
        for tokens, gradient in self._terms:
            # Sorted segment sums: np.add.at is several times slower on wide rows.
            order = np.argsort(tokens, kind="stable")
            ordered = tokens[order]
            starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
            into["table"][ordered[starts]] += np.add.reduceat(gradient[order], starts, axis=0)
        self._terms.clear()
