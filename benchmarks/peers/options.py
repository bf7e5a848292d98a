"""The optimizer that a config has, with all of its options."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from amp_runtime.config.schema import Config
from amp_runtime.optim import OPTIMIZERS


def optimizer_of(config: Config) -> dict[str, Any]:
    """Return options of ours, `name` among them, those too that the config leaves out."""
    given = dict(config.node_defaults()["optimizer"])
    name = given.pop("name")
    return {"name": name, **asdict(OPTIMIZERS[name].Options(**given))}
