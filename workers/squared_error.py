"""loss = sum over rows and features of (x - target)^2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from amp_runtime.nodes.node import single
from amp_runtime.nodes.statistics import Metrics, MetricSum
from amp_runtime.nodes.target_loss import TargetLoss
from amp_runtime.rows.message import Payload, Rows


class SquaredError(TargetLoss):
    """Input `x` {one array of floats: [rows, ...]}; the target of a row is structure.

    Metrics: `loss` per example, `absolute_error`: the mean over rows and features, and
    those that `scaled` names.
    Predictions: `<target>`, what came in its place.
    """

    kind = "squared_error"
    metrics = ("loss", "absolute_error")

    @dataclass(frozen=True, slots=True)
    class Options(TargetLoss.Options):
        scaled: Annotated[
            Mapping[str, float],
            "{metric: what absolute_error is multiplied by}: the error in a unit of the data",
        ] = field(default_factory=dict)

        def __post_init__(self) -> None:
            for name, factor in self.scaled.items():
                if not name.isidentifier() or name in SquaredError.metrics:
                    raise ValueError(f"scaled: {name!r} is no name for a further metric")
                if factor <= 0:
                    raise ValueError(f"scaled.{name}: {factor} is not above 0")

    @classmethod
    def metric_names(cls, options: Any) -> Sequence[str]:
        return (*super().metric_names(options), *options.scaled)

    def predictions(self, rows: Rows) -> Payload:
        return {self.options.target: single(rows.payload)}

    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        ((name, x),) = rows.payload.items()
        error = x - self.targets(rows, x)
        total = float(np.abs(error).sum(dtype=np.float64))
        metrics = {
            "loss": MetricSum(float(np.square(error).sum(dtype=np.float64))),
            "absolute_error": MetricSum(total, error.size),
        }
        for metric, factor in self.options.scaled.items():
            metrics[metric] = MetricSum(factor * total, error.size)
        return metrics, {name: 2 * error} if wants_gradient else None
