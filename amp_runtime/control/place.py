"""Where a run is between two steps: what the controller goes on from, but for replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from amp_runtime.control.stages import Split, Tally
from amp_runtime.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Place:
    """Where to go on.

    Attributes:
        epoch, split: of the stage to go on with, or to begin.
        first_instance: number of the stage's first.
        trained: examples trained on, over all epochs.
        stages: that are over: lines of the run's metrics.
        seconds, stage_seconds: of training so far, and of the stage.
        taken: examples of that stage that are behind, in its order; all others are to come.
        step_examples: of these, those that the next synchronous step is for.
        counted: examples and instances that the stage has counted, and the staleness before
            it; [] of a stage that begins.
    """

    epoch: int
    split: str
    first_instance: int
    trained: int
    stages: int
    seconds: float
    taken: int = 0
    step_examples: int = 0
    stage_seconds: float = 0.0
    counted: list[Any] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Place:
        """Return the place that `to_plain` was called of.

        Raises:
            CheckpointError: it is none.
        """
        try:
            place = Place(**plain)
            Split(place.split)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"no place in a run: {error}") from error
        return place

    @property
    def tally(self) -> Tally | None:
        """What the stage has counted; None of one that begins."""
        if not self.counted:
            return None
        examples, instances, before = self.counted
        return Tally(examples, instances, np.array(before, np.int64))


def counted(tally: Tally) -> list[Any]:
    """Return a tally as plain data."""
    return [tally.examples, tally.instances, tally.staleness_before.tolist()]
