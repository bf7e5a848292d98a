"""A run's configuration: a YAML file and `key=value` overrides become a frozen record.

Every key, with its unit, range and default, stands in this file once: the checks,
their words, `configs/README.md` and the JSON schema for editors are made from it.

Names of builders and sources stay text here; `names` finds what they mean. What
`model`, `data`, `nodes.<name>` and an optimizer hold beside the keys below is
passed on, and checked by whom it is for (`options`).
"""

from __future__ import annotations

import copy
import os
import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from amp_runtime.checking.rules import (
    ConfigProblemsError,
    Path,
    Problem,
    Schema,
    below,
    problems_of,
    properties,
    resolved,
    shown,
)
from amp_runtime.config.yaml_reader import Document, read_file, write_text
from amp_runtime.delay.options import MOST_DELAY
from amp_runtime.graph.training_options import MOST_REPLICAS

MAX_S = 86_400.0
MAX_MINUTES = 525_600.0
MAX_BATCH = 1_000_000
OPTIMIZER_FORM = "{name: adam, lr: 0.001}"
LR_SCHEDULE_FORM = "{name: cosine, over: 1000000}, examples"
CLIP_FORM = "{norm: 1.0}"
DELAY_FORM = "{name: random, low: 0, high: 8}"
COMPENSATION_FORM = "{predict: linear}"
INITIALIZER_FORM = "{name: normal, std: 0.01}"


def key(doc: str, *, unit: str = "", words: str = "", form: str = "", **limits: Any) -> Any:
    """Describe one key: what it does, its unit, and its limits (in `words` where given).

    Args:
        form: how a mapping is written, for who gives something else.
    """
    said = {"unit": unit, "words": words, "form": form}
    extra: Any = {name: text for name, text in said.items() if text}
    return Field(description=doc, json_schema_extra=extra, **limits)


FunctionName: TypeAlias = Annotated[
    str,
    key(
        "a name of ours, or a function of yours",
        words="NAME or package.module:function",
        pattern=r"^[A-Za-z_][\w-]*$|^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
    ),
]
Count: TypeAlias = Annotated[int, Field(ge=1)]
AutoOrCount: TypeAlias = Literal["auto"] | Count
EpochOrCount: TypeAlias = Literal["epoch"] | Count
BackwardWeightsOption: TypeAlias = Literal["live", "stashed", "recompute"]
DelayOption: TypeAlias = Annotated[int, Field(ge=0, le=MOST_DELAY)] | dict[str, Any]
CompensationOption: TypeAlias = Literal["auto", "none"] | dict[str, Any]
ClipOption: TypeAlias = Literal["none"] | dict[str, Any]
InitializerOption: TypeAlias = str | dict[str, Any]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=MAX_S)]


