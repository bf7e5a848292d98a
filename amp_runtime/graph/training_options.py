"""The options of a node's updates: the defaults, the builder's, the user's, laid over another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from amp_runtime.checking.rules import Problem, below, dotted, shown
from amp_runtime.errors import BadOptionError, UnknownOptionError, nearest
from amp_runtime.nodes.initializers import ALL_WEIGHTS, INITIALIZERS
from amp_runtime.nodes.node import Node
from amp_runtime.optim import OPTIMIZERS
from amp_runtime.optim.clip import Clip
from amp_runtime.optim.lr_schedules import LR_SCHEDULES
from amp_runtime.remedies.backward_weights import BackwardWeights

DEFAULT_TRAINING: Mapping[str, Any] = {
    "optimizer": {"name": "sgd", "lr": 0.1},
    "lr_schedule": {"name": "constant"},
    "clip": "none",
    "initializer": "own",
    "backward_weights": "live",
    "delay": 0,
    "compensation": "auto",
    "update_every": 100,
    "min_update_frequency": "auto",
    "nan_limit": 10,
    "replicas": 1,
    "averaging": {"name": "mean"},
    "average_every": "epoch",
}
TRAINING_OPTIONS = tuple(DEFAULT_TRAINING)

_MERGED = ("optimizer", "lr_schedule", "averaging")
"""Laid over what is weaker, key by key, as long as the name stays the same."""


def training_options(
    cls: type[Node],
    defaults: Mapping[str, Any],
    layers: tuple[Mapping[str, Any], ...],
    where: str,
) -> dict[str, Any]:
    """Return the training options of a node, checked; {} for one without parameters.

    Args:
        defaults: of all nodes, from `training:`.
        layers: options of this node, the strongest last; others are passed over.
        where: the node, for errors.
    Raises:
        UnknownOptionError: no such optimizer or option of it, or a node without parameters.
        BadOptionError: a value of the wrong type or range.
    """
    if not cls.parameterised:
        for name in (name for layer in layers for name in layer if name in TRAINING_OPTIONS):
            raise UnknownOptionError(f"option {name!r} is for nodes with parameters", where=where)
        return {}
    training = _layered(defaults, layers)
    checked, problems = check_training(training)
    if problems:
        unknown = any(problem.unknown for problem in problems)
        what = "; ".join(": ".join(filter(None, [dotted(p.path), p.said])) for p in problems)
        raise (UnknownOptionError if unknown else BadOptionError)(what, where=where)
    return checked


def _layered(defaults: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all training options, from the weakest layer to the strongest."""
    training = dict(DEFAULT_TRAINING)
    for layer in (defaults, *layers):
        for option in (option for option in TRAINING_OPTIONS if option in layer):
            value = layer[option]
            if option in _MERGED and isinstance(value, Mapping):
                value = _laid_over(training[option], value)
            if option == "initializer" and layer is defaults and _is_one(value):
                value = {ALL_WEIGHTS: value}  # of nodes that have any
            training[option] = value
    return training


