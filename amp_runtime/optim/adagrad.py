"""Adagrad (Duchi, Hazan, Singer, JMLR 12, 2011)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt

from amp_runtime.optim.base import Optimizer
from amp_runtime.rows.spec import Array


class Adagrad(Optimizer):
    """s += g^2;  p -= lr * g / (sqrt(s) + eps)."""

    name = "adagrad"

    @dataclass(frozen=True, slots=True)
    class Options:
        lr: Annotated[float, Gt(0), "learning rate"] = 0.01
        initial: Annotated[float, Ge(0), "sum of squared gradients at the start"] = 0.0
        eps: Annotated[float, Gt(0), "added to the root of the sum"] = 1e-10
        weight_decay: Annotated[float, Ge(0), "times the parameter, added to its gradient"] = 0.0

    def __init__(self, options: Any, parameters: Mapping[str, Array]) -> None:
        super().__init__(options, parameters)
        self.sum_of_squares = {
            name: np.full_like(array, options.initial) for name, array in parameters.items()
        }

    def update(self, name: str, parameter: Array, gradient: Array) -> None:
        total = self.sum_of_squares[name]
        total += gradient * gradient
        gradient *= self.options.lr
        gradient /= np.sqrt(total) + np.asarray(self.options.eps, total.dtype)
        parameter -= gradient
