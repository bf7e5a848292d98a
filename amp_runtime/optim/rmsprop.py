"""RMSprop (Tieleman and Hinton, Coursera lecture 6.5, 2012)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.limits import Ge, Gt, Lt
from amp_runtime.optim.base import Optimizer, State
from amp_runtime.rows.spec import Array


class RMSprop(Optimizer):
    """s = decay * s + (1 - decay) * g^2;  d = g / (sqrt(s) + eps);  p -= lr * d.

    With momentum, v = momentum * v + d takes the place of d. Equal to torch.optim.RMSprop.
    """

    name = "rmsprop"

    @dataclass(frozen=True, slots=True)
    class Options:
        lr: Annotated[float, Gt(0), "learning rate"] = 0.01
        decay: Annotated[float, Ge(0), Lt(1), "decay of the mean squared gradient"] = 0.99
        eps: Annotated[float, Gt(0), "added to the root of the mean square"] = 1e-8
        momentum: Annotated[float, Ge(0), Lt(1), "decay of the velocity"] = 0.0
        weight_decay: Annotated[float, Ge(0), "times the parameter, added to its gradient"] = 0.0

    @classmethod
    def momentum_of(cls, options: Any) -> float:
        return float(options.momentum)

    def ahead(
        self, parameter: Array, state: State, lrs: Sequence[float], out: Array, *, decaying: bool
    ) -> None:
        momentum = self.momentum if decaying else 1.0
        self._along(state["velocity"], lrs, parameter, out, momentum)

    def initial_state(self) -> Mapping[str, float]:
        return {"mean_square": 0.0, **({"velocity": 0.0} if self.options.momentum else {})}

    def update(self, parameter: Array, gradient: Array, state: State) -> None:
        o, mean_square = self.options, state["mean_square"]
        mean_square *= o.decay
        mean_square += (1 - o.decay) * (gradient * gradient)
        gradient /= np.sqrt(mean_square) + np.asarray(o.eps, mean_square.dtype)
        if o.momentum:
            velocity = state["velocity"]
            velocity *= self.momentum
            velocity += gradient
            gradient[...] = velocity
        gradient *= self.lr * self._shorter
        parameter -= gradient
