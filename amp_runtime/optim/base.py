"""What every optimiser is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from amp_runtime.rows.spec import Array


class Optimizer(ABC):
    """Updates the parameters of one node.

    `Options` is a frozen dataclass that holds `lr` and `weight_decay`, and what else the
    optimiser needs.

    Args:
        options: an instance of this class's `Options`.
        parameters: {name: array}; the arrays are updated in place.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]]

    def __init__(self, options: Any, parameters: Mapping[str, Array]) -> None:
        self.options = options
        self.parameters = parameters
        self.steps = 0

    def step(self, gradients: Mapping[str, Array]) -> None:
        """Take one step with `gradients` ({name: array}, which may be overwritten)."""
        self.steps += 1
        for name, gradient in gradients.items():
            parameter = self.parameters[name]
            if self.options.weight_decay:
                self.decay(parameter, gradient)
            self.update(name, parameter, gradient)

    def decay(self, parameter: Array, gradient: Array) -> None:
        """Apply `weight_decay`: here as the gradient of weight_decay / 2 * |parameter|^2."""
        gradient += self.options.weight_decay * parameter

    @abstractmethod
    def update(self, name: str, parameter: Array, gradient: Array) -> None:
        """Update one parameter array in place; `gradient` may be overwritten."""
