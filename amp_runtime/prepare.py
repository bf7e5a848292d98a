"""A config to what a run needs: checked graph, data, settings. Starts nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from amp_runtime import names
from amp_runtime.config.schema import Config
from amp_runtime.control.controller import ControllerSettings
from amp_runtime.control.stages import Target
from amp_runtime.data import TRAIN, VALID, load_split
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import AmpError, ConfigError, DataError, GraphError, nearest
from amp_runtime.graph import Graph
from amp_runtime.graph.training_options import check_optimizer
from amp_runtime.graph.wiring import Wiring
from amp_runtime.models import build_model
from amp_runtime.nodes.loss import Loss
from amp_runtime.nodes.node import Kinds
from amp_runtime.nodes.updates import Schedule


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that a run is made of, checked."""

    config: Config
    wiring: Wiring
    train: Dataset
    valid: Dataset
    settings: ControllerSettings


def prepare(config: Config, kinds: Kinds) -> Prepared:
    """Load the data and build the graph.

    Raises:
        AmpError: from the data source, the model's builder or a graph check; its place
            names the line of the config.
    """
    names.search_also(config.folder)
    source: Any = config.data.source
    if names.is_qualified(source):
        source = names.resolve(source, what="a data source", where=config.place("data.source"))
    try:
        train, valid = (
            load_split(source, split, config.seed, config.data.options).astype(config.dtype)
            for split in (TRAIN, VALID)
        )
    except ConfigError as error:
        raise _placed(error, config, "data") from error.__cause__
    if not train.fields:  # nor any example: nobody can say what a graph would be given
        raise DataError("gave no examples to train on", where=train.where)
    _check_same_fields(train, valid)
    try:
        check_optimizer(config.node_defaults()["optimizer"], "training.optimizer")
    except GraphError as error:
        raise error.at(config.place("training.optimizer")) from error.__cause__
    graph = Graph(
        kinds,
        fields={name: field.spec for name, field in train.fields.items()},
        batch=config.data.batch,
        dtype=config.dtype,
        training=config.node_defaults(),
        overrides=config.node_overrides(),
    )
    try:
        build_model(graph, config.model.builder, config.model.options)
        wiring = graph.build()
    except ConfigError as error:
        raise _placed(error, config, "model") from error.__cause__
    except AmpError as error:
        raise error.at(_cause_of(error, config)) from error.__cause__
    _check_target(config, wiring, kinds)
    return Prepared(config, wiring, train, valid, controller_settings(config))


def _placed(error: ConfigError, config: Config, section: str) -> ConfigError:
    """Return `error` with the line, or the override, of the key that is wrong."""
    place = config.place(f"{section}.{error.option}" if error.option else section)
    return ConfigError.of_option(error.option, error.what, where=place, fix=error.fix)


def _cause_of(error: AmpError, config: Config) -> str:
    """Return where a graph's error was written: at the node's own options, or the model's."""
    for name in config.nodes:
        if error.where.startswith((f"node {name!r}", f"nodes.{name}")):
            return config.place(f"nodes.{name}")
    return config.place("model")


def _check_same_fields(train: Dataset, valid: Dataset) -> None:
    """Assert that validation examples look as training examples do: one graph takes both.

    Raises:
        DataError: names the field and both.
    """
    if not len(train) or not len(valid):
        return
    for name, field in train.fields.items():
        ours, theirs = field.spec, valid.field(name).spec
        if ours != theirs:
            raise DataError(
                f"field {name!r} is {theirs}, but {ours} in training", where=valid.where
            )


def _check_target(config: Config, wiring: Wiring, kinds: Kinds) -> None:
    """Assert that the target is a metric of the model: another would never be reached.

    Raises:
        ConfigError: names the nearest metric, or all.
    """
    target = config.training.target
    losses = {n.name: kinds.load(n.kind) for n in wiring.nodes if n.is_end}
    names_of = {name: cls.metrics for name, cls in losses.items() if issubclass(cls, Loss)}
    if target is None or not all(names_of.values()):
        return
    owners = Counter(metric for metrics in names_of.values() for metric in metrics)
    # As `Tally.metrics` calls them.
    valid = [metric for metric, n in owners.items() if n == 1 or metric == "loss"]
    for node, metrics in names_of.items():
        valid += [f"{node}.{metric}" for metric in metrics if owners[metric] > 1]
    if target.metric not in valid:
        raise ConfigError(
            f"training.target.metric: the model has no metric {target.metric!r}"
            f"{nearest(target.metric, valid)}",
            where=config.place("training.target.metric"),
            fix=f"its metrics are {', '.join(valid) or 'none'}",
        )


def controller_settings(config: Config) -> ControllerSettings:
    training, target = config.training, config.training.target
    rows = training.max_active_rows
    return ControllerSettings(
        seed=config.seed,
        max_epochs=training.max_epochs,
        max_active_keys=training.max_active_keys,
        max_active_rows=None if rows == "auto" else rows,
        update_every=training.update_every,
        schedule=Schedule(training.schedule),
        target=Target(target.metric, target.at_least, target.at_most) if target else None,
        verify=config.verify,
        start_timeout_s=config.runtime.start_timeout_s,
        stall_timeout_s=config.runtime.stall_timeout_s,
    )
