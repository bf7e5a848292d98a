"""What every optimiser is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from amp_runtime.optim.row_gradients import RowGradient
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array

State = Mapping[str, Array]
"""What an optimiser keeps of one parameter array: arrays of its shape, by name."""


class Optimizer(ABC):
    """Updates the parameters of one node.

    `Options` is a frozen dataclass that holds `lr` and `weight_decay`, and what else the
    optimiser needs. An optimiser is written for whole arrays; a gradient of some rows of
    a table runs through the same code, on those rows.

    Attributes:
        lr: of the next step.
        momentum: of the next step, the option's or more; 0: it keeps none.
        state: {parameter name: what is kept of it}.

    Args:
        options: an instance of this class's `Options`.
        parameters: {name: array}; the arrays are updated in place.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]]

    def __init__(self, options: Any, parameters: Mapping[str, Array]) -> None:
        self.options = options
        self.parameters = parameters
        self.lr = float(options.lr)
        self.momentum = self.momentum_of(options)
        self.steps = 0
        self.state: dict[str, State] = {
            name: {kept: np.full_like(array, value) for kept, value in self.initial_state().items()}
            for name, array in parameters.items()
        }
        self._dense: dict[str, Array] = {}

    def step(
        self,
        gradients: Mapping[str, Array | RowGradient],
        *,
        lr_factor: float = 1.0,
        momentum: float = 0.0,
    ) -> None:
        """Take one step.

        Args:
            gradients: {name: array, or rows of it}; they may be overwritten.
            lr_factor: times the option `lr`.
            momentum: at least so much, where it keeps any. A gradient moves a parameter as far
                in all as it does with the option's, over more steps.
        """
        self.steps += 1
        self.lr = float(self.options.lr * lr_factor)
        if own := self.momentum_of(self.options):
            self.momentum = max(own, momentum)
        for name, gradient in gradients.items():
            if not isinstance(gradient, RowGradient):
                self._step_array(self.parameters[name], gradient, self.state[name])
            elif gradient.lazy or self.rests_at_zero:
                self._step_rows(name, gradient)
            else:
                dense = self._dense.setdefault(name, np.empty_like(self.parameters[name]))
                dense[...] = 0
                dense[gradient.rows] = gradient.values
                self._step_array(self.parameters[name], dense, self.state[name])

    def _step_array(self, parameter: Array, gradient: Array, state: State) -> None:
        if self.options.weight_decay:
            self.decay(parameter, gradient)
        self.update(parameter, gradient, state)

    def _step_rows(self, name: str, gradient: RowGradient) -> None:
        """Step some rows alone: they are copied out, stepped as an array, and copied back."""
        rows = gradient.rows
        parameter = self.parameters[name][rows]
        state = {kept: array[rows] for kept, array in self.state[name].items()}
        self._step_array(parameter, gradient.values, state)
        self.parameters[name][rows] = parameter
        for kept, array in state.items():
            self.state[name][kept][rows] = array

    def reset(self) -> None:
        """Begin anew, with the parameters as they are."""
        self.steps = 0
        for state in self.state.values():
            for kept, value in self.initial_state().items():
                state[kept][...] = value

    def save(self) -> Saved:
        """Return what it goes on from, beside the parameters."""
        numbers = {"steps": self.steps, "lr": self.lr, "momentum": self.momentum}
        return Saved(numbers, self._kept())

    def restore(self, saved: Saved, where: str) -> None:
        """Go on from what `save` returned.

        Raises:
            ParametersError: it was another optimiser's, or of other parameters.
        """
        saved.fill(self._kept(), where)
        self.steps, self.lr = saved.numbers["steps"], saved.numbers["lr"]
        self.momentum = saved.numbers["momentum"]

    def _kept(self) -> dict[str, Array]:
        return {
            f"{kept}@{name}": array
            for name, state in self.state.items()
            for kept, array in state.items()
        }

    @property
    def rests_at_zero(self) -> bool:
        """Whether a gradient of zero changes nothing: rows without one need no step."""
        return False

    @classmethod
    def momentum_of(cls, options: Any) -> float:
        """Return how much of a direction it keeps at a step, that `ahead` goes along; 0: none."""
        return 0.0

    @property
    def _shorter(self) -> float:
        """What each step of a summed velocity is multiplied by: there are more of a gradient."""
        return (1 - self.momentum) / (1 - self.momentum_of(self.options))

    def ahead(
        self, parameter: Array, state: State, lrs: Sequence[float], out: Array, *, decaying: bool
    ) -> None:
        """Write what a parameter will be in so many steps, as far as its momentum tells.

        Args:
            parameter, state: of whole arrays or of some of their rows, unchanged.
            lrs: learning rates of the steps to come; of a part of a step the same part.
            out: of the parameter's shape.
            decaying: no gradient comes any more, so that momentum decays; else the gradients
                that come keep it as it is.
        """
        raise NotImplementedError(f"optimizer {self.name} keeps no direction")

    def initial_state(self) -> Mapping[str, float]:
        """Return what is kept of each parameter array, and the value it begins with."""
        return {}

    def decay(self, parameter: Array, gradient: Array) -> None:
        """Apply `weight_decay`: here as the gradient of weight_decay / 2 * |parameter|^2."""
        gradient += self.options.weight_decay * parameter

    def _along(
        self, velocity: Array, lrs: Sequence[float], parameter: Array, out: Array, decay: float
    ) -> None:
        """Write `parameter` after steps of lr * velocity, which is `decay` times as large in each.

        Args:
            decay: before the first of them too.
        """
        total = self._shorter * sum(lr * decay ** (1 + k) for k, lr in enumerate(lrs))
        np.multiply(velocity, -total, out=out)
        out += parameter

    @abstractmethod
    def update(self, parameter: Array, gradient: Array, state: State) -> None:
        """Update an array and its state in place by `self.lr`; `gradient` may be overwritten."""
