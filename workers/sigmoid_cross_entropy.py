"""loss = sum over rows and features of -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))."""

from __future__ import annotations

import numpy as np

from amp_runtime.errors import NodeError
from amp_runtime.nodes.node import single
from amp_runtime.nodes.statistics import Metrics, MetricSum
from amp_runtime.nodes.target_loss import TargetLoss
from amp_runtime.rows.message import Payload, Rows
from amp_runtime.rows.spec import Array


class SigmoidCrossEntropy(TargetLoss):
    """Input `x` {one array of floats: [rows, ...]}, logits; the target, 0 to 1, is structure.

    Metrics: `loss` per example, `accuracy` over rows and features (both above a half, or
    neither). Predictions: `probabilities`, and `<target>`: 1 for those above a half, else 0.
    """

    kind = "sigmoid_cross_entropy"
    metrics = ("loss", "accuracy")

    def predictions(self, rows: Rows) -> Payload:
        x = single(rows.payload)
        return {self.options.target: x > 0, "probabilities": _sigmoid(x)}

    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        ((name, x),) = rows.payload.items()
        target = self.targets(rows, x)
        if (bad := (target < 0) | (target > 1)).any():
            raise NodeError(
                f"a target of {float(target[bad][0])}, outside 0 to 1",
                where=f"node {self.name!r} (kind sigmoid_cross_entropy)",
            )
        # max(x, 0) - x t + log(1 + exp(-|x|)), which cannot overflow
        losses = np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))
        metrics = {
            "loss": MetricSum(float(losses.sum(dtype=np.float64))),
            "accuracy": MetricSum(float(((x > 0) == (target > 0.5)).sum()), x.size),
        }
        if not wants_gradient:
            return metrics, None
        return metrics, {name: _sigmoid(x) - target}


def _sigmoid(x: Array) -> Array:
    found: Array = (np.tanh(x / 2) + 1) / 2
    return found
