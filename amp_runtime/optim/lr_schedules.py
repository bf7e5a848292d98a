"""What the learning rate is multiplied by, after so many examples.

The examples are those that had retired in training before the step, in all epochs. With
`schedule: synchronous` step k of 100 examples each therefore has at(100 * k), k from 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from amp_runtime.limits import Ge, Gt, Le

WarmUp = Annotated[int, Ge(0), "examples over which the factor also grows linearly from 0 to 1"]


class LrSchedule(ABC):
    """A pure function of examples; its fields are the options of `lr_schedule`."""

    name: ClassVar[str]
    warm_up: int

    def at(self, examples: int) -> float:
        """Return what the learning rate is multiplied by after `examples`."""
        warm = min(1.0, examples / self.warm_up) if self.warm_up else 1.0
        return warm * self.without_warm_up(examples)

    @abstractmethod
    def without_warm_up(self, examples: int) -> float:
        """Return the factor without warm-up."""


@dataclass(frozen=True)
class Constant(LrSchedule):
    """The learning rate stays as it is."""

    name = "constant"
    warm_up: WarmUp = 0

    def without_warm_up(self, examples: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Step(LrSchedule):
    """Multiplied by `factor` at every so many examples: factor^(examples // every)."""

    name = "step"
    every: Annotated[int, Gt(0), "examples between two changes"]
    factor: Annotated[float, Gt(0), Le(1), "what the learning rate is multiplied by at each"] = 0.5
    warm_up: WarmUp = 0

    def without_warm_up(self, examples: int) -> float:
        return float(self.factor ** (examples // self.every))


@dataclass(frozen=True)
class Linear(LrSchedule):
    """From 1 to `final` in a straight line, and `final` from there on."""

    name = "linear"
    over: Annotated[int, Gt(0), "examples until `final` is reached"]
    final: Annotated[float, Ge(0), Le(1), "the factor at the end"] = 0.0
    warm_up: WarmUp = 0

    def without_warm_up(self, examples: int) -> float:
        return 1 + (self.final - 1) * min(1.0, examples / self.over)


@dataclass(frozen=True)
class Cosine(LrSchedule):
    """From 1 to `final` along half a cosine, and `final` from there on.

    Source: Loshchilov and Hutter, arXiv:1608.03983, without restarts.
    """

    name = "cosine"
    over: Annotated[int, Gt(0), "examples until `final` is reached"]
    final: Annotated[float, Ge(0), Le(1), "the factor at the end"] = 0.0
    warm_up: WarmUp = 0

    def without_warm_up(self, examples: int) -> float:
        done = min(1.0, examples / self.over)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2


LR_SCHEDULES: Mapping[str, type[LrSchedule]] = {
    cls.name: cls for cls in (Constant, Step, Linear, Cosine)
}


def make_lr_schedule(options: Mapping[str, Any]) -> LrSchedule:
    """Return the schedule for validated `options`, `name` among them."""
    values = dict(options)
    return LR_SCHEDULES[values.pop("name")](**values)
