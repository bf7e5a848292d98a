"""A config to what a run needs: checked graph, data, settings. Starts nothing."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_runtime import names
from amp_runtime.checking.rules import ConfigProblemsError, Path, Place, Problem
from amp_runtime.config.schema import BadConfigError, Config, load_config
from amp_runtime.control.checkpoints import CheckpointRule
from amp_runtime.control.feed import check_lengths
from amp_runtime.control.parameters import NodeParameters
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Target
from amp_runtime.data import TRAIN, VALID, check_source, load_split
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import (
    AmpError,
    ConfigError,
    DataError,
    GraphError,
    MissingDataError,
    nearest,
)
from amp_runtime.graph import POSITION, Graph, PerExample
from amp_runtime.graph.ends import prediction_forms
from amp_runtime.graph.training_options import check_training
from amp_runtime.graph.wiring import Wiring
from amp_runtime.models import build_model, check_builder
from amp_runtime.nodes.end import End
from amp_runtime.nodes.loss import Loss
from amp_runtime.nodes.node import Evaluation, Kinds
from amp_runtime.nodes.updates import Schedule


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that a run is made of, checked.

    Attributes:
        parameters: to begin with, of some nodes or of all; None: freshly drawn ones.
    """

    config: Config
    wiring: Wiring
    train: Dataset
    valid: Dataset
    settings: ControllerSettings
    parameters: NodeParameters | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the data source says to the user, and what is no error but hardly meant."""
        return (*self.train.about.notes, *self.valid.about.notes, *_warnings(self))


def prepare_file(path: str | os.PathLike[str], overrides: Sequence[str], kinds: Kinds) -> Prepared:
    """Load a config file with overrides, then the data, and build the graph.

    Raises:
        ConfigProblemsError: all that is wrong with keys and options, as far as the one can
            be told beside the other.
        AmpError: as `prepare`.
    """
    try:
        config = load_config(path, overrides)
    except BadConfigError as error:
        if (rest := error.rest) is None:
            raise
        raise _together([error, *_option_errors(_Parts.of(rest), rest, kinds)], rest) from None
    return prepare(config, kinds)


def prepare(config: Config, kinds: Kinds) -> Prepared:
    """Load the data and build the graph.

    Raises:
        ConfigProblemsError: all options of the data source, the model's builder, the
            optimizer and single nodes that are wrong, each with its place.
        AmpError: from the data source, the model's builder or a graph check; its place
            names the line of the config.
    """
    parts = _Parts.of(config)
    if parts.errors:
        raise _together(_option_errors(parts, config, kinds), config)
    train, valid = (_split(parts, split, config) for split in (TRAIN, VALID))
    if not train.fields:  # nor any example: nobody can say what a graph would be given
        raise DataError(
            "gave no examples to train on", where=f"{config.place('data')}: {train.where}"
        )
    with _placed(config, "data"):
        _check_same_fields(train, valid)
    wiring, parameters = _wiring(parts, train, config, kinds)
    for dataset in (train, valid):
        with _placed(config, "data"):
            check_lengths(wiring, dataset)
        check_state_fits(config, wiring, dataset)
        with _placed(config, "data"):
            _check_single_fields(wiring, dataset, kinds)
    _check_target(config, wiring, kinds)
    if config.training.save_predictions and not prediction_forms(wiring, kinds):
        raise ConfigError(
            "training.save_predictions: the model has no loss, nor a sink with `predict: true`, "
            "whose rows would be told",
            where=config.place("training.save_predictions"),
            fix="add one to the model, or leave the key out",
        )
    settings = controller_settings(config)
    return Prepared(config, wiring, train, valid, settings, parameters or None)


@contextmanager
def _placed(config: Config, section: str) -> Iterator[None]:
    """Put the line of a section in front of where an error of the data is."""
    try:
        yield
    except DataError as error:
        raise error.at(config.place(section)) from error.__cause__


@dataclass(slots=True)
class _Parts:
    """What a config names, with the options that are right, and an error for the others.

    Attributes:
        source: a name, or the function that `package.module:function` resolved to.
    """

    source: Any
    source_options: dict[str, Any]
    builder: str
    builder_options: dict[str, Any]
    training: dict[str, Any]
    errors: list[AmpError]

    @staticmethod
    def of(config: Config) -> _Parts:
        names.search_also(config.folder)
        data, model = config.data, config.model
        parts = _Parts(
            data.source, data.options, model.builder, model.options, config.node_defaults(), []
        )
        with parts._collecting(config, ("data",), parts.source_options):
            if names.is_qualified(data.source):
                place = config.place("data.source")
                parts.source = names.resolve(data.source, what="a data source", where=place)
            check_source(parts.source, data.options, where=config.place("data"))
        with parts._collecting(config, ("model",), parts.builder_options):
            check_builder(model.builder, model.options, where=config.place("model.builder"))
        with parts._collecting(config, ("training",), parts.training):
            _, problems = check_training(parts.training)
            if problems:
                raise ConfigProblemsError.of(problems, "")
        return parts

    @contextmanager
    def _collecting(self, config: Config, section: Path, options: dict[str, Any]) -> Iterator[None]:
        """Collect what is raised, placed in the config; take bad options out of `options`."""
        try:
            yield
        except ConfigProblemsError as error:
            placed = config.placed(section, error.problems)
            self.errors.append(ConfigProblemsError.of(placed, config.place("")))
            for problem in error.problems:
                options.pop(str(problem.path[0]), None)
        except AmpError as error:
            self.errors.append(error)


def _together(errors: Sequence[AmpError], config: Config) -> AmpError:
    """Return one error for several; of problems of a config, by line."""
    if len(errors) == 1:
        return errors[0]
    problems: list[Problem] = []
    for error in errors:
        if isinstance(error, ConfigProblemsError):
            problems += error.problems
        else:
            said = "; ".join(filter(None, [error.what, error.fix]))
            problems.append(Problem((), said, Place(error.where)))
    return ConfigProblemsError.of(problems, config.place(""))


def _split(parts: _Parts, split: str, config: Config) -> Dataset:
    try:
        made = load_split(parts.source, split, config.seed, parts.source_options)
        return made.astype(config.dtype)
    except (DataError, MissingDataError) as error:
        raise error.at(config.place("data.path")) from error.__cause__


def _graph(parts: _Parts, train: Dataset, config: Config, kinds: Kinds) -> Graph:
    return Graph(
        kinds,
        fields={name: field.spec for name, field in train.fields.items()},
        entries={name: len(words) for name, words in train.about.vocabularies.items()},
        unseen={
            name: train.fields[name].missing_ids(len(words))
            for name, words in train.about.vocabularies.items()
        },
        vectors=train.about.vectors,
        scales=train.about.scales,
        batch=config.data.batch,
        dtype=config.dtype,
        training=parts.training,
        overrides=config.node_overrides(),
    )


def _wiring(
    parts: _Parts, train: Dataset, config: Config, kinds: Kinds
) -> tuple[Wiring, NodeParameters]:
    graph = _graph(parts, train, config, kinds)
    try:
        build_model(graph, parts.builder, parts.builder_options)
        return graph.build(), graph.parameters
    except AmpError as error:
        if graph.problems:  # an override that was left out may be why the rest failed
            raise _of_nodes(graph, config) from None
        raise error.at(_cause_of(error, config)) from error.__cause__


def _option_errors(parts: _Parts, config: Config, kinds: Kinds) -> list[AmpError]:
    """Return what is wrong with options, those of `nodes` too as far as that can be told."""
    if not config.nodes:
        return parts.errors
    graph: Graph | None = None
    # What is raised here may be a consequence of the options that are left out.
    with contextlib.suppress(Exception):
        graph = _graph(parts, _split(parts, TRAIN, config), config, kinds)
        build_model(graph, parts.builder, parts.builder_options)
        if parts.builder_options == config.model.options:  # else it may lack nodes
            graph.build()
    return parts.errors + ([_of_nodes(graph, config)] if graph and graph.problems else [])


def _of_nodes(graph: Graph, config: Config) -> ConfigProblemsError:
    return ConfigProblemsError.of(config.placed((), graph.problems), config.place(""))


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


def check_state_fits(config: Config, wiring: Wiring, dataset: Dataset) -> None:
    """Assert that what examples put into state columns fits the bits declared for them.

    Raises:
        GraphError: names the input, the column and the value.
    """
    if not len(dataset):
        return
    for spec in wiring.inputs:
        for column, bits in spec.spec.schema.columns:
            source = spec.state.get(column)
            if isinstance(source, int):
                most = source
            elif source == POSITION and spec.each != PerExample:
                most = int(dataset.field(spec.each).counts.max()) - 1
            elif source is not None and source in dataset.fields:
                most = int(dataset.fields[source].values.max(initial=0))
            elif source is not None and source.startswith("len("):
                most = int(dataset.field(source[4:-1]).counts.max())
            else:
                continue
            if most >> bits:
                raise GraphError(
                    f"state column {column!r} is to hold {most}, outside its {bits} bits "
                    f"(0 to {(1 << bits) - 1})",
                    where=f"{config.place('model')}: input {spec.name!r}, {dataset.where}",
                    fix=f"declare more bits for {column!r} in the model",
                )


def _check_single_fields(wiring: Wiring, dataset: Dataset, kinds: Kinds) -> None:
    """Assert that an example has one element where a loss would take the first.

    Raises:
        DataError: names the example, the field and the node.
    """
    for node in wiring.nodes if len(dataset) else ():
        cls = kinds.load(node.kind)
        if not issubclass(cls, End):
            continue
        for name in cls.single_fields(cls.read_options(node.options)):
            counts = dataset.field(name).counts
            if (wrong := counts != 1).any():
                at = int(np.flatnonzero(wrong)[0])
                raise DataError(
                    f"example {at} has {int(counts[at])} elements in field {name!r}, of which "
                    f"node {node.name!r} (kind {node.kind}) takes one",
                    where=dataset.where,
                    fix="give one; or, where each row has its own, set the node's option `index` "
                    "to the state column that tells which",
                )


def _check_target(config: Config, wiring: Wiring, kinds: Kinds) -> None:
    """Assert that the target is a metric of the model: another would never be reached.

    Raises:
        ConfigError: names the nearest metric, or all.
    """
    target = config.training.target
    losses = [(n, kinds.load(n.kind)) for n in wiring.nodes if n.is_end]
    names_of = {
        node.name: cls.metric_names(cls.read_options(node.options))
        for node, cls in losses
        if issubclass(cls, Loss)
    }
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


def _warnings(prepared: Prepared) -> list[str]:
    """Return what is no error, and hardly what a user wants."""
    found = []
    updating = [node for node in prepared.wiring.nodes if node.parameterised]
    if not updating:
        found.append("no node has parameters: nothing will be learnt")
    n_examples = len(prepared.train)
    training = prepared.settings.evaluate is None
    # A replica has its share of the examples.
    seldom = [n for n in updating if n_examples < int(n.training["update_every"]) * n.replicas]
    if seldom and training:
        shared = ", or those that a replica has of them" if seldom[-1].replicas > 1 else ""
        found.append(
            f"update_every is more than the {n_examples} training examples{shared}, so these "
            f"nodes update once an epoch: {', '.join(dict.fromkeys(n.ir_name for n in seldom))}"
        )
    keys = prepared.settings.max_active_keys
    idle = {n.ir_name: f"{n.ir_name} has {n.replicas}" for n in updating if n.replicas > keys}
    if idle and training:
        found.append(
            f"an instance is at one replica of a node, and max_active_keys is {keys}, so some "
            f"replicas are always idle: {', '.join(idle.values())}"
        )
    delayed = [n.ir_name for n in updating if n.training["delay"] != 0]
    if delayed and training:
        found.append(
            "delay: these nodes compute with weights of past updates, on purpose: "
            f"{', '.join(dict.fromkeys(delayed))}"
        )
    if training and prepared.settings.schedule is Schedule.SYNCHRONOUS:
        idle_keys = {
            "compensation": not delayed
            and any(isinstance(n.training["compensation"], Mapping) for n in updating),
            "warm_up_examples": prepared.settings.warm_up_examples > 0,
        }
        found += [
            f"training.schedule is synchronous, without delay: {key} does nothing"
            for key, is_given in idle_keys.items()
            if is_given
        ]
    if prepared.config.training.save_predictions and not len(prepared.valid):
        found.append("there are no validation examples, so training.save_predictions saves none")
    return found


def _checkpoint_rule(config: Config) -> CheckpointRule | None:
    """Return when checkpoints are made."""
    every, target = config.checkpoint.every, config.training.target
    if every == "never":
        return None
    by_updates = every.updates and every.updates * config.training.update_every
    examples = [n for n in (every.examples, by_updates) if n]
    return CheckpointRule(
        epochs=every.epochs,
        examples=min(examples, default=None),
        seconds=every.seconds,
        metric=target.metric if target else "loss",
        highest=target is not None and target.at_least is not None,
        keep_best=config.checkpoint.keep_best,
    )


def controller_settings(config: Config) -> ControllerSettings:
    training, target = config.training, config.training.target
    rows = training.max_active_rows
    return ControllerSettings(
        seed=config.seed,
        max_epochs=training.max_epochs,
        max_examples=training.max_examples,
        max_minutes=training.max_minutes,
        max_age=training.max_age,
        warm_up_examples=training.warm_up_examples,
        max_active_keys=training.max_active_keys,
        max_active_rows=None if rows == "auto" else rows,
        update_every=training.update_every,
        schedule=Schedule(training.schedule),
        target=Target(target.metric, target.at_least, target.at_most) if target else None,
        verify=config.verify,
        evaluation=Evaluation.BOTH if training.save_predictions else Evaluation.METRICS,
        checkpoints=_checkpoint_rule(config),
        start_timeout_s=config.runtime.start_timeout_s,
        stall_timeout_s=config.runtime.stall_timeout_s,
    )
