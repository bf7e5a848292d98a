"""The options of `delay` by name; checked when a graph is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from amp_runtime.limits import Ge, Gt, Le

MOST_DELAY = 1000
"""Updates: as many copies of the weights are held."""


@dataclass(frozen=True)
class Random:
    """Each number of updates from `low` to `high` is as likely as any other."""

    name: ClassVar[str] = "random"
    high: Annotated[int, Gt(0), Le(MOST_DELAY), "updates at most"]
    low: Annotated[int, Ge(0), "updates at least"] = 0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low: {self.low} is above high, {self.high}")


@dataclass(frozen=True)
class Geometric:
    """Each update more is less likely by one factor: mostly little, now and then much."""

    name: ClassVar[str] = "geometric"
    mean: Annotated[float, Gt(0), Le(MOST_DELAY), "updates, before those above `high` are left out"]
    high: Annotated[int, Gt(0), Le(MOST_DELAY), "updates at most"]


@dataclass(frozen=True)
class Trace:
    """As the node's rows were delayed in a recorded run, update by update."""

    name: ClassVar[str] = "trace"
    run: Annotated[str, "a run trained with runtime.record: its folder, or its name in runs/"]


DELAYS: Mapping[str, type] = {cls.name: cls for cls in (Random, Geometric, Trace)}