class Section(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class OpenSection(Section):
    """A mapping with known keys, and options that are passed on."""

    model_config = ConfigDict(extra="allow")  # beside what Section says

    @property
    def options(self) -> dict[str, Any]:
        """The options that are passed on, a copy."""
        return copy.deepcopy(self.model_extra or {})


class ModelSection(OpenSection):
    """Which graph to build. All other keys are options of the builder."""

    builder: Annotated[FunctionName, key("what builds the model's graph")]


class DataSection(OpenSection):
    """Which examples to train on. All other keys are options of the source."""

    source: Annotated[FunctionName, key("what generates the examples")]
    batch: Annotated[
        int,
        key("injected, aged and retired together", unit="examples", ge=1, le=MAX_BATCH),
    ] = 1


class OptimizerSection(OpenSection):
    """How a node updates its parameters. All other keys are options of the optimizer."""

    name: Annotated[str, key("sgd, adam, ...", min_length=1)]


class LrScheduleSection(OpenSection):
    """What the learning rate is multiplied by. All other keys are options of the name."""

    name: Annotated[
        str,
        key(
            "constant: 1; step: times `factor` at `every` so many training examples; linear, "
            "cosine: from 1 to `final` over `over` so many. Each takes `warm_up`: examples in "
            "which it grows from 0",
            min_length=1,
        ),
    ] = "constant"


class AveragingSection(OpenSection):
    """How replicas of a node become one again. All other keys are options of the name."""

    name: Annotated[
        str,
        key(
            "mean: of their parameters; elastic: each is pulled to a centre, which all pull; "
            "block_momentum: the mean's move is a gradient with momentum (docs/replicas.md)",
            min_length=1,
        ),
    ] = "mean"


class TargetSection(Section):
    """Stop before `max_epochs` when a validation metric gets there."""

    metric: Annotated[str, key("a metric of the model's loss, such as accuracy", min_length=1)]
    at_least: Annotated[float | None, key("reached at this value or above")] = None
    at_most: Annotated[float | None, key("reached at this value or below")] = None

    @model_validator(mode="after")
    def _has_a_bound(self) -> TargetSection:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give at_least or at_most")
        return self


class TrainingSection(Section):
    """How to train. `update_every` to `average_every`: per node too, in `nodes`."""

    schedule: Annotated[
        Literal["asynchronous", "synchronous"],
        key("synchronous: all nodes step together, and wait for each other"),
    ] = "asynchronous"
    max_active_keys: Annotated[
        int,
        key(
            "in flight at most: more keep cores busy, and delay gradients",
            unit="instances",
            ge=1,
            le=1_000_000,
        ),
    ] = 4
    max_active_rows: Annotated[
        AutoOrCount,
        key(
            "in flight at most, as injected; auto: 4 x max_active_keys x the mean of an instance",
            unit="rows",
        ),
    ] = "auto"
    update_every: Annotated[
        Count,
        key("each local update uses about so many, or more that come together", unit="examples"),
    ] = 100
    min_update_frequency: Annotated[
        AutoOrCount,
        key(
            "a node's gradients before it updates; auto: as many as update_every examples "
            "bring to it",
            unit="rows",
        ),
    ] = "auto"
    nan_limit: Annotated[
        int,
        key(
            "of a node's last 100 updates so many may have a gradient with a NaN or an Inf: such "
            "an update is not applied; with one more the run has diverged, and ends",
            unit="updates",
            ge=0,
        ),
    ] = 10
    optimizer: Annotated[
        OptimizerSection, key("how a node updates its parameters", form=OPTIMIZER_FORM)
    ]
    lr_schedule: Annotated[
        LrScheduleSection,
        key("how the learning rate changes with the examples trained on", form=LR_SCHEDULE_FORM),
    ] = LrScheduleSection()
    clip: Annotated[
        ClipOption,
        key(
            "bound of the gradient of an update, that of the mean loss per example: none, "
            "{norm: 1.0} of all the node's parameters together, or {value: 0.5} of each component",
            form=CLIP_FORM,
        ),
    ] = "none"
    initializer: Annotated[
        InitializerOption,
        key(
            "what weights begin with (not vectors, as biases are): a name such as xavier_uniform, "
            "or {name: normal, std: 0.01}; own: as their node's kind says",
            form=INITIALIZER_FORM,
        ),
    ] = "own"
    backward_weights: Annotated[
        BackwardWeightsOption,
        key(
            "weights of a row's backward: live: those of now for dL/dx, the rest as the forward "
            "kept it; stashed: those of its forward; recompute: those of now, by a forward anew"
        ),
    ] = "live"
    delay: Annotated[
        DelayOption,
        key(
            "made on purpose, to study it: rows are computed with a node's weights of so many "
            "updates ago; or {name: random, low: 0, high: 8}, {name: geometric, mean: 4, high: "
            "16}, {name: trace, run: RUN} (docs/delay.md)",
            unit="updates",
            form=DELAY_FORM,
        ),
    ] = 0
    compensation: Annotated[
        CompensationOption,
        key(
            "what is done about delayed gradients: auto, by optimizer and measured staleness; "
            "none; or remedies such as {predict: linear, horizon: measured}, {step_size: by_row}, "
            "{drop_beyond: 32} (docs/compensation.md); not synchronous",
            form=COMPENSATION_FORM,
        ),
    ] = "auto"
    averaging: Annotated[
        AveragingSection,
        key("how replicas of a node (nodes.<name>.replicas) become one again; not synchronous"),
    ] = AveragingSection()
    average_every: Annotated[
        EpochOrCount,
        key(
            "a replica's updates after which it shares its parameters, and trains on meanwhile; "
            "epoch: at the end of each alone, as is always done then",
            unit="updates",
        ),
    ] = "epoch"
    max_age: Annotated[
        Count | None,
        key(
            "an instance of training waits while its number is so far beyond that of the oldest "
            "in flight: bounds staleness where instances differ in size",
            unit="instances",
        ),
    ] = None
    warm_up_examples: Annotated[
        int,
        key(
            "trained on at first with little delay: instances of one update at most are in "
            "flight, and the next wait until these have retired; not synchronous",
            unit="examples",
            ge=0,
        ),
    ] = 0
    max_epochs: Annotated[Count, key("passes over the training data at most", unit="epochs")] = 10
    max_examples: Annotated[
        Count | None, key("trained on at most, over all epochs; then stop", unit="examples")
    ] = None
    max_minutes: Annotated[
        float | None,
        key(
            "of training; then what is in flight is finished, validated and written",
            unit="minutes",
            gt=0,
            le=MAX_MINUTES,
        ),
    ] = None
    target: Annotated[
        TargetSection | None,
        key("stop early when a metric gets there", form="{metric: accuracy, at_least: 0.97}"),
    ] = None
    save_predictions: Annotated[
        bool,
        key(
            "write what the last validation predicted to valid_predictions.jsonl of the run "
            "folder: a line an example, in their order, as `predict` does"
        ),
    ] = False


class NodeSection(OpenSection):
    """What one node does otherwise. All other keys are options of its kind."""

    replicas: Annotated[
        Count | None,
        key(
            "of a node with parameters: as many processes, each with its own share of the "
            "instances (docs/replicas.md); null: 1",
            le=MOST_REPLICAS,
        ),
    ] = None
    optimizer: Annotated[
        dict[str, Any] | None,
        key("laid over training.optimizer; with another name, in its place", form=OPTIMIZER_FORM),
    ] = None
    lr_schedule: Annotated[
        dict[str, Any] | None,
        key(
            "laid over training.lr_schedule; with another name, in its place",
            form=LR_SCHEDULE_FORM,
        ),
    ] = None
    clip: Annotated[ClipOption | None, key("instead of training.clip", form=CLIP_FORM)] = None
    initializer: Annotated[
        InitializerOption | None,
        key(
            "instead of training.initializer; or by parameter: "
            "{weight: {name: normal, std: 0.01}, bias: zeros}",
            form=INITIALIZER_FORM,
        ),
    ] = None
    backward_weights: Annotated[
        BackwardWeightsOption | None, key("instead of training.backward_weights")
    ] = None
    delay: Annotated[
        DelayOption | None,
        key("instead of training.delay", unit="updates", form=DELAY_FORM),
    ] = None
    compensation: Annotated[
        CompensationOption | None,
        key("instead of training.compensation", form=COMPENSATION_FORM),
    ] = None
    update_every: Annotated[
        Count | None, key("instead of training.update_every", unit="examples")
    ] = None
    min_update_frequency: Annotated[
        AutoOrCount | None, key("instead of training.min_update_frequency", unit="rows")
    ] = None
    nan_limit: Annotated[int | None, key("instead of training.nan_limit", unit="updates", ge=0)] = (
        None
    )
    averaging: Annotated[
        dict[str, Any] | None,
        key("laid over training.averaging; with another name, in its place"),
    ] = None
    average_every: Annotated[
        EpochOrCount | None, key("instead of training.average_every", unit="updates")
    ] = None


class HostSection(Section):
    """One worker of `host`, and the nodes that share it."""

    nodes: Annotated[list[str], key("names of the model's nodes", min_length=1)]
    cores: Annotated[
        list[Annotated[int, Field(ge=0)]] | None,
        key("that it is pinned to, each with a BLAS thread; default: one, by load", min_length=1),
    ] = None
    name: Annotated[
        str | None,
        key(
            "of the worker and its log; default: its only node's, or worker-1, ...",
            pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$",
            words="1 to 41 characters a-z, 0-9, _ and -, a letter or digit first",
        ),
    ] = None


class PlacementSection(Section):
    """Which nodes share a worker, and on which cores; other nodes get a worker each."""

    host: Annotated[list[HostSection], key("the workers, one an item", min_length=1)]


class EverySection(Section):
    """What checkpoints are made after; whatever is reached first, since the last."""

    seconds: Annotated[Seconds | None, key("of training", unit="s")] = None
    epochs: Annotated[Count | None, key("with their validation", unit="epochs")] = None
    examples: Annotated[Count | None, key("trained on", unit="examples")] = None
    updates: Annotated[Count | None, key("of training.update_every examples each")] = None

    @model_validator(mode="after")
    def _names_one(self) -> EverySection:
        if not self.model_dump(exclude_none=True):
            raise ValueError("give seconds, epochs, examples or updates; or every: never")
        return self


class CheckpointSection(Section):
    """What a run can go on from, in checkpoints/ of its folder (docs/recovery.md)."""

    every: Annotated[
        Literal["never"] | EverySection,
        key(
            "when one is made, beside the end of the run; never: none is",
            form="{seconds: 60}",
        ),
    ] = EverySection(seconds=60.0)
    keep_last: Annotated[int, key("the newest that are kept", ge=1, le=1000)] = 2
    keep_best: Annotated[
        int,
        key(
            "the epochs kept that are best by the target's metric, or by the loss, of the "
            "validation; each that is among them makes a checkpoint",
            ge=0,
            le=1000,
        ),
    ] = 0
    fail_limit: Annotated[int, key("so many in a row that cannot be written end the run", ge=1)] = 3


class RuntimeSection(Section):
    """Where and how the processes run."""

    placement: Annotated[
        Literal["process_per_node", "packed"] | PlacementSection,
        key("which node runs in which worker; packed: as many workers as cores, by estimated load"),
    ] = "process_per_node"
    start_timeout_s: Annotated[Seconds, key("for all workers to be ready", unit="s")] = 30.0
    stall_timeout_s: Annotated[
        Seconds, key("without any instance retiring, before the run is given up", unit="s")
    ] = 120.0
    stop_timeout_s: Annotated[
        Seconds,
        key("for rows in flight at Ctrl-C, and then for a worker to end by itself", unit="s"),
    ] = 5.0
    recovery: Annotated[
        Literal["rollback", "none"],
        key(
            "when a worker dies, hangs or raises in training: rollback: it is started again, and "
            "all go back together (docs/recovery.md); none: the run ends. A recorded run ends too"
        ),
    ] = "rollback"
    max_restarts: Annotated[
        int,
        key("of workers within restart_window_s; one more ends the run", ge=0, le=1_000_000),
    ] = 5
    restart_window_s: Annotated[
        Seconds, key("in which no more than max_restarts may happen", unit="s")
    ] = 600.0
    quarantine_after: Annotated[
        Count,
        key(
            "crashes of one worker that an instance is in flight at, before it is left out; the "
            "instances that come into question go alone before the last of them"
        ),
    ] = 3
    hang_timeout_s: Annotated[
        Seconds,
        key(
            "without a word from a worker, which sends one a second unless a batch takes longer: "
            "its stacks are logged, and it counts as dead",
            unit="s",
        ),
    ] = 60.0
    shared_memory: Annotated[
        bool,
        key(
            "arrays of rows pass between processes through memory that they share; false: through "
            "sockets, as all else does"
        ),
    ] = True
    record: Annotated[
        bool,
        key(
            "each worker of a training run writes what it does in which order to trace/ of the "
            "run folder, for `replay` (docs/replay.md)"
        ),
    ] = False
    runs: Annotated[
        str,
        key("folder that run folders are made in; relative to the working directory", min_length=1),
    ] = "runs"


class Config(Section):
    """What one run does.

    Two configs are equal where all keys are equal, wherever they were written.
    """

    name: Annotated[
        str,
        key(
            "of the run, and of its folder in runs/",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
            words="letters, digits, . _ and -, at most 64, a letter or digit first",
        ),
    ]
    seed: Annotated[
        int, key("of everything random: parameters, generated data, order", ge=0, le=2**32 - 1)
    ] = 0
    dtype: Annotated[
        Literal["float32", "float64"], key("of parameters, payloads and gradients")
    ] = "float32"
    verify: Annotated[
        bool, key("check every answer against the state it answers; for debugging, slower")
    ] = False
    model: Annotated[ModelSection, key("which graph to build")]
    data: Annotated[DataSection, key("which examples to train on")]
    training: Annotated[TrainingSection, key("how to train")]
    nodes: Annotated[dict[str, NodeSection], key("what single nodes do otherwise, by name")] = {}
    runtime: Annotated[RuntimeSection, key("where and how the processes run")] = RuntimeSection()
    checkpoint: Annotated[CheckpointSection, key("what a run can go on from, and when")] = (
        CheckpointSection()
    )
    folder: Annotated[
        pathlib.Path,
        key(
            "package.module:function is found here first; default: the folder of this file",
            strict=False,
        ),
    ] = pathlib.Path(".")

    _document: Document = PrivateAttr(default_factory=lambda: Document("the configuration"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.to_plain() == other.to_plain()

    __hash__ = None  # type: ignore[assignment]  # options are dicts

    def to_plain(self) -> dict[str, Any]:
        """Return all keys, defaults included, as plain data."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """Return the text of a config file that loads as an equal config."""
        return write_text(self.to_plain())

    def place(self, path: str) -> str:
        """Say where a key was written: `configs/x.yaml:7`, or the override.

        For errors that come up later, such as an unknown option of a builder:
        `config.place("model.hiden")`. A key that was not written is placed at
        the nearest written key above it.
        """
        return str(self._document.place(tuple(path.split("."))))

    def placed(self, prefix: Path, problems: Iterable[Problem]) -> list[Problem]:
        """Return problems of the mapping at `prefix` with where each was written."""
        found = below(prefix, problems)
        return [replace(problem, place=self._document.place(problem.path)) for problem in found]

    def node_defaults(self) -> dict[str, Any]:
        """Return what nodes train with: the keys of `training` that a node can override."""
        training = self.training.model_dump()
        return {name: training[name] for name in NodeSection.model_fields if name in training}

    def node_overrides(self) -> dict[str, dict[str, Any]]:
        """Return {node: what `nodes.<node>` sets}, training and options of its kind alike."""
        return {
            node: {
                key: value
                for key, value in section.model_dump().items()
                if value is not None or key in section.options
            }
            for node, section in self.nodes.items()
        }


# ------------------------------------------------------------------------------ loading


class BadConfigError(ConfigProblemsError):
    """A config breaks the schema.

    Attributes:
        rest: the config without the keys that do, where that is one: its options can
            be checked all the same.
    """

    rest: Config | None = None


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Config:
    """Read a config file and lay `key=value` overrides over it, the last one winning.

    Raises:
        ConfigProblemsError: the file cannot be read, or is no mapping.
        BadConfigError: with all keys that are wrong, each with its place, value and rule.
    """
    document = read_file(path)
    if not isinstance(document.value, dict):
        said = f"must be a mapping of keys to values, not {shown(document.value)}"
        raise ConfigProblemsError.of([Problem((), said, document.place(()))], document.origin)
    for override in overrides:
        document.override(override)
    given = document.value
    beside = pathlib.Path(path).resolve().parent
    if isinstance(folder := given.get("folder", "."), str):
        given["folder"] = str(beside / folder)
    problems = list(document.problems)
    try:
        config = Config.model_validate(given)
    except ValidationError as error:
        said_of = {problem.path for problem in problems}
        problems += [
            Problem(p.path, _home(p) or p.said, document.place(p.path), p.unknown)
            for p in problems_of(error, given, json_schema())
            # What could not be read needs no second complaint that it is null.
            if not any(p.path[:n] in said_of for n in range(1, len(p.path) + 1))
        ]
    if problems:
        raised = BadConfigError.of(problems, document.origin)
        raised.rest = _rest(given, problems, document)
        raise raised
    config._document = document
    return config


def _rest(given: dict[str, Any], problems: Sequence[Problem], document: Document) -> Config | None:
    """Return the config without the keys that are wrong; None where they are needed."""
    rest = copy.deepcopy(given)
    for problem in problems:
        branch: Any = rest
        for piece in problem.path[:-1]:
            branch = branch.get(piece) if isinstance(branch, dict) else None
        if problem.path and isinstance(branch, dict):
            branch.pop(problem.path[-1], None)
    try:
        config = Config.model_validate(rest)
    except ValidationError:
        return None
    config._document = document
    return config


def _home(problem: Problem) -> str:
    """Say which section has an unknown key, '' if none: the usual slip is a wrong indent."""
    if not problem.unknown:
        return ""
    home = [
        f"in {name!r}" if name else "at the top"
        for name, section in sections().items()
        if problem.path[-1] in section["properties"]
    ]
    return f"unknown key here; it belongs {' or '.join(home)}" if home else ""


# ----------------------------------------------------------------------------- teaching


def json_schema() -> Schema:
    """Return the JSON schema of a config file, for editors."""
    return Config.model_json_schema()


def sections() -> dict[str, Schema]:
    """Return the schema of each mapping of a config: '', `model`, ..., `nodes.<name>`."""
    root = json_schema()
    found: dict[str, Schema] = {}

    def visit(name: str, schema: Schema) -> None:
        for branch in schema.get("anyOf", [schema]):
            if inner := properties(branch, root):
                # The reference alone: beside it stands what the key means, not the section.
                found[name] = resolved(
                    {"$ref": branch["$ref"]} if "$ref" in branch else branch, root
                )
            for key_name, value in inner.items():
                path = f"{name}.{key_name}".lstrip(".")
                visit(path, value)
                visit(f"{path}.<name>", value.get("additionalProperties") or {})
                visit(f"{path}[]", value.get("items") or {})

    visit("", root)
    return found