def _laid_over(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given` over `base`; where it has another name, instead of it."""
    same = given.get("name") in (None, base["name"])
    return {**base, **given} if same else dict(given)


def check_training(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return training options as plain data, their own defaults filled in, and all problems."""
    checked: dict[str, Any] = {}
    problems: list[Problem] = []
    for option, value in given.items():
        checked[option], wrong = _CHECKS[option](value)
        problems += below((option,), wrong)
    given_remedies = isinstance(checked.get("compensation"), Mapping)
    if not problems and given_remedies and "optimizer" in checked:
        # Imported here: workers load this module with a model's, and never check options.
        from amp_runtime.remedies.options import misfit

        if said := misfit(checked["compensation"], checked["optimizer"]):
            problems.append(Problem(("compensation",), said))
    return checked, problems


MOST_REPLICAS = 256
_Checked = tuple[Any, list[Problem]]


def _check_count(value: Any) -> _Checked:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    wrong = Problem((), f"must be a whole number (at least 1), not {shown(value)}")
    return value, [] if is_count else [wrong]


def _check_limit(value: Any) -> _Checked:
    is_limit = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    wrong = Problem((), f"must be a whole number (0 or more), not {shown(value)}")
    return value, [] if is_limit else [wrong]


def _check_frequency(value: Any) -> _Checked:
    return (value, []) if value == "auto" else _check_count(value)


def _check_replicas(value: Any) -> _Checked:
    checked, problems = _check_count(value)
    if not problems and value > MOST_REPLICAS:
        said = f"must be at most {MOST_REPLICAS}, each a process, not {shown(value)}"
        problems = [Problem((), said)]
    return checked, problems


def _check_averaging(value: Any) -> _Checked:
    # Imported here: as below.
    from amp_runtime.optim.averaging import AVERAGING

    table = {name: cls.Options for name, cls in AVERAGING.items()}
    return _check_named(value, "averaging", table)


def _check_average_every(value: Any) -> _Checked:
    if value == "epoch":
        return value, []
    checked, problems = _check_count(value)
    said = f"must be epoch, or a whole number of updates (at least 1), not {shown(value)}"
    return checked, [Problem((), said)] if problems else []


def _check_backward_weights(value: Any) -> _Checked:
    names = [which.value for which in BackwardWeights]
    wrong = Problem((), f"must be {', '.join(names[:-1])} or {names[-1]}, not {shown(value)}")
    return value, [] if value in names else [wrong]


def _check_delay(value: Any) -> _Checked:
    # Imported here: as below.
    from amp_runtime.delay.options import DELAYS, MOST_DELAY

    if isinstance(value, Mapping):
        return _check_named(value, "delay", DELAYS)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_DELAY
    said = (
        f"must be a whole number of updates (0 to {MOST_DELAY}), or a mapping as "
        f"{{name: random, low: 0, high: 8}}, not {shown(value)}"
    )
    return value, [] if is_count else [Problem((), said)]


def _check_compensation(value: Any) -> _Checked:
    # Imported here: as below.
    from amp_runtime.remedies.options import Compensation

    if value in ("auto", "none"):
        return value, []
    if not isinstance(value, Mapping):
        said = f"must be auto, none, or a mapping as {{predict: linear}}, not {shown(value)}"
        return value, [Problem((), said)]
    return _check_record(Compensation, value, "option of compensation")


def _check_optimizer(value: Any) -> _Checked:
    return _check_named(value, "optimizer", {n: cls.Options for n, cls in OPTIMIZERS.items()})


def _check_lr_schedule(value: Any) -> _Checked:
    return _check_named(value, "lr_schedule", LR_SCHEDULES)


def _check_clip(value: Any) -> _Checked:
    if value == "none":
        return value, []
    if not isinstance(value, Mapping):
        said = f"must be 'none', {{norm: NUMBER}} or {{value: NUMBER}}, not {shown(value)}"
        return value, [Problem((), said)]
    return _check_record(Clip, value, "option of clip")


def _check_initializer(value: Any) -> _Checked:
    """Check `own`, one initialiser for all weights, or one for each of some parameters."""
    if value == "own":
        return value, []
    if _is_one(value):
        return _check_one_initializer(value)
    if not isinstance(value, Mapping):
        return value, [Problem((), f"must be a name, or a mapping, not {shown(value)}")]
    checked: dict[str, Any] = {}
    problems: list[Problem] = []
    for parameter, one in value.items():
        checked[parameter], wrong = _check_one_initializer(one)
        problems += below((parameter,), wrong)
    return checked, problems


def _is_one(value: Any) -> bool:
    """Whether an option `initializer` is one for all weights, and not one by parameter."""
    if isinstance(value, Mapping):
        return isinstance(value.get("name"), str)
    return isinstance(value, str) and value != "own"


def _check_one_initializer(value: Any) -> _Checked:
    if not isinstance(value, str):
        return _check_named(value, "initializer", INITIALIZERS)
    checked, problems = _check_named({"name": value}, "initializer", INITIALIZERS)
    return checked, [replace(problem, path=()) for problem in problems]


def _check_named(value: Any, what: str, table: Mapping[str, type]) -> _Checked:
    """Check `{name: ..., its options}` against the options of that name in `table`."""
    if not isinstance(value, Mapping) or "name" not in value:
        said = f"must be a mapping with a name, not {shown(value)}"
        return value, [Problem((), said)]
    options = dict(value)
    name = options.pop("name")
    if not isinstance(name, str) or name not in table:
        use = f"use one of {', '.join(table)}"
        said = f"unknown {what} {name!r}{nearest(str(name), table)}; {use}"
        return value, [Problem(("name",), said, unknown=True)]
    checked, problems = _check_record(table[name], options, f"option of {what} {name}")
    return {"name": name, **checked}, problems


def _check_record(cls: type, options: Mapping[str, Any], word: str) -> _Checked:
    # Imported here: workers load this module with a model's, and never check options.
    from amp_runtime.checking.options import check_options

    record, problems = check_options(cls, options, word=word)
    return ({} if record is None else plain_options(record)), problems


_CHECKS: Mapping[str, Callable[[Any], _Checked]] = {
    "optimizer": _check_optimizer,
    "lr_schedule": _check_lr_schedule,
    "clip": _check_clip,
    "initializer": _check_initializer,
    "backward_weights": _check_backward_weights,
    "delay": _check_delay,
    "compensation": _check_compensation,
    "update_every": _check_count,
    "min_update_frequency": _check_frequency,
    "nan_limit": _check_limit,
    "replicas": _check_replicas,
    "averaging": _check_averaging,
    "average_every": _check_average_every,
}


def override_problems(
    kind: str,
    cls: type[Node],
    defaults: Mapping[str, Any],
    options: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> list[Problem]:
    """Return what is wrong with a config's options for one node: `nodes.<name>`.

    Args:
        defaults: of all nodes, from `training:`.
        options: what the model's builder says.
        overrides: what the config says, laid over it.
    """
    from amp_runtime.checking.options import check_options

    training = [option for option in TRAINING_OPTIONS if option in overrides]
    if cls.parameterised and (pair := {"optimizer", "compensation"}) & overrides.keys():
        training = list(dict.fromkeys([*training, *sorted(pair)]))  # they must go together
    if cls.parameterised:
        layered = _layered(defaults, (options, overrides))
        _, problems = check_training({option: layered[option] for option in training})
    else:
        said = f"is for nodes with parameters, and kind {kind} has none"
        problems = [Problem((option,), said, unknown=True) for option in training]
    merged = {k: v for k, v in {**options, **overrides}.items() if k not in TRAINING_OPTIONS}
    _, wrong = check_options(cls.Options, merged, word=f"option of kind {kind}")
    also = f"; it also takes {', '.join(TRAINING_OPTIONS)}" if cls.parameterised else ""
    return problems + [
        replace(p, said=p.said + also * p.unknown)
        for p in wrong
        # What the builder alone got wrong is no fault of the config.
        if not p.path or p.path[0] in overrides
    ]


def plain_options(options: Any) -> dict[str, Any]:
    """Return a validated options record as plain data, tuples as lists."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items()}
