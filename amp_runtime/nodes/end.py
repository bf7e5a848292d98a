"""Nodes where rows end, and what they make of rows in evaluation: predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amp_runtime.errors import NodeError
from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.rows.message import Payload, Rows
from amp_runtime.rows.spec import Array, Int32, PortSpec

MAX_INT32 = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class PredictionForm:
    """How the predictions of a node are told.

    Attributes:
        per_row: all rows of an example are told, with their states; else its only row.
        of_example: arrays that are the same in all rows of an example: told once.
        ids: {array: the field whose vocabulary says what its values stand for}.
    """

    per_row: bool = True
    of_example: Sequence[str] = ()
    ids: Mapping[str, str] = field(default_factory=dict)


class Predictions:
    """What a node has predicted and nobody has fetched yet."""

    def __init__(self) -> None:
        self._kept: list[tuple[Int32, Payload]] = []
        self.n_bytes = 0

    def add(self, state: Int32, arrays: Payload) -> None:
        self._kept.append((state, arrays))
        self.n_bytes += state.nbytes + sum(array.nbytes for array in arrays.values())

    def take(self) -> tuple[Int32, Payload] | None:
        """Return the states and arrays of all rows, and forget them; None of no row."""
        kept, self._kept, self.n_bytes = self._kept, [], 0
        if not kept:
            return None
        names = kept[0][1]
        arrays = {name: np.concatenate([some[name] for _, some in kept]) for name in names}
        return np.concatenate([state for state, _ in kept]), arrays


class End(Node):
    """Input `x`, no output. What a kind predicts from its rows, `predictions` returns."""

    outputs = ()
    is_end = True

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self.predicted = Predictions()

    @classmethod
    def infer(
        cls, options: object, inputs: Mapping[str, PortSpec], dtype: str
    ) -> dict[str, PortSpec]:
        return {}

    @classmethod
    def predicts(cls, options: Any) -> bool:
        """Return whether its predictions are those of the model."""
        return True

    @classmethod
    def prediction_form(cls, options: Any) -> PredictionForm:
        """Return how its predictions are told."""
        return PredictionForm()

    @classmethod
    def label_fields(cls, options: Any) -> Sequence[str]:
        """Return the fields that it needs to measure and not to predict: labels."""
        return ()

    @classmethod
    def single_fields(cls, options: Any) -> Sequence[str]:
        """Return the fields of whose elements it takes the first: examples must have one."""
        return ()

    @abstractmethod
    def predictions(self, rows: Rows) -> Payload:
        """Return {name: [rows, ...]}, of whole numbers, truth values or floats."""

    def predict(self, rows: Rows) -> None:
        """Keep the predictions of `rows` until they are fetched.

        Raises:
            NodeError: the kind returned something else than arrays with an entry a row.
        """
        found = self.predictions(rows)
        arrays = {name: self._checked(name, array, len(rows)) for name, array in found.items()}
        self.predicted.add(rows.state, arrays)

    def _checked(self, name: str, given: Any, n_rows: int) -> Array:
        array = np.asarray(given)
        if array.ndim and len(array) == n_rows and name and name[0] != "#":
            if array.dtype in (np.float32, np.float64, np.int32):
                return array
            if array.dtype.kind in "biu" and (np.abs(array) <= MAX_INT32).all():
                return array.astype(np.int32)
        raise NodeError(
            f"predictions returned {name!r} as {array.dtype}{list(array.shape)}, which is not "
            f"int32, float32 or float64 [{n_rows}, ...]",
            where=f"node {self.name!r} (kind {self.context.kind})",
        )
