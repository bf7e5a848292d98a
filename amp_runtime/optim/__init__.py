"""Optimisers, one class a file; each updates one node's parameters in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_runtime.optim.adagrad import Adagrad
from amp_runtime.optim.adam import Adam, AdamW
from amp_runtime.optim.base import Optimizer
from amp_runtime.optim.rmsprop import RMSprop
from amp_runtime.optim.sgd import SGD
from amp_runtime.rows.spec import Array

OPTIMIZERS: Mapping[str, type[Optimizer]] = {
    cls.name: cls for cls in (SGD, Adagrad, RMSprop, Adam, AdamW)
}


def make_optimizer(options: Mapping[str, Any], parameters: Mapping[str, Array]) -> Optimizer:
    """Return the optimiser for validated `options`, `name` among them."""
    values = dict(options)
    cls = OPTIMIZERS[values.pop("name")]
    return cls(cls.Options(**values), parameters)


__all__ = ["OPTIMIZERS", "Optimizer", "make_optimizer"]
