"""The whole runtime in one process, without sockets: for debugging and as the oracle.

The same controller and the same nodes as in a real run, driven by a loop that hands
every message on at once. Deterministic: two runs are equal to the bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from amp_runtime.control.actions import (
    Action,
    Commit,
    Finished,
    Inject,
    StageDone,
    TakeShards,
    Tell,
    ToWorker,
)
from amp_runtime.control.checkpoints import Resume
from amp_runtime.control.controller import Controller
from amp_runtime.control.parameters import NodeParameters
from amp_runtime.control.predicted import Predicted
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import StageResult
from amp_runtime.control.stall import JOIN_HINT
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import InvariantError
from amp_runtime.graph.wiring import Wiring
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import MAY_BE_ODD, NodeHost
from amp_runtime.nodes.node import Kinds
from amp_runtime.rows.saved import Saved
from amp_runtime.wire.protocol import (
    CONTROLLER,
    Hello,
    Link,
    Linked,
    ReadShards,
    Record,
    Shard,
    ShardsWritten,
    Stop,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a run goes on from, in memory.

    Attributes:
        nodes: by name.
        run: the controller's.
    """

    nodes: Mapping[str, Saved]
    run: Saved


class Reference:
    """Runs a graph to its end in this process.

    Args:
        on_stage: called with each stage's result.
        on_predicted: called with the predictions of an evaluation, piece by piece.
        parameters: {node: {parameter: array}} to begin with; None: freshly drawn ones.
        on_checkpoint: called with each checkpoint that is whole.
        resume: a checkpoint to go on from.
    """

    def __init__(
        self,
        wiring: Wiring,
        kinds: Kinds,
        train: Dataset,
        valid: Dataset,
        settings: ControllerSettings,
        on_stage: Callable[[StageResult], None] = lambda result: None,
        parameters: NodeParameters | None = None,
        on_predicted: Callable[[Predicted], None] = lambda predicted: None,
        on_checkpoint: Callable[[Checkpoint], None] = lambda checkpoint: None,
        resume: Checkpoint | None = None,
    ) -> None:
        peer_of = [1] * len(wiring.nodes)
        host_settings = HostSettings.of(settings, peer_of)
        self._nodes = resume.nodes if resume else {}
        shards = {node.name: Shard(node.name, 0, "", True) for node in wiring.nodes}
        self.controller = Controller(
            wiring,
            train,
            valid,
            settings,
            peer_of,
            parameters=parameters,
            resume=Resume("", shards, resume.run) if resume else None,
        )
        self.host = NodeHost(wiring, kinds, host_settings, peer=1)
        self.results: list[StageResult] = []
        self._on_stage = on_stage
        self._on_predicted = on_predicted
        self._on_checkpoint = on_checkpoint
        self._actions: deque[Action] = deque()
        self._finished: Finished | None = None
        self._ticks = 0

    def run(self, most_batches: int | None = None) -> Finished:
        """Run to the end and return what a real run would.

        Args:
            most_batches: that nodes may work on; None: no limit.
        Raises:
            InvariantError: nothing is left to do, and the run is not over; or more batches
                were worked on.
        """
        self._act(self.controller.on_record(Hello(0, 0, [], 1, "", 0), self._now()))
        batches = 0
        while self._finished is None:
            outgoing = self.host.work()
            if outgoing is None:
                raise self._stuck()
            batches += 1
            if most_batches is not None and batches > most_batches:
                raise InvariantError(
                    f"rows are still under way after {most_batches:,} batches",
                    fix="let each row leave its loop: the cond must choose the way out some time",
                )
            for out in outgoing:
                assert out.peer == CONTROLLER
                self._act(self.controller.on_answers(out.message, self._now()))
            self.host.settle()
            self._reply(self.host.take_records())
        return self._finished

    def _stuck(self) -> InvariantError:
        """Return the error of rows in flight that no node is given."""
        waiting = [
            f"node {node.name!r} (kind {node.context.kind}) waits for more rows of {node.waiting} "
            "states"
            for node in self.host.nodes.values()
            if node.waiting
        ]
        n = self.controller.in_flight.instances
        return InvariantError(
            f"nothing is left to do, but {n} instance{'s are' if n > 1 else ' is'} in flight"
            f"{': ' if waiting else ''}{', '.join(waiting)}",
            fix=JOIN_HINT if waiting else "a node kind must answer every row",
        )

    def _now(self) -> float:
        """Return a clock that counts calls, so that results never depend on real time."""
        self._ticks += 1
        return self._ticks * 1e-6

    def _act(self, actions: list[Action]) -> None:
        self._actions.extend(actions)
        while self._actions:
            match self._actions.popleft():
                case ToWorker(record=record):
                    self._obey(record)
                case Inject(message=message):
                    self.host.receive(message)
                case StageDone(result=result):
                    self.results.append(result)
                    self._on_stage(result)
                case Tell(predicted=predicted):
                    self._on_predicted(predicted)
                case TakeShards(number=number):
                    self._take_shards(number)
                case Commit(run=saved):
                    self._on_checkpoint(Checkpoint(self._nodes, saved.copy()))
                case Finished() as finished:
                    self._finished = finished

    def _obey(self, record: Record) -> None:
        match record:
            case Link():
                replies: list[Record] = [Linked(0)]
            case Stop():
                replies = []
            case ReadShards():
                self.host.restore(self._nodes)
                replies = []
            case _:
                self.host.settle()
                replies = self.host.on_record(record)
        self._reply(replies)

    def _take_shards(self, number: int) -> None:
        self._nodes = {name: saved.copy() for name, saved in self.host.save().items()}
        shards = [
            Shard(name, 0, "", saved.is_finite(MAY_BE_ODD)) for name, saved in self._nodes.items()
        ]
        self._reply([ShardsWritten(0, number, shards, "")])

    def _reply(self, records: Sequence[Record]) -> None:
        for reply in records:
            self._actions.extend(self.controller.on_record(reply, self._now()))
