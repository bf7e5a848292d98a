"""The options of a node's updates: the defaults, the builder's, the user's, laid over another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

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
    # Imported here: workers load this module with a model's, and never check options.
    from amp_runtime.checking.options import validate_options

    options = dict(given)
    name = options.pop("name")
    if name not in OPTIMIZERS:
        raise UnknownOptionError(
            f"unknown optimizer {name!r}{nearest(str(name), OPTIMIZERS)}",
            where=where,
            fix=f"use one of {', '.join(OPTIMIZERS)}",
        )
    checked = validate_options(
        OPTIMIZERS[name].Options, options, where=f"{where}, optimizer {name}"
    )
    return {"name": name, **plain_options(checked)}


def plain_options(options: Any) -> dict[str, Any]:
    """Return a validated options record as plain data, tuples as lists."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items()}
