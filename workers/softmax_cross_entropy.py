"""loss = sum over rows of -log softmax(x)[label]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import NodeError, ShapeMismatchError
from amp_runtime.nodes.loss import Loss, check_index
from amp_runtime.nodes.statistics import Metrics, MetricSum
from amp_runtime.rows.message import Payload, Rows
from amp_runtime.rows.spec import Array, PortSpec


class SoftmaxCrossEntropy(Loss):
    """Input `x` {one array: [rows, classes]}; the label of a row is structure.

    Metrics: `loss` per example, `accuracy` over rows.
    """

    kind = "softmax_cross_entropy"
    metrics = ("loss", "accuracy")

    @dataclass(frozen=True, slots=True)
    class Options:
        label: Annotated[str, "field that holds the labels, 0 to classes - 1"] = "label"
        index: Annotated[
            str | None, "state column that tells a row's element of `label`; none: element 0"
        ] = None

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [(len(a.shape), a.dtype) for a in spec.arrays.values()] != [(1, dtype)]:
            raise ShapeMismatchError(
                f"port 'x' takes one array {dtype}[rows, classes], but is given {spec}"
            )
        check_index(options.index, spec.schema)
        return {}

    @classmethod
    def fields(cls, options: Any) -> Sequence[str]:
        return (options.label,)

    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        ((name, x),) = rows.payload.items()
        label = self._labels(rows, x.shape[1])
        order = np.arange(len(x))
        shifted = x - x.max(axis=1, keepdims=True)
        probability = np.exp(shifted)
        total = probability.sum(axis=1, keepdims=True)
        losses = np.log(total[:, 0]) - shifted[order, label]
        metrics = {
            "loss": MetricSum(float(losses.sum(dtype=np.float64))),
            "accuracy": MetricSum(float((x.argmax(axis=1) == label).sum()), len(x)),
        }
        if not wants_gradient:
            return metrics, None
        probability /= total
        probability[order, label] -= 1
        return metrics, {name: probability}

    def _labels(self, rows: Rows, n_classes: int) -> Array:
        label = self.target(rows, self.options.label, self.options.index)
        if label.size and not (0 <= label.min() and label.max() < n_classes):
            at = int(np.flatnonzero((label < 0) | (label >= n_classes))[0])
            raise NodeError(
                f"label {int(label[at])} is outside 0 to {n_classes - 1}",
                where=f"node {self.name!r} (kind softmax_cross_entropy), "
                f"instance {int(rows.state[at, 0])}",
                fix="give the node before it as many features as there are labels",
            )
        return label
