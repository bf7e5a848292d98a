"""In training, zeros features at random and scales the others; in evaluation, nothing.

Whether a feature is kept is a hash of the run's seed, the node's name, the row's state and
the number of the feature. So it depends neither on where a node runs, nor on which rows are
merged, nor on their order, and differs from visit to visit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

import numpy as np

from amp_runtime.limits import Ge, Lt
from amp_runtime.nodes.generators import node_key
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.one_to_one import OneToOne
from amp_runtime.nodes.schema_checks import only_floats
from amp_runtime.rows.hashing import STEP, hashed, mixed
from amp_runtime.rows.message import Mode, Payload, Rows
from amp_runtime.rows.spec import Array, Int32, PortSpec


class Dropout(OneToOne):
    """Input `x`, output `y`: every array of the payload, of any shape, in floats.

    The mask is kept, one byte an element: hashing it anew takes at least ten times as long.
    Source: Srivastava et al., Journal of Machine Learning Research 15, 2014.
    """

    kind = "dropout"

    @dataclass(frozen=True, slots=True)
    class Options:
        rate: Annotated[float, Ge(0), Lt(1), "share of the features that become zero"] = 0.5

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": only_floats(inputs["x"], dtype)}

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._key = node_key(context.seed, context.name)
        self._arrays = context.inputs["x"].arrays
        self._scale = np.dtype(context.dtype).type(1 / (1 - self.options.rate))

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        return payload, {}

    def transform(self, rows: Rows, mode: Mode) -> tuple[Payload, Payload]:
        if mode is Mode.EVALUATE or not self.options.rate:
            return self.compute(rows.payload)
        sizes = [prod(spec.shape) for spec in self._arrays.values()]
        whole = keep_mask(self._key, rows.state, sum(sizes), self.options.rate)
        masks, start = {}, 0
        for (name, spec), size in zip(self._arrays.items(), sizes, strict=True):
            masks[f"keep.{name}"] = whole[:, start : start + size].reshape(-1, *spec.shape)
            start += size
        return self._masked(rows.payload, masks), masks

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        if not wants_input:
            return None
        return self._masked(gradient, saved) if saved else gradient

    def _masked(self, arrays: Payload, masks: Payload) -> Payload:
        masked = {name: array * masks[f"keep.{name}"] for name, array in arrays.items()}
        for array in masked.values():
            array *= self._scale
        return masked


def keep_mask(key: Array, state: Int32, n: int, rate: float) -> Array:
    """Return a mask bool [rows, n], true with probability 1 - rate.

    The state is hashed into the seed of a generator of the row's own, which gives 32 bits
    to each feature.

    Args:
        key: of `mask_key`.
        state: int32 [rows, columns].
    """
    seeds = hashed(key, state.T)
    words = seeds[:, np.newaxis] + np.arange(1, (n + 1) // 2 + 1, dtype=np.uint64) * STEP
    bits = mixed(words).view(np.uint32)[:, :n]
    kept: Array = bits >= np.uint32(int(rate * 2**32))
    return kept
