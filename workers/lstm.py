"""One step of a long short-term memory: (x, h, c) -> (h, c).

i, f, o = sigmoid([x, h] @ weight + bias)   each a block of `features` columns,
g = tanh([x, h] @ weight + bias)            in PyTorch's order: i, f, g, o
c' = f * c + i * g
h' = o * tanh(c')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from workers.lstm_cell import StateCell


class Lstm(StateCell):
    """Input `x` {x: [rows, in], h: [rows, features], c: [rows, features]}, output `y` {h, c}.

    Parameters: weight [in + features, 4 * features] from a uniform distribution within
    1 / sqrt(features), bias [4 * features] of zeros but for the forget gate's.
    Source: Gers, Schmidhuber, Cummins, Neural Computation 12(10), 2000.
    """

    kind = "lstm"
    n_before = 1

    @dataclass(frozen=True, slots=True)
    class Options:
        forget_bias: Annotated[float, "initial bias of the forget gate"] = 1.0
