"""What gradients of parameters are sums over, kept until many rows are summed at once."""

from __future__ import annotations

import numpy as np

from amp_runtime.rows.spec import Array


class Terms:
    """Batches of rows, several arrays [rows, ...] each: always as many, of the same shapes."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: list[tuple[Array, ...]] = []

    def add(self, *arrays: Array) -> None:
        """Keep the arrays of one batch; they are not copied."""
        self._batches.append(arrays)

    def take(self) -> tuple[Array, ...]:
        """Return the arrays of all batches, rows joined, and forget them."""
        batches, self._batches = self._batches, []
        if len(batches) == 1:
            return batches[0]
        return tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))
