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

from amp_runtime.nodes.node import NodeContext
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec
from workers.lstm_cell import LstmCell, cell_load, cell_widths


class Lstm(LstmCell):
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
        cell_widths(spec, dtype)
        return {"y": PortSpec({name: spec.arrays[name] for name in ("h", "c")}, spec.schema)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        (n_in,), (n,) = (inputs["x"].arrays[name].shape for name in ("x", "h"))
        return cell_load(n_in + n, 1, n)

    def __init__(self, context: NodeContext) -> None:
        arrays = context.inputs["x"].arrays
        (self._n_in,), (n,) = arrays["x"].shape, arrays["h"].shape
        super().__init__(context, self._n_in + n, 1, n)

    def gather(self, payload: Payload) -> tuple[Array, Array, Array | None]:
        inputs = np.concatenate([payload["x"], payload["h"]], axis=1)
        return inputs, payload["c"][:, np.newaxis], None

    def spread(self, to_inputs: Array, to_memories: Array, to_carried: Array) -> Payload:
        to_x, to_h = to_inputs[:, : self._n_in], to_inputs[:, self._n_in :]
        return {"x": to_x, "h": to_h, "c": to_memories[:, 0]}
