"""Predictions on their way from nodes, by rows, to whoever writes them, by examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_runtime.errors import WireError
from amp_runtime.graph.wiring import NodeSpec
from amp_runtime.rows.spec import EXAMPLE, INSTANCE, Columns, Int32, Int64
from amp_runtime.wire.protocol import Arrays, Predictions


@dataclass(frozen=True, slots=True)
class NodePredictions:
    """What one node predicted from some consecutive examples, by example, then by state.

    Attributes:
        counts: int64 [examples], rows of each.
        state: {column: int32 [rows]}, without instance and example.
        arrays: {name: [rows, ...]}.
    """

    counts: Int64
    state: Mapping[str, Int32]
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Predicted:
    """All that was predicted from examples `first`, `first + 1`, ... of a stage.

    Attributes:
        nodes: in the order of the graph.
    """

    first: int
    n_examples: int
    nodes: Mapping[str, NodePredictions]


class Inbox:
    """Keeps the predictions that have come until they are complete.

    Args:
        nodes: those that predict.
        batch: examples of an instance, but for the last of a stage.
    """

    def __init__(self, nodes: Mapping[str, NodeSpec], batch: int) -> None:
        self._nodes = nodes
        self._batch = batch
        self._came: dict[str, list[Arrays]] = {name: [] for name in nodes}
        self._first_instance = 0
        self._done = 0
        self.n_bytes = 0

    def begin(self, first_instance: int) -> None:
        """Begin a stage, whose first instance that is."""
        self._first_instance = first_instance
        self._done = 0

    def add(self, record: Predictions) -> None:
        """Take in a record of one of the nodes.

        Raises:
            WireError: its states are not those of the node's rows, or its arrays others
                than before.
        """
        came, schema = self._came[record.node], self._nodes[record.node].inputs["x"].schema
        if record.arrays["#state"].shape[1] != len(schema.names):
            raise _unlike(record, f"states of {record.arrays['#state'].shape[1]} columns")
        if came and _form(came[0]) != _form(record.arrays):
            raise _unlike(record, "other arrays than before")
        came.append(record.arrays)
        self.n_bytes += sum(array.nbytes for array in record.arrays.values())

    def take(self, n_examples: int) -> Predicted:
        """Return what has come of the examples since the last time.

        Args:
            n_examples: of the stage so far, none of which is in flight.
        Raises:
            WireError: predictions from another example.
        """
        first, self._done = self._done, n_examples
        self.n_bytes = 0
        nodes = {name: self._of_node(name, first, n_examples) for name in self._nodes}
        return Predicted(first, n_examples - first, nodes)

    def _of_node(self, name: str, first: int, end: int) -> NodePredictions:
        came, self._came[name] = self._came[name], []
        schema = self._nodes[name].inputs["x"].schema
        if not came:
            return NodePredictions(np.zeros(end - first, np.int64), {}, {})
        arrays = {array: np.concatenate([some[array] for some in came]) for array in came[0]}
        state = arrays.pop("#state")
        columns = Columns(state, schema)
        instance = columns.instance.astype(np.int64) - self._first_instance
        example = instance * self._batch + columns.example - first
        if example.min() < 0 or example.max() >= end - first:
            raise WireError(f"predictions from an example outside {first} to {end - 1}", where=name)
        # The last key counts most.
        order = np.lexsort((*reversed(state.T[1:]), example))
        return NodePredictions(
            np.bincount(example, minlength=end - first),
            {c: columns[c][order] for c in schema.names if c not in (INSTANCE, EXAMPLE)},
            {array: values[order] for array, values in arrays.items()},
        )


def _form(arrays: Arrays) -> Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (array.shape[1:], array.dtype) for name, array in arrays.items()}


def _unlike(record: Predictions, what: str) -> WireError:
    return WireError(f"predictions of node {record.node!r} with {what}")
