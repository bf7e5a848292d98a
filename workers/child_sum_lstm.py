"""The LSTM cell at a node of a tree with any number of children, in no order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_runtime.nodes.node import NodeContext
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec
from workers.lstm_cell import LstmCell, cell_load, cell_widths


class ChildSumLstm(LstmCell):
    """Input `x` {x: [rows, in], h: [rows, features], c: [rows, features]}, output `y` {h, c}.

    h and c are the sums over a node's children, zeros at a leaf: what a `group` with
    reduce: sum makes of the children's rows after a `forget` gate.

    Parameters: weight [in + features, 3 * features], bias [3 * features], gates in the
    order i, g, o.
    Source: Tai, Socher, Manning, arXiv:1503.00075, Child-Sum Tree-LSTM.
    """

    kind = "child_sum_lstm"

    @dataclass(frozen=True, slots=True)
    class Options:
        pass

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        cell_widths(spec, dtype)
        return {"y": PortSpec({name: spec.arrays[name] for name in ("h", "c")}, spec.schema)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        (n_in,), (n,) = (inputs["x"].arrays[name].shape for name in ("x", "h"))
        return cell_load(n_in + n, 0, n)

    def __init__(self, context: NodeContext) -> None:
        arrays = context.inputs["x"].arrays
        (self._n_in,), (n,) = arrays["x"].shape, arrays["h"].shape
        super().__init__(context, self._n_in + n, 0, n)

    def gather(self, payload: Payload) -> tuple[Array, Array, Array | None]:
        c = payload["c"]
        inputs = np.concatenate([payload["x"], payload["h"]], axis=1)
        return inputs, np.empty((len(c), 0, c.shape[1]), c.dtype), c

    def spread(self, to_inputs: Array, to_memories: Array, to_carried: Array) -> Payload:
        return {"x": to_inputs[:, : self._n_in], "h": to_inputs[:, self._n_in :], "c": to_carried}
