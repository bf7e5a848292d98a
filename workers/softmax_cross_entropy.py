"""loss = sum over rows of -log softmax(x)[label]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import NodeError, ShapeMismatchError
from amp_runtime.names import resolve, structure_fields
from amp_runtime.nodes.end import PredictionForm
from amp_runtime.nodes.loss import Loss, check_index, check_whole_numbers
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.nodes.statistics import Metrics, MetricSum
from amp_runtime.rows.message import Payload, Rows
from amp_runtime.rows.spec import Array, ArraySpec, PortSpec
from workers.accuracies import Accuracy, check_accuracies, check_classes


class SoftmaxCrossEntropy(Loss):
    """Input `x` {one array: [rows, classes]}; the label of a row is structure.

    Metrics: `loss` per example, `accuracy` over rows, and those that `accuracies` names.
    Predictions: the most probable `<label>`, `probabilities` of all.
    """

    kind = "softmax_cross_entropy"
    metrics = ("loss", "accuracy")

    @dataclass(frozen=True, slots=True)
    class Options:
        label: Annotated[str, "field that holds the labels, 0 to classes - 1"] = "label"
        index: Annotated[
            str | None, "state column that tells a row's element of `label`; none: element 0"
        ] = None
        accuracies: Annotated[
            Mapping[str, Mapping[str, Any]],
            "{metric: {rows: package.module:function of (columns, structure) that says which "
            "rows count, merge: [[class, ...], ...] that are taken for one; rows of a class in "
            "none are left out}}",
        ] = field(default_factory=dict)

        def __post_init__(self) -> None:
            check_accuracies(self.accuracies)

    @classmethod
    def metric_names(cls, options: Any) -> Sequence[str]:
        return (*super().metric_names(options), *options.accuracies)

    @classmethod
    def state_functions(cls, options: Any) -> Sequence[str]:
        return [a["rows"] for a in options.accuracies.values() if a.get("rows")]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [(len(a.shape), a.dtype) for a in spec.arrays.values()] != [(1, dtype)]:
            raise ShapeMismatchError(
                f"port 'x' takes one array {dtype}[rows, classes], but is given {spec}"
            )
        check_index(options.index, spec.schema)
        (array,) = spec.arrays.values()
        if said := check_classes(options.accuracies, array.shape[0]):
            raise ShapeMismatchError(said)
        return {}

    @classmethod
    def fields(cls, options: Any) -> Sequence[str]:
        return (options.label,)

    @classmethod
    def label_fields(cls, options: Any) -> Sequence[str]:
        functions = [resolve(f, what="a function") for f in cls.state_functions(options)]
        return (options.label, *(field for f in functions for field in structure_fields(f)))

    @classmethod
    def single_fields(cls, options: Any) -> Sequence[str]:
        return (options.label,) if options.index is None else ()

    @classmethod
    def prediction_form(cls, options: Any) -> PredictionForm:
        return PredictionForm(options.index is not None, ids={options.label: options.label})

    @classmethod
    def check_fields(
        cls, options: Any, inputs: Mapping[str, PortSpec], fields: Mapping[str, ArraySpec]
    ) -> None:
        check_whole_numbers("label", options.label, fields[options.label])

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        (array,) = context.inputs["x"].arrays.values()
        self._accuracies = {
            name: Accuracy(self, given, array.shape[0])
            for name, given in context.options.accuracies.items()
        }

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
            "accuracy": MetricSum(float(np.count_nonzero(x.argmax(axis=1) == label)), len(x)),
        }
        columns = self.columns(rows, "x")
        for metric, accuracy in self._accuracies.items():
            metrics[metric] = accuracy.measure(columns, probability, label)
        if not wants_gradient:
            return metrics, None
        probability /= total
        probability[order, label] -= 1
        return metrics, {name: probability}

    def predictions(self, rows: Rows) -> Payload:
        x = single(rows.payload)
        probability = np.exp(x - x.max(axis=1, keepdims=True))
        probability /= probability.sum(axis=1, keepdims=True)
        return {self.options.label: x.argmax(axis=1), "probabilities": probability}

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
