"""Clipping of a node's gradient before its step, by norm or by value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from amp_runtime.limits import Gt
from amp_runtime.rows.spec import Array

_EPS = 1e-6
"""Added to the norm, as in torch.nn.utils.clip_grad_norm_."""


@dataclass(frozen=True, slots=True)
class Clip:
    """One of the two; what is clipped is the gradient of the mean loss per example."""

    norm: Annotated[
        float | None, Gt(0), "the norm of all parameters' gradients together is at most this"
    ] = None
    value: Annotated[
        float | None, Gt(0), "every component of the gradient is within minus and plus this"
    ] = None

    def __post_init__(self) -> None:
        if (self.norm is None) == (self.value is None):
            raise ValueError("give norm or value, one of the two")

    def apply(self, gradients: Iterable[Array]) -> bool:
        """Clip arrays in place, all of one node together; return whether it changed any."""
        gradients = list(gradients)
        if self.value is not None:
            beyond = [np.abs(g).max(initial=0) > self.value for g in gradients]
            for gradient in gradients:
                np.clip(gradient, -self.value, self.value, out=gradient)
            return any(beyond)
        assert self.norm is not None
        norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradients))
        factor = self.norm / (norm + _EPS)
        if factor >= 1:
            return False
        for gradient in gradients:
            gradient *= factor
        return True
