"""Predictions as JSON lines: one line an example, in the order of the examples.

    {"example": 0, "label": 8, "label_word": "8", "probabilities": [0.01, ...]}
    {"example": 0, "node": [0, 1, 2], "label": [2, 2, 3], "probabilities": [[...], ...]}

Where a node tells all rows of an example, its values are lists with an element a row. What a
file says an example is (its `function`, its `words`) stands in front of what is predicted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from amp_runtime.control.predicted import NodePredictions, Predicted
from amp_runtime.control.stages import StageResult
from amp_runtime.data.about import Unit
from amp_runtime.errors import OutputError
from amp_runtime.nodes.end import PredictionForm
from amp_runtime.output.whole_file import FIXES, WholeFile
from amp_runtime.rows.spec import Array


class PredictionWriter:
    """Writes lines to `stream`.

    Args:
        forms: of the nodes that predict; the values of a single one stand in the line
            itself, those of several below the name of the node.
        vocabularies: {field: what ids stand for}.
        told, units: as of `About`; the values of a field with a unit are told in it too, as
            `<field>_<unit>`.
    """

    def __init__(
        self,
        stream: TextIO,
        forms: Mapping[str, PredictionForm],
        vocabularies: Mapping[str, Sequence[str]],
        told: Mapping[str, Sequence[Any]] | None = None,
        units: Mapping[str, Unit] | None = None,
    ) -> None:
        self._stream = stream
        self._forms = forms
        self._vocabularies = vocabularies
        self._told_of_examples = told or {}
        self._units = units or {}
        self.n_examples = 0

    def write(self, predicted: Predicted) -> None:
        """Write a line for each of some examples.

        Raises:
            OutputError: it cannot be written; a closed pipe is a BrokenPipeError.
        """
        told = {
            node: self._told(form, predicted.nodes[node], predicted.n_examples)
            for node, form in self._forms.items()
        }
        single = next(iter(told.values())) if len(told) == 1 else None
        lines = []
        for at in range(predicted.n_examples):
            number = predicted.first + at
            of_example = {name: some[number] for name, some in self._told_of_examples.items()}
            line: dict[str, Any] = {"example": number, **of_example}
            line |= single[at] if single is not None else {n: some[at] for n, some in told.items()}
            lines.append(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        try:
            self._stream.writelines(lines)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(
                f"cannot write predictions: {error.strerror}",
                where=str(getattr(self._stream, "name", "")),
                fix=FIXES.get(error.errno or 0, ""),
            ) from error
        self.n_examples += predicted.n_examples

    def _told(
        self, form: PredictionForm, given: NodePredictions, n_examples: int
    ) -> list[dict[str, Any]]:
        """Return the values of one node, by example."""
        plain = {**given.state, **given.arrays}
        values: dict[str, list[Any]] = {}
        for name, array in plain.items():
            values[name] = plain_values(array)
            if words := self._vocabularies.get(form.ids.get(name, "")):
                values[f"{name}_word"] = [words[number] for number in values[name]]
            if unit := self._units.get(name):
                in_unit = (array * unit.deviation + unit.mean).astype(array.dtype)
                values[f"{name}_{unit.name}"] = plain_values(in_unit)
        once = {*form.of_example, *(f"{name}_word" for name in form.of_example)}
        ends = np.cumsum(given.counts).tolist()
        lines = []
        for first, end in zip([0, *ends], ends, strict=False):
            alone = end - first == 1 and not form.per_row
            lines.append(
                {
                    name: some[first]
                    if alone or (name in once and end > first)
                    else some[first:end]
                    for name, some in values.items()
                    if not (alone and name in given.state)
                }
            )
        return lines


class ValidationPredictions:
    """Keeps a file at what the newest complete validation of a run predicted.

    Args:
        path: of the file.
        forms, vocabularies, units: as of `PredictionWriter`.
    """

    def __init__(
        self,
        path: Path,
        forms: Mapping[str, PredictionForm],
        vocabularies: Mapping[str, Sequence[str]],
        units: Mapping[str, Unit] | None = None,
    ) -> None:
        self._path = path
        self._forms, self._vocabularies, self._units = forms, vocabularies, units
        self._file: WholeFile | None = None

    def write(self, predicted: Predicted) -> None:
        """Write what a validation has predicted, piece by piece.

        Raises:
            OutputError: it cannot be written.
        """
        if self._file is None:
            self._file = WholeFile(self._path, fix="or leave out training.save_predictions")
        writer = PredictionWriter(
            self._file.stream, self._forms, self._vocabularies, units=self._units
        )
        writer.write(predicted)

    def end_stage(self, result: StageResult) -> None:
        """Let the file appear where a validation is complete.

        Raises:
            OutputError: it cannot be written.
        """
        if self._file is not None and result.complete:
            self._file.keep()
        self.close()

    def close(self) -> None:
        """Forget what an unfinished validation has predicted."""
        if self._file is not None:
            self._file.discard()
            self._file = None


def plain_values(array: Array) -> list[Any]:
    """Return an array as nested lists of JSON: the shortest text that reads back as equal.

    What is infinite or no number, which JSON does not know, becomes None.
    """
    if array.dtype == np.float32:
        # As a float64 it would be told with digits that it does not have.
        array = array.astype("U").astype(np.float64)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        unknown = ~np.isfinite(array)
        array = array.astype(object)
        array[unknown] = None
    found: list[Any] = array.tolist()
    return found
