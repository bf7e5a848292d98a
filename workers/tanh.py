"""y = tanh(x)."""

from __future__ import annotations

from workers.activations import ACTIVATIONS
from workers.elementwise import Elementwise


class Tanh(Elementwise):
    """Input `x`, output `y`: every array of the payload, of any shape, in floats."""

    kind = "tanh"
    activation = ACTIVATIONS["tanh"]
