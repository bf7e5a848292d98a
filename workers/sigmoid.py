"""y = 1 / (1 + exp(-x))."""

from __future__ import annotations

from workers.activations import ACTIVATIONS
from workers.elementwise import Elementwise


class Sigmoid(Elementwise):
    """Input `x`, output `y`: every array of the payload, of any shape, in floats."""

    kind = "sigmoid"
    activation = ACTIVATIONS["sigmoid"]
