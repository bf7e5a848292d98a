"""When a checkpoint is due, what has come of it, and what a run goes on from.

    due ---> nothing is injected ---> nothing is in flight: a barrier ---> TakeShards
    ---> every worker has written its nodes' shards ---> Commit, or Abandon ---> on

Under the synchronous schedule it waits for the step; whatever was due during a validation, for
its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amp_runtime.control.actions import Abandon, Action, Commit
from amp_runtime.control.stages import StageResult
from amp_runtime.errors import LifecycleError
from amp_runtime.rows.saved import Saved
from amp_runtime.wire.protocol import Shard, ShardsWritten


@dataclass(frozen=True, slots=True)
class CheckpointRule:
    """When checkpoints are made; whatever is reached first, since the last.

    Attributes:
        epochs, examples, seconds: None: not by this.
        metric: of the validation, or of training without one, that the best are the best by.
        highest: whether they are those with the highest.
        keep_best: an epoch that is among so many best makes one too.
    """

    epochs: int | None = 1
    examples: int | None = None
    seconds: float | None = None
    metric: str = "loss"
    highest: bool = False
    keep_best: int = 0

    def score(self, result: StageResult) -> float | None:
        """Return how good a stage was, the higher the better; None where nobody can say."""
        value = result.metrics.get(self.metric) if result.complete else None
        if value is None or value != value:
            return None
        return value if self.highest else -value


@dataclass(frozen=True, slots=True)
class Resume:
    """A checkpoint, to go on from.

    Attributes:
        folder: that holds its shards.
        shards: by node.
        run: what the controller goes on from.
    """

    folder: str
    shards: Mapping[str, Shard]
    run: Saved


class Checkpoints:
    """The checkpoints of one run.

    Args:
        rule: None: there are none.
        number: of the newest that there is.
        now: when the run begins.
    """

    def __init__(self, rule: CheckpointRule | None, number: int, now: float) -> None:
        self.rule = rule
        self.number = number
        self._last_at = now
        self._last_examples = 0
        self._last_epoch = 0
        self._scores: list[float] = []
        self._score: float | None = None
        self._run = Saved()
        self._came: list[ShardsWritten] = []

    def due(self, n_examples: int, now: float) -> bool:
        """Whether one is due while an epoch is under way.

        Args:
            n_examples: trained on so far.
        """
        rule = self.rule
        if rule is None:
            return False
        by_examples = rule.examples and n_examples - self._last_examples >= rule.examples
        by_seconds = rule.seconds and now - self._last_at >= rule.seconds
        # Training goes on in between, however long the last one took.
        return bool(by_examples or by_seconds) and n_examples > self._last_examples

    def due_behind(self, result: StageResult, n_examples: int, now: float) -> bool:
        """Whether one is due at the end of an epoch, whose last stage came to `result`."""
        rule = self.rule
        if rule is None:
            return False
        self._score = rule.score(result)
        best = self._score is not None and rule.keep_best > 0
        if best:
            assert self._score is not None
            self._scores = sorted([*self._scores, self._score], reverse=True)[: rule.keep_best]
            best = self._score in self._scores
        by_epochs = rule.epochs and result.epoch - self._last_epoch >= rule.epochs
        return bool(best or by_epochs) or self.due(n_examples, now)

    def begin(self, run: Saved, n_examples: int, epoch: int) -> int:
        """Begin one, of which workers are to write the shards; return its number.

        Args:
            epoch: the newest that is over.
        """
        self.number += 1
        self._last_examples, self._last_epoch = n_examples, epoch
        run.add("checkpoints", Saved({"scores": self._scores}))
        self._run = run
        self._came.clear()
        return self.number

    def take(self, record: ShardsWritten) -> None:
        """Take what a worker says of its shards.

        Raises:
            LifecycleError: it is of another checkpoint.
        """
        if record.checkpoint != self.number:
            raise LifecycleError(
                f"worker {record.worker} wrote shards of checkpoint {record.checkpoint}, not "
                f"{self.number}"
            )
        self._came.append(record)

    def end(self, now: float) -> Action:
        """Return what becomes of it, now that all workers have written their shards."""
        self._last_at = now
        score, self._score = self._score, None
        if failed := next((r.failure for r in self._came if r.failure), ""):
            return Abandon(self.number, failed, on_disk=True)
        shards = {shard.node: shard for record in self._came for shard in record.shards}
        if odd := [node for node, shard in shards.items() if not shard.finite]:
            said = f"{', '.join(sorted(odd))}: a parameter, or what its optimizer keeps"
            return Abandon(self.number, f"not finite: {said}; the run has diverged", on_disk=False)
        return Commit(self.number, shards, self._run, score)

    def restore(self, run: Saved, n_examples: int, epoch: int, now: float) -> None:
        """Go on from what `begin` was given."""
        self._scores = list(run.part("checkpoints").numbers["scores"])
        self._last_at, self._last_examples, self._last_epoch = now, n_examples, epoch
