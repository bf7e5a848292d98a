"""From the option `compensation` to a node's remedies, in the worker that hosts it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from amp_runtime.errors import StartError
from amp_runtime.optim.base import Optimizer
from amp_runtime.optim.lr_schedules import LrSchedule
from amp_runtime.remedies.momentum import RaisedMomentum
from amp_runtime.remedies.prediction import (
    NOT_PREDICTED,
    AlongMomentum,
    LastUpdate,
    unpredictable,
)
from amp_runtime.remedies.remedy import Accumulating, Remedies, Remedy
from amp_runtime.remedies.running import RunningMean
from amp_runtime.remedies.step_size import Annealed, ByNode, ByRow
from amp_runtime.remedies.threshold import DropBeyond


class Updates(Protocol):
    """What is used here of a node's `LocalUpdates`."""

    @property
    def examples(self) -> int: ...
    @property
    def examples_per_update(self) -> float: ...


class Updating(Accumulating, Protocol):
    """What is used here of a parameterised node."""

    optimizer: Optimizer
    lr_schedule: LrSchedule

    @property
    def updates(self) -> Updates: ...
    @property
    def where(self) -> str: ...


FOR_MOMENTUM: Mapping[str, Any] = {"predict": "linear", "horizon": "measured", "predict_after": 0}
"""What `auto` does about the delay of an optimizer that has a momentum to go along."""


def chosen(node: Updating, staleness: RunningMean) -> Sequence[Remedy]:
    """Return the remedies that `compensation: auto` stands for at a node."""
    tables = node.row_sums()
    lazy = any(sums.lazy for sums in tables.values())
    optimizer = node.optimizer
    if optimizer.momentum and not unpredictable("linear", tables, lazy):
        ahead = _prediction(node, FOR_MOMENTUM, staleness, ())
        return (ahead, RaisedMomentum(staleness, optimizer))
    return (ByNode(staleness),)


def make_remedies(node: Updating, options: Mapping[str, Any]) -> Remedies:
    """Return what checked options of `compensation` ask for.

    Raises:
        StartError: a table's gradient is summed by rows, and it cannot be predicted so.
    """
    staleness = RunningMean()
    remedies: list[Remedy] = []
    if options["predict"] != "none":
        remedies.append(_prediction(node, options, staleness, remedies))
    if options["momentum"] == "raised":
        remedies.append(RaisedMomentum(staleness, node.optimizer))
    match options["step_size"]:
        case "by_row":
            remedies.append(ByRow())
        case "by_node":
            remedies.append(ByNode(staleness))
        case "annealed":
            remedies.append(Annealed(staleness, options["anneal_over"]))
    limit = options["drop_beyond"]
    if limit is not None:
        remedies.append(DropBeyond(limit))
    return Remedies(node, remedies, staleness, may_drop=limit is not None)


def _prediction(
    node: Updating, options: Mapping[str, Any], staleness: RunningMean, remedies: Sequence[Remedy]
) -> Remedy:
    """Return the prediction of a node's weights.

    Args:
        remedies: all of the node, at least once it updates: they change its learning rate.
    """
    form, given, after = options["predict"], options["horizon"], options["predict_after"]
    tables = node.row_sums()
    if wrong := unpredictable(form, tables, any(sums.lazy for sums in tables.values())):
        raise StartError(wrong, where=node.where, fix=NOT_PREDICTED)

    def horizon() -> float:
        return staleness.mean if given == "measured" else float(given)

    def lr_factor(k: int) -> float:
        updates = node.updates
        later = node.lr_schedule.at(round(updates.examples + k * updates.examples_per_update))
        return later * math.prod(remedy.lr_factor() for remedy in remedies)

    if form == "last_update":
        return LastUpdate(node.parameters, horizon, after)
    decaying = form == "decaying"
    return AlongMomentum(node.optimizer, tables, horizon, after, lr_factor, decaying=decaying)
