"""Elementwise functions that a linear can be fused with, and their derivatives.

Both work in place on an array that belongs to the caller; the derivative is taken
from the function's output, which is what the stash keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from amp_runtime.rows.spec import Array


@dataclass(frozen=True, slots=True)
class Activation:
    """y = f(x) in place, and g -> g * f'(x) as a new array, from y."""

    apply: Callable[[Array], None]
    chain: Callable[[Array, Array], Array]


def _relu(x: Array) -> None:
    np.maximum(x, 0, out=x)


def _tanh(x: Array) -> None:
    np.tanh(x, out=x)


def _sigmoid(x: Array) -> None:
    # 1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2, which cannot overflow
    x *= 0.5
    np.tanh(x, out=x)
    x += 1
    x *= 0.5


ACTIVATIONS: Mapping[str, Activation] = {
    "relu": Activation(_relu, lambda gradient, y: gradient * (y > 0)),
    "tanh": Activation(_tanh, lambda gradient, y: gradient * (1 - y * y)),
    "sigmoid": Activation(_sigmoid, lambda gradient, y: gradient * (y * (1 - y))),
}
