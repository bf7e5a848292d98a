"""The LSTM cell at a leaf of a tree: nothing came before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.limits import Gt
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, ArraySpec, PortSpec
from workers.lstm_cell import LstmCell, cell_load


class TreeLstmLeaf(LstmCell):
    """Input `x` {one array: [rows, in]}, output `y` {h: [rows, features], c: [rows, features]}.

    Parameters: weight [in, 3 * features], bias [3 * features], gates in the order i, g, o.
    Source: Tai, Socher, Manning, arXiv:1503.00075.
    """

    kind = "tree_lstm_leaf"

    @dataclass(frozen=True, slots=True)
    class Options:
        features: Annotated[int, Gt(0), "width of h and of c"]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [(len(a.shape), a.dtype) for a in spec.arrays.values()] != [(1, dtype)]:
            raise ShapeMismatchError(
                f"port 'x' takes one array {dtype}[rows, in], but is given {spec}"
            )
        array = ArraySpec((options.features,), dtype)
        return {"y": PortSpec({"h": array, "c": array}, spec.schema)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        (array,) = inputs["x"].arrays.values()
        return cell_load(array.shape[0], 0, options.features)

    def __init__(self, context: NodeContext) -> None:
        ((self._name, array),) = context.inputs["x"].arrays.items()
        super().__init__(context, array.shape[0], 0, context.options.features)

    def gather(self, payload: Payload) -> tuple[Array, Array, Array | None]:
        x = single(payload)
        return x, np.empty((len(x), 0, self.options.features), x.dtype), None

    def spread(self, to_inputs: Array, to_memories: Array, to_carried: Array) -> Payload:
        return {self._name: to_inputs}
