"""Doing steps over and over until time is up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any


def timed(
    do: Callable[[Any], Any],
    steps: Sequence[Any],
    examples: Callable[[Any], int],
    seconds: float,
    goes_on: Callable[[bool], bool] = bool,
) -> tuple[int, float]:
    """Return how many examples were done in how many seconds.

    Args:
        examples: how many there are in a step.
        goes_on: what is made of whether there is time left; all who work together hear the same.
    """
    n, began = 0, time.perf_counter()
    for step in itertools.cycle(steps):
        if not goes_on(time.perf_counter() - began < seconds):
            break
        do(step)
        n += examples(step)
    return n, time.perf_counter() - began
