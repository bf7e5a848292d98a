"""Adagrad (Duchi, Hazan, Singer, JMLR 12, 2011)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from amp_runtime.limits import Ge, Gt
from amp_runtime.optim.base import Optimizer, State
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

    @property
    def rests_at_zero(self) -> bool:
        return not self.options.weight_decay

    def initial_state(self) -> Mapping[str, float]:
        return {"sum_of_squares": self.options.initial}

    def update(self, parameter: Array, gradient: Array, state: State) -> None:
        total = state["sum_of_squares"]
        total += gradient * gradient
        gradient *= self.lr
        gradient /= np.sqrt(total) + np.asarray(self.options.eps, total.dtype)
        parameter -= gradient
