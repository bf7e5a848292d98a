"""loss = sum over rows and features of (x - target)^2."""

from __future__ import annotations

import numpy as np

from amp_runtime.nodes.statistics import Metrics, MetricSum
from amp_runtime.nodes.target_loss import TargetLoss
from amp_runtime.rows.message import Payload, Rows


class SquaredError(TargetLoss):
    """Input `x` {one array of floats: [rows, ...]}; the target of a row is structure.

    Metrics: `loss` per example, `absolute_error`: the mean over rows and features.
    """

    kind = "squared_error"
    metrics = ("loss", "absolute_error")

    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        ((name, x),) = rows.payload.items()
        error = x - self.targets(rows, x)
        metrics = {
            "loss": MetricSum(float(np.square(error).sum(dtype=np.float64))),
            "absolute_error": MetricSum(float(np.abs(error).sum(dtype=np.float64)), error.size),
        }
        return metrics, {name: 2 * error} if wants_gradient else None
