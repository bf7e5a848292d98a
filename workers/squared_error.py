"""loss = sum over rows and features of (x - target)^2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import PayloadShapeError, ShapeMismatchError
from amp_runtime.nodes.loss import Loss, check_index
from amp_runtime.nodes.statistics import Metrics, MetricSum
from amp_runtime.rows.message import Payload, Rows
from amp_runtime.rows.spec import PortSpec


class SquaredError(Loss):
    """Input `x` {one array of floats: [rows, ...]}; the target of a row is structure.

    Metrics: `loss` per example, `absolute_error`: the mean over rows and features.
    """

    kind = "squared_error"
    metrics = ("loss", "absolute_error")

    @dataclass(frozen=True, slots=True)
    class Options:
        target: Annotated[str, "field that holds the targets, of as many features"] = "target"
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
        target = self.target(rows, self.options.target, self.options.index)
        if target[0].size != x[0].size:
            raise PayloadShapeError(
                f"a target of {target[0].size} features, but rows of {x[0].size}",
                where=f"node {self.name!r} (kind squared_error)",
                fix=f"give the node before it as many features as {self.options.target!r} has",
            )
        error = x - target.reshape(x.shape)
        metrics = {
            "loss": MetricSum(float(np.square(error).sum(dtype=np.float64))),
            "absolute_error": MetricSum(float(np.abs(error).sum(dtype=np.float64)), error.size),
        }
        return metrics, {name: 2 * error} if wants_gradient else None
