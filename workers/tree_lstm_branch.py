"""The LSTM cell at a branch of a tree with a fixed number of children, told apart by place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.nodes.node import NodeContext
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, ArraySpec, PortSpec
from workers.lstm_cell import LstmCell, cell_load


class TreeLstmBranch(LstmCell):
    """Input `x` {h: [rows, children, features], c: alike}, output `y` {h: [rows, features], c}.

    What a `group` stacks: the children's h and c. Each child has a forget gate of its own,
    which sees the h of all. A third array `x` [rows, in] is the branch's own input.

    Parameters: weight [children * features (+ in), (3 + children) * features] and bias
    [(3 + children) * features], gates in the order i, f of each child, g, o.
    Source: Tai, Socher, Manning, arXiv:1503.00075, N-ary Tree-LSTM.
    """

    kind = "tree_lstm_branch"

    @dataclass(frozen=True, slots=True)
    class Options:
        forget_bias: Annotated[float, "initial bias of the forget gates"] = 1.0

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        h, x = spec.arrays.get("h"), spec.arrays.get("x")
        fits = (
            h is not None
            and (len(h.shape), h.dtype) == (2, dtype)
            and spec.arrays.get("c") == h
            and (x is None or (len(x.shape), x.dtype) == (1, dtype))
            and spec.arrays.keys() <= {"h", "c", "x"}
        )
        if h is None or not fits:
            raise ShapeMismatchError(
                f"port 'x' takes h and c {dtype}[rows, children, features], and x "
                f"{dtype}[rows, in] if you like, but is given {spec}",
                fix="put a group with reduce: stack before it",
            )
        array = ArraySpec(h.shape[1:], dtype)
        return {"y": PortSpec({"h": array, "c": array}, spec.schema)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        return cell_load(*_widths(inputs["x"]))

    def __init__(self, context: NodeContext) -> None:
        self._has_x = "x" in context.inputs["x"].arrays
        n_in, n_children, features = _widths(context.inputs["x"])
        super().__init__(context, n_in, n_children, features)

    def gather(self, payload: Payload) -> tuple[Array, Array, Array | None]:
        h = payload["h"]
        inputs = h.reshape(len(h), h.shape[1] * h.shape[2])
        if self._has_x:
            inputs = np.concatenate([inputs, payload["x"]], axis=1)
        return inputs, payload["c"], None

    def spread(self, to_inputs: Array, to_memories: Array, to_carried: Array) -> Payload:
        _, n, features = to_memories.shape
        gradient = {
            "h": to_inputs[:, : n * features].reshape(to_memories.shape),
            "c": to_memories,
        }
        return gradient | ({"x": to_inputs[:, n * features :]} if self._has_x else {})


def _widths(spec: PortSpec) -> tuple[int, int, int]:
    """Return the width of a row's inputs, its children, and the features of each."""
    n_children, features = spec.arrays["h"].shape
    own = spec.arrays["x"].shape[0] if "x" in spec.arrays else 0
    return n_children * features + own, n_children, features
