"""A recorded run, done again in one process: the same batches, records and updates.

Each worker's nodes are given what the worker's trace says, in its order: a batch as soon as
all of its rows are there, a record of the controller at once. The next instance is injected
when no worker can go on. So who waited how long for whom does not matter, and the numbers
are those of the run: to the bit where the machine's BLAS and its threads are the run's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from amp_runtime.control.actions import Inject, ToWorker
from amp_runtime.control.feed import Feed
from amp_runtime.control.in_flight import InFlight
from amp_runtime.control.injecting import Injecting
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Split, StageResult, Tally
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import AmpError, TraceError
from amp_runtime.graph.wiring import Wiring
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import NodeHost
from amp_runtime.host.routing import Outgoing
from amp_runtime.nodes.node import Kinds
from amp_runtime.nodes.statistics import WorkerReport
from amp_runtime.rows.message import Mode
from amp_runtime.rows.spec import Array
from amp_runtime.trace.events import Batch, End, Event, Updated
from amp_runtime.trace.replay_queues import ReplayQueues
from amp_runtime.wire.protocol import (
    CONTROLLER,
    Acknowledged,
    Barrier,
    Parameters,
    Record,
    SendParameters,
)

MOST_STUCK = 8
"""Workers that are named when none can go on."""
_RECORD_AGAIN = "config, data and traces must be those of one recorded run; record it again"


@dataclass(frozen=True, slots=True)
class RecordedStage:
    """A stage as the run told it.

    Attributes:
        examples: that were injected, and retired.
        metrics: by name; one that was not finite is None.
    """

    split: Split
    epoch: int
    examples: int
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """A parameter array of a worker's node, recorded and replayed.

    Attributes:
        name: `<node>.<parameter>`.
        relative: max|replayed - recorded| / max|recorded|.
        equal: to the bit.
    """

    name: str
    relative: float
    equal: bool

    @staticmethod
    def of(name: str, recorded: Array, replayed: Array) -> Difference:
        if recorded.shape != replayed.shape:
            raise TraceError(
                f"parameter {name!r} is {list(replayed.shape)}, recorded: {list(recorded.shape)}",
                fix=_RECORD_AGAIN,
            )
        return Difference(
            name, relative(recorded, replayed), recorded.tobytes() == replayed.tobytes()
        )


def relative(recorded: Array | float, replayed: Array | float) -> float:
    """Return max|replayed - recorded| / max|recorded|; NaN and infinities equal themselves."""
    a, b = np.asarray(recorded, np.float64), np.asarray(replayed, np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    scale = float(np.abs(a).max())
    gap = float(np.abs(b - a)[~same].max())
    return gap / scale if scale and np.isfinite(scale) and np.isfinite(gap) else np.inf


@dataclass(slots=True)
class Player:
    """The nodes of one worker, and what they are to do next.

    Attributes:
        trace: the file, for errors.
        number: of the event that comes next, from 1 on.
        reports: of the barriers that ended a stage, in order.
    """

    name: str
    trace: str
    host: NodeHost
    queues: ReplayQueues
    events: Iterator[Event]
    next: Event | None = None
    number: int = 0
    reports: list[tuple[int, WorkerReport]] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def advance(self) -> None:
        """Look at the next event; the one before it is done."""
        self.next = next(self.events, None)
        self.number += 1
        while isinstance(self.next, Updated):  # it has, by itself
            self.next = next(self.events, None)
            self.number += 1
        if isinstance(self.next, Batch):
            self.queues.expect(self.next)

    @property
    def at_end(self) -> bool:
        return isinstance(self.next, End) or self.next is None

    @property
    def can_go_on(self) -> bool:
        return bool(self.queues) if isinstance(self.next, Batch) else not self.at_end

    def play(self) -> list[Outgoing]:
        """Do what comes next; return what is to be sent.

        `settle` must be called after it.
        Raises:
            AmpError: it cannot be done; names trace and event.
        """
        try:
            if isinstance(self.next, Batch):
                return self.host.work() or []
            if isinstance(self.next, Record):
                self._obey(self.next)
            return []
        except AmpError as error:
            raise error.at(self.place) from error.__cause__

    def settle(self) -> None:
        """Finish an event, as a worker does when its messages are sent."""
        try:
            self.host.settle()
            self.host.take_records()
        except AmpError as error:
            raise error.at(self.place) from error.__cause__
        self.advance()

    @property
    def place(self) -> str:
        return f"{self.trace}, event {self.number}"

    def waits_for(self) -> str:
        """Say what keeps it from going on."""
        batch = self.next
        if not isinstance(batch, Batch):
            return f"worker {self.name!r} can go on"
        wiring = self.host.wiring
        if forward := not batch.direction:
            node, port = wiring.input_ports[batch.port]
        else:
            node, port = wiring.return_ports[batch.port]
        rows = "rows of states" if forward else "answers to slots"
        return (
            f"worker {self.name!r}: its next event is a batch of {len(batch.identities)} "
            f"{batch.mode.name.lower()} {'rows' if forward else 'answers'} at port {port!r} of "
            f"node {wiring.nodes[node].name!r}, but there are no {rows} {self.queues.missing()}"
        )

    def _obey(self, record: Record) -> None:
        if isinstance(record, Parameters):
            self._compare(record)
            return
        for reply in self.host.on_record(record):
            if (
                isinstance(record, Barrier)
                and record.reset_metrics
                and isinstance(reply, Acknowledged)
            ):
                self.reports.append((record.epoch, reply.report))

    def _compare(self, recorded: Parameters) -> None:
        for reply in self.host.on_record(SendParameters()):
            if isinstance(reply, Parameters) and reply.node == recorded.node:
                if reply.arrays.keys() != recorded.arrays.keys():
                    break
                self.differences += [
                    Difference.of(f"{reply.node}.{name}", array, reply.arrays[name])
                    for name, array in recorded.arrays.items()
                ]
                return
        raise TraceError(
            f"parameters {', '.join(recorded.arrays)} of {recorded.node!r}, which the worker's "
            "nodes do not have",
            fix=_RECORD_AGAIN,
        )


class Replay:
    """Replays all workers of a run.

    Args:
        train, valid: as the run had them.
        peer_of: peer number by node number.
        traces: by peer number: the worker's name, the trace's, and its events.
        stages: what the run did, in order.
        on_stage: called with each stage as recorded and as replayed.
    Raises:
        AmpError: a node cannot be made.
    """

    def __init__(
        self,
        wiring: Wiring,
        kinds: Kinds,
        train: Dataset,
        valid: Dataset,
        settings: ControllerSettings,
        peer_of: Sequence[int],
        traces: Mapping[int, tuple[str, str, Iterator[Event]]],
        stages: Sequence[RecordedStage],
        on_stage: Callable[[RecordedStage, StageResult], None] = lambda recorded, replayed: None,
    ) -> None:
        self._wiring = wiring
        self._datasets = {Split.TRAIN: train, Split.VALID: valid}
        self._settings = settings
        self._stages = stages
        self._on_stage = on_stage
        self._in_flight = InFlight(1, 1, verify=settings.verify)
        self._injecting = Injecting(wiring, peer_of, self._in_flight, verify=settings.verify)
        self._next_instance = 0
        self._tally = Tally()
        host_settings = HostSettings.of(settings, peer_of)
        self.players: dict[int, Player] = {}
        for peer, (name, trace, events) in sorted(traces.items()):
            queues = ReplayQueues()
            made = NodeHost(wiring, kinds, host_settings, peer, queues=lambda *_, q=queues, **__: q)
            self.players[peer] = Player(name, trace, made, queues, events)

    def run(self) -> list[Difference]:
        """Replay to the end; return how the parameters that nodes ended with differ.

        Raises:
            TraceError: the traces do not fit each other, the data or the model; says which
                worker cannot go on, at which event, and what is missing.
        """
        for player in self.players.values():
            player.advance()
        for number, stage in enumerate(self._stages):
            self._on_stage(stage, self._replayed(stage, number))
        self._go_on()
        for player in self.players.values():
            if not player.at_end:
                raise self._stuck()
            next(player.events, None)  # a trace that goes on behind its end says so
        return [d for player in self.players.values() for d in player.differences]

    @property
    def n_events(self) -> int:
        """Events that were replayed."""
        return sum(player.number - 1 for player in self.players.values())

    def _replayed(self, stage: RecordedStage, number: int) -> StageResult:
        before = {peer: p.reports[-1][1] for peer, p in self.players.items() if p.reports}
        tally = self._tally = Tally.since(before)
        mode = Mode.TRAIN if stage.split is Split.TRAIN else Mode.EVALUATE
        dataset = self._datasets[stage.split]
        training = mode is Mode.TRAIN
        order = (
            dataset.order(self._settings.seed, stage.epoch) if training else np.arange(len(dataset))
        )
        if stage.examples > len(order):
            raise TraceError(
                f"epoch {stage.epoch} {stage.split.value} had {stage.examples} examples, but "
                f"there are {len(order)}",
                where=dataset.where,
                fix=_RECORD_AGAIN,
            )
        feed = Feed(self._wiring, dataset, order[: stage.examples], self._next_instance)
        self._go_on()
        while len(feed.upcoming()[0]):
            self._inject(feed, mode)
            self._go_on()
        reports = {}
        for peer, player in self.players.items():
            if len(player.reports) <= number:
                raise self._stuck()
            epoch, reports[peer] = player.reports[number]
            if epoch != stage.epoch:
                raise TraceError(
                    f"stage {number + 1} is of epoch {epoch}, expected {stage.epoch}, as the "
                    "run's metrics say",
                    where=player.trace,
                    fix=_RECORD_AGAIN,
                )
        self._in_flight.assert_drained()
        return tally.result(stage.split, stage.epoch, 0.0, reports, mode, len(dataset))

    def _inject(self, feed: Feed, mode: Mode) -> None:
        injection = feed.take(1)
        self._next_instance = int(injection.instances[-1]) + 1
        for action in self._injecting.actions(injection, mode):
            if isinstance(action, Inject):
                self.players[action.peer].host.receive(action.message)
            elif isinstance(action, ToWorker):
                self.players[action.peer].host.on_record(action.record)

    def _go_on(self) -> None:
        """Let all workers go on until none can."""
        moved = True
        while moved:
            moved = False
            for player in self.players.values():
                while player.can_go_on:
                    moved = True
                    for out in player.play():
                        self._send(out)
                    player.settle()

    def _send(self, out: Outgoing) -> None:
        if out.peer != CONTROLLER:
            self.players[out.peer].host.receive(out.message)
        else:
            retirement = self._in_flight.answer(out.message.columns)
            self._tally.retire(retirement)

    def _stuck(self) -> TraceError:
        """Return the error of workers of which none can go on, though the run did."""
        stuck = [p for p in self.players.values() if not p.at_end]
        if not stuck:
            early = next(iter(self.players.values()))
            return TraceError(
                "the trace ends before its stages do", where=early.trace, fix=_RECORD_AGAIN
            )
        others = [f"{player.place}: {player.waits_for()}" for player in stuck[1:MOST_STUCK]]
        what = "; ".join([stuck[0].waits_for(), *others])
        return TraceError(what, where=stuck[0].place, fix=_RECORD_AGAIN)
