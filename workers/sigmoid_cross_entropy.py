"""loss = sum over rows and features of -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import NodeError, PayloadShapeError, ShapeMismatchError
from amp_runtime.nodes.loss import Loss, check_index
from amp_runtime.nodes.statistics import Metrics, MetricSum
from amp_runtime.rows.message import Payload, Rows
from amp_runtime.rows.spec import Array, PortSpec


class SigmoidCrossEntropy(Loss):
    """Input `x` {one array of floats: [rows, ...]}, logits; the target of a row is structure.

    Metrics: `loss` per example, `accuracy` over rows and features (both above a half, or
    neither).
    """

    kind = "sigmoid_cross_entropy"
    metrics = ("loss", "accuracy")

    @dataclass(frozen=True, slots=True)
    class Options:
        target: Annotated[str, "field that holds the targets, 0 to 1, of as many features"] = (
            "target"
        )
        index: Annotated[
            str | None, "state column that tells a row's element of `target`; none: element 0"
        ] = None

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [a.dtype for a in spec.arrays.values()] != [dtype]:
            raise ShapeMismatchError(f"port 'x' takes one array of {dtype}, but is given {spec}")
        check_index(options.index, spec.schema)
        return {}

    @classmethod
    def fields(cls, options: Any) -> Sequence[str]:
        return (options.target,)

    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        ((name, x),) = rows.payload.items()
        target = self._targets(rows, x)
        # max(x, 0) - x t + log(1 + exp(-|x|)), which cannot overflow
        losses = np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))
        metrics = {
            "loss": MetricSum(float(losses.sum(dtype=np.float64))),
            "accuracy": MetricSum(float(((x > 0) == (target > 0.5)).sum()), x.size),
        }
        if not wants_gradient:
            return metrics, None
        return metrics, {name: (np.tanh(x / 2) + 1) / 2 - target}

    def _targets(self, rows: Rows, x: Array) -> Array:
        target = self.target(rows, self.options.target, self.options.index)
        where = f"node {self.name!r} (kind sigmoid_cross_entropy)"
        if target[0].size != x[0].size:
            raise PayloadShapeError(
                f"a target of {target[0].size} features, but rows of {x[0].size}",
                where=where,
                fix=f"give the node before it as many features as {self.options.target!r} has",
            )
        if not ((target >= 0) & (target <= 1)).all():
            raise NodeError(
                f"a target of {float(target[(target < 0) | (target > 1)][0])}, outside 0 to 1",
                where=where,
            )
        return target.reshape(x.shape)
