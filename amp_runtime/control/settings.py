"""What the controller obeys, from a config."""

from __future__ import annotations

from dataclasses import dataclass

from amp_runtime.control.checkpoints import CheckpointRule
from amp_runtime.control.stages import Split, Target
from amp_runtime.nodes.node import Evaluation
from amp_runtime.nodes.updates import Schedule


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The options of a run that the controller obeys.

    Attributes:
        max_examples: trained on over all epochs; None: no limit.
        max_minutes: of training, after which nothing is injected; None: no limit.
        max_age: how far the number of an instance of training may be beyond that of the
            oldest in flight, less one; None: no limit.
        warm_up_examples: trained on at first so that instances of one update at most are in
            flight, and the next wait until all of these have retired.
        max_active_rows: None: 4 x max_active_keys x the mean rows of an instance.
        update_every: examples per step under the synchronous schedule.
        evaluate: go through this split once, forward only, instead of training.
        evaluation: whether ends of the graph measure examples, predict, or both.
        most_prediction_bytes: when so many wait to be complete, nothing is injected until
            they are, and handed on.
        checkpoints: when they are made; None: never.
        start_timeout_s: longest time until the next worker is ready.
        stall_timeout_s: longest time without a retirement or an awaited record.
    """

    seed: int = 0
    max_epochs: int = 1
    max_examples: int | None = None
    max_minutes: float | None = None
    max_age: int | None = None
    warm_up_examples: int = 0
    max_active_keys: int = 4
    max_active_rows: int | None = None
    update_every: int = 100
    schedule: Schedule = Schedule.ASYNCHRONOUS
    target: Target | None = None
    verify: bool = False
    evaluate: Split | None = None
    evaluation: Evaluation = Evaluation.METRICS
    most_prediction_bytes: int = 64 << 20
    checkpoints: CheckpointRule | None = None
    start_timeout_s: float = 30.0
    stall_timeout_s: float = 120.0
