"""Nodes where the backward begins."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from amp_runtime.errors import ShapeMismatchError, nearest
from amp_runtime.nodes.end import End
from amp_runtime.nodes.finite import of_instances
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.statistics import Metrics, MetricSum, add_metrics
from amp_runtime.rows.message import Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array, ArraySpec, Columns, StateSchema


class Loss(End):
    """Answers each row at once: with dL/dx in training, with null in evaluation.

    Losses sum over their rows. A kind writes

        measure(rows, wants_gradient) -> (metrics of these rows, dL/dx or None)
        predictions(rows) -> {name: [rows, ...]}, without a look at the labels
        label_fields(options) -> the fields that only `measure` needs

    Attributes:
        not_finite: the first loss in training that was not finite, in words; '': none was.

    Class attributes:
        metrics: names of all that `measure` returns; see `metric_names`.
    """

    metrics: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._metrics: dict[Mode, Metrics] = {mode: {} for mode in Mode}
        self.not_finite = ""

    @classmethod
    def metric_names(cls, options: Any) -> Sequence[str]:
        """Return the names of all metrics, so that a target of another is refused before
        the run; none where a kind does not say."""
        return cls.metrics

    @abstractmethod
    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        """Return the sums of the metrics over `rows`, `loss` among them, and dL/dx."""

    def predictions(self, rows: Rows) -> Payload:
        """Return what rows come to; by default what came: {name: [rows, ...]}."""
        return rows.payload

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        training, evaluation = mode is Mode.TRAIN, self.context.evaluation
        answer = None
        if training or evaluation.measures:
            wants = training and port in self.context.wants_gradient
            metrics, gradient = self.measure(rows, wants)
            add_metrics(self._metrics[mode], metrics)
            if training and not self.not_finite and not _is_finite(metrics):
                self.not_finite = _which_loss(rows)
            answer = self.wanted(port, gradient, "measure") if wants else None
        if not training and evaluation.predicts:
            self.predict(rows)
        return (Answer(rows.return_to, answer),)

    def target(self, rows: Rows, field: str, index: str | None) -> Array:
        """Return the element of a structure field that each row is compared with.

        Args:
            index: state column that tells which element of the example; None: element 0.
        Raises:
            MissingStructureError: there is no such element.
        """
        columns = Columns(rows.state, self.context.inputs["x"].schema)
        at = 0 if index is None else columns[index]
        return self.context.structure.take(field, columns, at)

    def take_metrics(self, mode: Mode) -> Metrics:
        return {n: MetricSum(m.total, m.count) for n, m in self._metrics[mode].items()}

    def reset_metrics(self) -> None:
        for metrics in self._metrics.values():
            metrics.clear()

    def save(self) -> Saved:
        saved = super().save()
        saved.numbers["not_finite"] = self.not_finite
        for mode in Mode:
            sums = {n: [float(m.total), int(m.count)] for n, m in self._metrics[mode].items()}
            saved.add(mode.name.lower(), Saved(sums))
        return saved

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self.not_finite = saved.numbers["not_finite"]
        for mode in Mode:
            sums = saved.part(mode.name.lower()).numbers
            self._metrics[mode] = {name: MetricSum(*pair) for name, pair in sums.items()}


def _is_finite(metrics: Metrics) -> bool:
    return "loss" not in metrics or math.isfinite(metrics["loss"].total)


def _which_loss(rows: Rows) -> str:
    """Return the instances of rows whose loss is not finite: those that came so, or all."""
    bad = np.zeros(len(rows), np.bool_)
    for array in rows.payload.values():
        bad |= ~np.isfinite(array).reshape(len(rows), -1).all(1)
    came = " came not finite" if bad.any() else ""
    return f"the loss{of_instances([rows.state[bad if came else slice(None), 0]])}{came}"


def check_whole_numbers(option: str, field: str, spec: ArraySpec) -> None:
    """Assert that the option of a loss names a field of whole numbers.

    Raises:
        ShapeMismatchError: the field holds floats, or vectors.
    """
    if spec != ArraySpec((), "int32"):
        raise ShapeMismatchError(
            f"option {option!r}: field {field!r} is {spec}, not int32[rows]",
            fix="labels and counts are whole numbers, one an element",
        )


def check_index(index: str | None, schema: StateSchema) -> None:
    """Assert that the option `index` of a loss names a state column.

    Raises:
        ShapeMismatchError: it does not.
    """
    if index is not None and index not in schema.index:
        raise ShapeMismatchError(
            f"option 'index': no state column {index!r} in {schema}{nearest(index, schema.names)}"
        )
