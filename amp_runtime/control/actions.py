"""What the controller asks its loop to do, one record an action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from amp_runtime.control.predicted import Predicted
from amp_runtime.control.stages import StageResult
from amp_runtime.nodes.statistics import WorkerReport
from amp_runtime.rows.message import Message
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array
from amp_runtime.wire.protocol import Record, Shard


@dataclass(frozen=True, slots=True)
class ToWorker:
    """Send a control record to a peer."""

    peer: int
    record: Record


@dataclass(frozen=True, slots=True)
class Inject:
    """Send forward rows to a peer."""

    peer: int
    message: Message


@dataclass(frozen=True, slots=True)
class StageDone:
    """A stage has ended; its line is final."""

    result: StageResult


@dataclass(frozen=True, slots=True)
class Tell:
    """Some examples of a stage are predicted; they come in order, the stage's end last."""

    predicted: Predicted


@dataclass(frozen=True, slots=True)
class Warn:
    """Something that the user should know while the run goes on; told once."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over and the workers are told to stop.

    Attributes:
        why: in words, for the last line.
        parameters: {node: {parameter: array}}.
        reports: the last report of each worker.
    """

    why: str
    parameters: Mapping[str, Mapping[str, Array]]
    reports: Mapping[int, WorkerReport]


@dataclass(frozen=True, slots=True)
class TakeShards:
    """Nothing is in flight: have all workers write the shards of a checkpoint."""

    number: int


@dataclass(frozen=True, slots=True)
class Commit:
    """All shards of a checkpoint are written: make it the newest.

    Attributes:
        shards: by node.
        run: what the controller goes on from.
        score: of the epoch that it ends, the higher the better; None: it ends none.
    """

    number: int
    shards: Mapping[str, Shard]
    run: Saved
    score: float | None


@dataclass(frozen=True, slots=True)
class Abandon:
    """A checkpoint came to nothing; the run goes on.

    Attributes:
        why: in words.
        on_disk: whether it could not be written.
    """

    number: int
    why: str
    on_disk: bool


Action: TypeAlias = (
    ToWorker | Inject | StageDone | Tell | Warn | Finished | TakeShards | Commit | Abandon
)
