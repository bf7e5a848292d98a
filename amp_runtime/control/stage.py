"""The stage that is under way: what is left to inject, and what has come of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amp_runtime.control.feed import Feed
from amp_runtime.control.stages import Progress, Split, StageResult, Tally
from amp_runtime.nodes.statistics import WorkerReport
from amp_runtime.rows.message import Mode


@dataclass(slots=True)
class Stage:
    """One pass over one split.

    Attributes:
        n_examples: of the split; a limit may cut the feed.
        before: the reports at the barrier before it.
        step_examples: injected since the last synchronous step; in warm-up since last nothing
            was in flight.
    """

    split: Split
    epoch: int
    mode: Mode
    feed: Feed
    n_examples: int
    started: float
    before: Mapping[int, WorkerReport]
    tally: Tally = field(default_factory=Tally)
    step_examples: int = 0

    @property
    def training(self) -> bool:
        return self.mode is Mode.TRAIN

    def progress(
        self, reports: Mapping[int, WorkerReport], max_epochs: int, in_flight: int, now: float
    ) -> Progress:
        """Return how far it is, from the newest reports."""
        return Progress(
            split=self.split,
            epoch=self.epoch,
            max_epochs=max_epochs,
            examples=self.tally.examples,
            n_examples=self.feed.n_examples,
            seconds=now - self.started,
            in_flight=in_flight,
            metrics=self.tally.metrics(reports, self.mode),
            staleness=self.tally.staleness(reports),
        )

    def result(self, reports: Mapping[int, WorkerReport], now: float) -> StageResult:
        """Return what it came to, from the reports at the barrier behind it."""
        n_examples = self.n_examples - self.feed.n_left_out
        return self.tally.result(
            self.split, self.epoch, now - self.started, reports, self.mode, n_examples
        )
