"""The options of a node's updates: the defaults, the builder's, the user's, laid over another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from amp_runtime.checking.rules import Problem, below, dotted
from amp_runtime.errors import BadOptionError, UnknownOptionError, nearest
from amp_runtime.nodes.node import Node
from amp_runtime.optim import OPTIMIZERS

DEFAULT_TRAINING: Mapping[str, Any] = {
    "optimizer": {"name": "sgd", "lr": 0.1},
    "update_every": 100,
    "min_update_frequency": "auto",
}
TRAINING_OPTIONS = tuple(DEFAULT_TRAINING)


def training_options(
    cls: type[Node],
    defaults: Mapping[str, Any],
    layers: tuple[Mapping[str, Any], ...],
    where: str,
) -> dict[str, Any]:
    """Return the training options of a node; {} for one without parameters.

    Args:
        defaults: of all nodes, from `training:`.
        layers: options of this node, the strongest last; others are passed over.
        where: the node, for errors.
    Raises:
        UnknownOptionError: no such optimizer or option of it, or a node without parameters.
        BadOptionError: a value of the wrong type or range.
    """
    given = [{k: v for k, v in layer.items() if k in TRAINING_OPTIONS} for layer in layers]
    if not cls.parameterised:
        for name in (name for layer in given for name in layer):
            raise UnknownOptionError(f"option {name!r} is for nodes with parameters", where=where)
        return {}
    training: dict[str, Any] = {**DEFAULT_TRAINING, **defaults}
    for layer in given:
        if "optimizer" in layer:
            layer["optimizer"] = _laid_over(training["optimizer"], layer["optimizer"])
        training |= layer
    for key in ("update_every", "min_update_frequency"):
        value = training[key]
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not is_count and not (key == "min_update_frequency" and value == "auto"):
            raise BadOptionError(
                f"option {key!r}: {value!r} is not a whole number >= 1", where=where
            )
    training["optimizer"] = check_optimizer(training["optimizer"], where)
    return training


def _laid_over(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given` optimizer options over `base`; of another optimizer, instead of it."""
    same = given.get("name") in (None, base["name"])
    return {**base, **given} if same else dict(given)


def check_optimizer(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return all options of an optimizer, `name` among them.

    Raises:
        UnknownOptionError: no such optimizer, or no such option of it.
        BadOptionError: a value of the wrong type or range.
    """
    if problems := optimizer_problems(given):
        unknown = any(problem.unknown for problem in problems)
        what = "; ".join(": ".join(filter(None, [dotted(p.path), p.said])) for p in problems)
        raise (UnknownOptionError if unknown else BadOptionError)(
            what, where=f"{where}, optimizer {given['name']}"
        )
    # Imported here: workers load this module with a model's, and never check options.
    from amp_runtime.checking.options import validate_options

    options = {key: value for key, value in given.items() if key != "name"}
    checked = validate_options(OPTIMIZERS[given["name"]].Options, options, where=where)
    return {"name": given["name"], **plain_options(checked)}


def optimizer_problems(given: Mapping[str, Any]) -> list[Problem]:
    """Return all that is wrong with an optimizer's options, `name` among them."""
    from amp_runtime.checking.options import check_options

    name = given["name"]
    if not isinstance(name, str) or name not in OPTIMIZERS:
        use = f"use one of {', '.join(OPTIMIZERS)}"
        said = f"unknown optimizer {name!r}{nearest(str(name), OPTIMIZERS)}; {use}"
        return [Problem(("name",), said, unknown=True)]
    options = {key: value for key, value in given.items() if key != "name"}
    _, problems = check_options(
        OPTIMIZERS[name].Options, options, word=f"option of optimizer {name}"
    )
    return problems


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

    problems = []
    for key in (key for key in TRAINING_OPTIONS if key in overrides and not cls.parameterised):
        said = f"is for nodes with parameters, and kind {kind} has none"
        problems.append(Problem((key,), said, unknown=True))
    if cls.parameterised and "optimizer" in overrides:
        base = {**DEFAULT_TRAINING, **defaults}["optimizer"]
        for layer in (options, overrides):
            base = _laid_over(base, layer.get("optimizer", {}))
        problems += below(("optimizer",), optimizer_problems(base))
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
