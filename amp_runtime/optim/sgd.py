"""Stochastic gradient descent, with momentum in the sum form, plain or Nesterov's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from amp_runtime.limits import Ge, Gt, Lt
from amp_runtime.optim.base import Optimizer, State
from amp_runtime.rows.spec import Array


class SGD(Optimizer):
    """v = momentum * v + g;  p -= lr * v, or with `nesterov` lr * (g + momentum * v).

    Equal to torch.optim.SGD without dampening.
    """

    name = "sgd"

    @dataclass(frozen=True, slots=True)
    class Options:
        lr: Annotated[float, Gt(0), "learning rate"]
        momentum: Annotated[float, Ge(0), Lt(1), "decay of the velocity"] = 0.0
        nesterov: Annotated[bool, "look one step of the velocity ahead"] = False
        weight_decay: Annotated[float, Ge(0), "times the parameter, added to its gradient"] = 0.0

        def __post_init__(self) -> None:
            if self.nesterov and not self.momentum:
                raise ValueError("nesterov: needs a momentum above 0")

    @property
    def rests_at_zero(self) -> bool:
        return not self.options.momentum and not self.options.weight_decay

    @classmethod
    def momentum_of(cls, options: Any) -> float:
        return float(options.momentum)

    def ahead(
        self, parameter: Array, state: State, lrs: Sequence[float], out: Array, *, decaying: bool
    ) -> None:
        momentum = self.momentum if decaying else 1.0
        if self.options.nesterov:  # without a gradient its step is lr * momentum * v
            lrs = [lr * momentum for lr in lrs]
        self._along(state["velocity"], lrs, parameter, out, momentum)

    def initial_state(self) -> Mapping[str, float]:
        return {"velocity": 0.0} if self.options.momentum else {}

    def update(self, parameter: Array, gradient: Array, state: State) -> None:
        if self.options.momentum:
            velocity = state["velocity"]
            velocity *= self.momentum
            velocity += gradient
            if self.options.nesterov:
                gradient += self.momentum * velocity
            else:
                gradient[...] = velocity
        gradient *= self.lr * self._shorter
        parameter -= gradient
