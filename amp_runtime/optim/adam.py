"""Adam (Kingma and Ba, arXiv:1412.6980) with bias correction, and AdamW."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from amp_runtime.limits import Ge, Gt, Lt
from amp_runtime.optim.base import Optimizer, State
from amp_runtime.rows.spec import Array


class Adam(Optimizer):
    """m, s: decayed means of g and g^2;  p -= lr * m^ / (sqrt(s^) + eps).

    Class attributes:
        decoupled: `weight_decay` shrinks the parameter, and is no part of the gradient.
    """

    name = "adam"
    decoupled: ClassVar[bool] = False

    @dataclass(frozen=True, slots=True)
    class Options:
        lr: Annotated[float, Gt(0), "learning rate"] = 0.001
        beta1: Annotated[float, Ge(0), Lt(1), "decay of the mean gradient"] = 0.9
        beta2: Annotated[float, Ge(0), Lt(1), "decay of the mean squared gradient"] = 0.999
        eps: Annotated[float, Gt(0), "added to the root of the mean square"] = 1e-8
        weight_decay: Annotated[float, Ge(0), "times the parameter, added to its gradient"] = 0.0

    def __init__(self, options: Any, parameters: Mapping[str, Array]) -> None:
        super().__init__(options, parameters)
        # Kept, as fresh pages at each step would cost as much as the step.
        self._scratch = {_form(array): np.empty_like(array) for array in parameters.values()}

    def initial_state(self) -> Mapping[str, float]:
        return {"mean": 0.0, "mean_square": 0.0}

    def update(self, parameter: Array, gradient: Array, state: State) -> None:
        o, mean, mean_square = self.options, state["mean"], state["mean_square"]
        scratch = self._scratch.get(_form(parameter))
        if scratch is None:  # some rows of a table, others each time
            scratch = np.empty_like(parameter)
        mean *= self.momentum
        np.multiply(gradient, 1 - self.momentum, out=scratch)
        mean += scratch
        mean_square *= o.beta2
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1 - o.beta2
        mean_square += scratch
        # sqrt(s / (1 - beta2^t)) + eps, then lr / (1 - beta1^t) * m / that
        np.sqrt(mean_square, out=scratch)
        scratch /= math.sqrt(1 - o.beta2**self.steps)
        scratch += o.eps
        np.divide(mean, scratch, out=scratch)
        scratch *= self.lr / (1 - o.beta1**self.steps)
        parameter -= scratch

    @classmethod
    def momentum_of(cls, options: Any) -> float:
        return float(options.beta1)

    def ahead(
        self, parameter: Array, state: State, lrs: Sequence[float], out: Array, *, decaying: bool
    ) -> None:
        """Go along m^ / (sqrt(s^) + eps), corrected for its bias by the steps that were made.

        Decaying, m shrinks by beta1 a step, while s stays and the corrections go on.
        Source: XPipe, arXiv:1911.04610; decaying: as multi-step Nesterov for Adam, FTPipe,
        USENIX ATC 2021.
        """
        out[...] = parameter
        if not self.steps:  # nothing is known yet
            return
        o, mean, root = self.options, state["mean"], np.sqrt(state["mean_square"])
        steps = [(self.steps, sum(lrs), 1.0)]
        if decaying:
            steps = [(self.steps + k, lr, self.momentum**k) for k, lr in enumerate(lrs, 1)]
        for t, lr, part in steps:
            move = root / math.sqrt(1 - o.beta2**t)
            move += o.eps
            np.divide(mean, move, out=move)
            move *= lr * part / (1 - o.beta1**t)
            if self.decoupled:
                out *= 1 - lr * o.weight_decay
            out -= move


def _form(array: Array) -> tuple[Any, ...]:
    return array.shape, array.dtype


class AdamW(Adam):
    """Adam with decoupled weight decay: the parameter shrinks by lr * weight_decay a step.

    Source: Loshchilov and Hutter, arXiv:1711.05101.
    """

    name = "adamw"
    decoupled = True

    @dataclass(frozen=True, slots=True)
    class Options(Adam.Options):
        weight_decay: Annotated[float, Ge(0), "times lr, shrinks the parameter each step"] = 0.01

    def decay(self, parameter: Array, gradient: Array) -> None:
        parameter *= 1 - self.lr * self.options.weight_decay
