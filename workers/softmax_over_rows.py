"""loss = sum over examples of -log softmax(the rows of the example)[label]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import NodeError, ShapeMismatchError
from amp_runtime.nodes.end import PredictionForm
from amp_runtime.nodes.loss import Loss, check_index, check_whole_numbers
from amp_runtime.nodes.node import NodeContext, single
from amp_runtime.nodes.statistics import Metrics, MetricSum
from amp_runtime.rows.blocks import ColumnSpec
from amp_runtime.rows.gathering import Gathering
from amp_runtime.rows.message import ADDRESS_COLUMNS, Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.segments import ranges, run_starts
from amp_runtime.rows.spec import (
    EXAMPLE,
    Array,
    ArraySpec,
    Columns,
    Int64,
    PortSpec,
    StateSchema,
)


class SoftmaxOverRows(Loss):
    """Input `x` {one array: [rows, 1]}: each row of an example has one logit, and the label
    tells the right row: which node of a graph, say. All rows of an example are answered
    when all have come.

    Metrics: `loss` per example, `accuracy` over examples.
    Predictions: `<label>`, the number of the most probable row of the example, and the
    `probability` of each.
    """

    kind = "softmax_over_rows"
    metrics = ("loss", "accuracy")

    @dataclass(frozen=True, slots=True)
    class Options:
        count: Annotated[
            str,
            "field that holds how many rows an example has; `len(nodes)` is how many elements "
            "field `nodes` has",
        ]
        index: Annotated[str, "state column that tells a row's number, 0 to count - 1"]
        label: Annotated[str, "field that holds the number of the right row"] = "label"

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [(a.shape, a.dtype) for a in spec.arrays.values()] != [((1,), dtype)]:
            raise ShapeMismatchError(
                f"port 'x' takes one array {dtype}[rows, 1], but is given {spec}"
            )
        check_index(options.index, spec.schema)
        return {}

    @classmethod
    def fields(cls, options: Any) -> Sequence[str]:
        return (options.label, options.count)

    @classmethod
    def label_fields(cls, options: Any) -> Sequence[str]:
        return (options.label,)

    @classmethod
    def single_fields(cls, options: Any) -> Sequence[str]:
        return (options.label,)

    @classmethod
    def prediction_form(cls, options: Any) -> PredictionForm:
        return PredictionForm(of_example=(options.label,), ids={options.label: options.label})

    @classmethod
    def check_fields(
        cls, options: Any, inputs: Mapping[str, PortSpec], fields: Mapping[str, ArraySpec]
    ) -> None:
        check_whole_numbers("label", options.label, fields[options.label])
        check_whole_numbers("count", options.count, fields[options.count])

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._schema = context.inputs["x"].schema
        # The state of an example: its instance, and its number where an instance holds several.
        n = 2 if EXAMPLE in self._schema.index else 1
        self._example = StateSchema(self._schema.columns[:n])
        width = ADDRESS_COLUMNS + len(self._schema.names) * (1 + context.verify)
        ((self._name, array),) = context.inputs["x"].arrays.items()
        kept: dict[str, ColumnSpec] = {
            "columns": ((width,), np.int32),
            "x": (array.shape, array.numpy_dtype),
        }
        self._gathering = Gathering(self.stash, kept, whole="example")
        self._where = f"node {context.name!r} (kind softmax_over_rows)"

    @property
    def waiting(self) -> int:
        return self._gathering.waiting

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        complete = self._complete(rows) if len(rows) else rows
        return super().forward(port, complete, mode) if len(complete) else ()

    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        logits = single(rows.payload)[:, 0]
        starts = run_starts(self._keys(rows))
        counts = np.diff(starts, append=len(rows))
        label = self._labels(rows, starts, counts)
        largest = np.maximum.reduceat(logits, starts)
        shifted = logits - np.repeat(largest, counts)
        probability = np.exp(shifted)
        total = np.add.reduceat(probability, starts)
        losses = np.log(total) - shifted[starts + label]
        correct = _first_largest(logits, largest, starts, counts) == label
        metrics = {
            "loss": MetricSum(float(losses.sum(dtype=np.float64))),
            "accuracy": MetricSum(float(correct.sum()), len(starts)),
        }
        if not wants_gradient:
            return metrics, None
        probability /= np.repeat(total, counts)
        probability[starts + label] -= 1
        return metrics, {self._name: probability[:, None]}

    def predictions(self, rows: Rows) -> Payload:
        logits = single(rows.payload)[:, 0]
        starts = run_starts(self._keys(rows))
        counts = np.diff(starts, append=len(rows))
        largest = np.maximum.reduceat(logits, starts)
        probability = np.exp(logits - np.repeat(largest, counts))
        probability /= np.repeat(np.add.reduceat(probability, starts), counts)
        chosen = _first_largest(logits, largest, starts, counts)
        return {self.options.label: np.repeat(chosen, counts), "probability": probability}

    def _complete(self, rows: Rows) -> Rows:
        """Keep `rows`; return all rows of the examples that are complete now, by number."""
        columns = self.columns(rows, "x")
        entries = self._gathering.enter(self._keys(rows), lambda at: self._expected(rows, at))
        members = self._gathering.members
        number, count = columns[self.options.index], members.counts(entries)
        if (outside := (number < 0) | ((number >= count) & (count > 0))).any():
            at = int(np.flatnonzero(outside)[0])
            raise NodeError(
                f"a row of number {int(number[at])}, outside 0 to {int(count[at]) - 1}",
                where=f"{self._where}, {columns.words(at)}",
                fix="option `index` names the column that counts the rows of an example from 0, "
                "and `count` the field that says how many they are",
            )
        places = self._gathering.place(entries, number.astype(np.int64), columns)
        members.put(places, {"columns": rows.columns, "x": single(rows.payload)})
        done = self._gathering.completed(entries)
        kept = members.rows(done)
        complete = Rows(
            members.take("columns", kept), {self._name: members.take("x", kept)}, rows.width
        )
        self._gathering.close(done)
        self.stash.free(self.stash.answer(self.stash.slots(done)))
        return complete

    def _keys(self, rows: Rows) -> Int64:
        """Return a key of each row's example."""
        return self._example.pack(rows.state[:, : len(self._example.names)])

    def _expected(self, rows: Rows, at: Int64) -> Int64:
        columns = Columns(rows.state[at], self._schema)
        count = self.context.structure.take(self.options.count, columns)
        return np.maximum(count, 0).astype(np.int64)

    def _labels(self, rows: Rows, starts: Int64, counts: Int64) -> Array:
        columns = Columns(rows.state[starts], self._schema)
        label = self.context.structure.take(self.options.label, columns)
        if (outside := (label < 0) | (label >= counts)).any():
            at = int(np.flatnonzero(outside)[0])
            raise NodeError(
                f"label {int(label[at])} is outside 0 to {int(counts[at]) - 1}",
                where=f"{self._where}, {columns.words(at)}",
                fix="a label is the number of one of the rows of its example",
            )
        return label


def _first_largest(logits: Array, largest: Array, starts: Int64, counts: Int64) -> Int64:
    """Return for each example the number of the first of its rows with the `largest` logit."""
    is_largest = logits == np.repeat(largest, counts)
    number = np.where(is_largest, ranges(np.zeros(len(starts)), counts), len(logits))
    found: Int64 = np.minimum.reduceat(number, starts)
    return found
