"""How far a run has come, and where it is between two steps: what the controller goes on from,
but for replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from amp_runtime.control.stage import Stage
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
        after_valid: epoch that training goes on with behind a validation, and how many of its
            examples are behind already; [] where it is the next one.
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
    after_valid: list[int] = field(default_factory=list)

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


class Covered:
    """What of a run is over, and the places in it that it can go on from.

    Args:
        place: that it goes on from; None: it begins.

    Attributes:
        trained: examples trained on, over all epochs.
        stages: that are over.
    """

    def __init__(self, place: Place | None = None) -> None:
        self.trained = place.trained if place else 0
        self.stages = place.stages if place else 0
        self._next_epoch, self._next_taken = 1, 0
        if place is not None:
            following = (place.epoch + (place.split == Split.VALID), 0)
            self._next_epoch, self._next_taken = place.after_valid or following

    def end(self, stage: Stage) -> None:
        """Count a stage that is over."""
        self.stages += 1
        if stage.training:
            # A limit on examples, or the end of the run, may have cut it.
            taken = stage.feed.passed
            cut = taken < stage.n_examples
            self._next_epoch, self._next_taken = (
                (stage.epoch, taken) if cut else (stage.epoch + 1, 0)
            )

    def within(self, stage: Stage, seconds: float, now: float, *, of_step: bool) -> Place:
        """Return the place of now, in the middle of a stage of training.

        Args:
            seconds: of training so far.
            of_step: whether examples since the last step wait for one of all nodes.
        """
        tally = stage.tally
        return Place(
            stage.epoch,
            stage.split.value,
            stage.feed.first_instance,
            self.trained,
            self.stages,
            seconds,
            taken=stage.feed.passed,
            step_examples=stage.step_examples if of_step else 0,
            stage_seconds=now - stage.started,
            counted=[tally.examples, tally.instances, tally.staleness_before.tolist()],
        )

    def before_valid(self, stage: Stage, seconds: float) -> Place:
        """Return the place before a validation, which has just ended: too early."""
        return Place(
            stage.epoch,
            stage.split.value,
            stage.feed.first_instance,
            self.trained,
            self.stages - 1,
            seconds,
            after_valid=[self._next_epoch, self._next_taken],
        )

    def behind(self, stage: Stage, seconds: float) -> Place:
        """Return the place behind a stage that has ended: training is next."""
        return Place(
            self._next_epoch,
            Split.TRAIN.value,
            stage.feed.end_instance,
            self.trained,
            self.stages,
            seconds,
            taken=self._next_taken,
        )
