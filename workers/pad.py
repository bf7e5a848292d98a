"""Widens rows: zeros follow the features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.limits import Gt
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.one_to_one import OneToOne
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import ArraySpec, PortSpec


class Pad(OneToOne):
    """Input `x` {one array of floats: [rows, in]}, output `y`: [rows, features], then zeros.

    The array keeps its name. For a state that is wider than what it begins with, say.
    """

    kind = "pad"

    @dataclass(frozen=True, slots=True)
    class Options:
        features: Annotated[int, Gt(0), "width of the output, at least that of the input"]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [(len(array.shape), array.dtype) for array in spec.arrays.values()] != [(1, dtype)]:
            raise ShapeMismatchError(
                f"port 'x' takes one array {dtype}[rows, features], but is given {spec}"
            )
        ((name, array),) = spec.arrays.items()
        if array.shape[0] > options.features:
            raise ShapeMismatchError(
                f"rows of {array.shape[0]} features cannot be padded to {options.features}",
                fix=f"set features to {array.shape[0]} or more",
            )
        return {"y": PortSpec({name: ArraySpec((options.features,), dtype)}, spec.schema)}

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        ((self._name, array),) = context.inputs["x"].arrays.items()
        (self._n_in,) = array.shape

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        x = payload[self._name]
        y = np.zeros((len(x), self.options.features), x.dtype)
        y[:, : self._n_in] = x
        return {self._name: y}, {}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        return {self._name: gradient[self._name][:, : self._n_in]} if wants_input else None
