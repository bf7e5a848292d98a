"""Further accuracies of a classifier: over some rows only, with some classes taken for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amp_runtime.errors import UserFunctionError, nearest
from amp_runtime.nodes.node import Node, StateFunction
from amp_runtime.nodes.statistics import MetricSum
from amp_runtime.rows.spec import Array, Columns

KEYS = ("rows", "merge")


class Accuracy:
    """The share of right rows among those that `rows` chooses.

    Args:
        node: the loss whose metric it is.
        given: of the form that `check_accuracies` lets pass.
    """

    def __init__(self, node: Node, given: Mapping[str, Any], n_classes: int) -> None:
        self._node = node
        self._rows = given.get("rows", "")
        self._chooses = node.state_function(self._rows) if self._rows else None
        self._group_of = np.full(n_classes, -1)
        merged = given.get("merge") or [[number] for number in range(n_classes)]
        self._merge = np.zeros((n_classes, len(merged)), node.context.dtype)
        for group, classes in enumerate(merged):
            self._group_of[list(classes)] = group
            self._merge[list(classes), group] = 1

    def measure(self, columns: Columns, probability: Array, label: Array) -> MetricSum:
        """Return right rows and rows that count.

        Args:
            columns: the rows' states.
            probability: of each class, up to a factor of the row's: [rows, classes].
            label: [rows].
        """
        group = self._group_of[label]
        counts = group >= 0
        if self._chooses is not None:
            counts &= self._chosen(self._chooses, columns)
        right = (probability @ self._merge).argmax(axis=1) == group
        return MetricSum(float(np.count_nonzero(right & counts)), int(np.count_nonzero(counts)))

    def _chosen(self, chooses: StateFunction, columns: Columns) -> Array:
        chosen = np.asarray(self._node.call(chooses, columns))
        if chosen.dtype.kind not in "biu" or chosen.shape != (len(columns),):
            raise UserFunctionError(
                f"{self._rows} must return a truth value for each of {len(columns)} rows, "
                f"but returned {chosen.dtype}{list(chosen.shape)}",
                where=f"node {self._node.name!r} (kind {self._node.kind})",
            )
        return chosen.astype(bool)


def check_accuracies(given: Mapping[str, Mapping[str, Any]]) -> None:
    """Assert that an option is {metric: {rows: function, merge: groups of classes}}.

    Raises:
        ValueError: says of which metric what is wrong.
    """
    for name, accuracy in given.items():
        if not name.isidentifier() or name in ("loss", "accuracy"):
            raise ValueError(f"accuracies: {name!r} is no name for a further metric")
        for key in accuracy:
            if key not in KEYS:
                raise ValueError(f"accuracies.{name}: unknown key {key!r}{nearest(key, KEYS)}")
        if not isinstance(accuracy.get("rows", ""), str):
            raise ValueError(f"accuracies.{name}.rows: not a package.module:function")
        _check_merge(name, accuracy.get("merge", ()))


def check_classes(given: Mapping[str, Mapping[str, Any]], n_classes: int) -> str:
    """Say what class is merged that does not exist; '' if all do."""
    for name, accuracy in given.items():
        for classes in accuracy.get("merge", ()):
            for number in classes:
                if not 0 <= number < n_classes:
                    return f"option 'accuracies.{name}.merge': no class {number} of {n_classes}"
    return ""


def _check_merge(name: str, merge: Any) -> None:
    well_formed = isinstance(merge, Sequence) and all(
        isinstance(classes, Sequence)
        and not isinstance(classes, str)
        and classes
        and all(type(number) is int for number in classes)
        for classes in merge
    )
    if not well_formed:
        raise ValueError(f"accuracies.{name}.merge: {merge!r} is no list of lists of classes")
    flat = [number for classes in merge for number in classes]
    if len(set(flat)) < len(flat):
        raise ValueError(f"accuracies.{name}.merge: a class is in two groups, or twice in one")
