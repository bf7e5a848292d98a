"""A run over several NodeHosts in one process, its messages delivered in any order.

Every (sender, receiver, lane) is a channel of its own that keeps its order; nothing
else does: which channel's next message is delivered, and which host works, is drawn. So
is whether a message goes through bytes, as between processes: all would take twice as long.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wire_frames import as_bytes

from amp_runtime.control.actions import Action, Finished, Inject, StageDone, Tell, ToWorker
from amp_runtime.control.controller import Controller
from amp_runtime.control.lifecycle import ControllerStatus
from amp_runtime.control.parameters import NodeParameters
from amp_runtime.control.predicted import Predicted
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import StageResult
from amp_runtime.data.dataset import Dataset
from amp_runtime.graph.wiring import Wiring
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import NodeHost
from amp_runtime.host.row_queues import RowQueues
from amp_runtime.nodes.statistics import ProcessFacts
from amp_runtime.rows.message import Direction, Message
from amp_runtime.trace.recorder import Recorder
from amp_runtime.wire.codec import decode, encode_message, encode_record
from amp_runtime.wire.ledger import Channels, Envelope, Lane, Verdict
from amp_runtime.wire.protocol import CONTROLLER, Hello, Link, Linked, Record, Status, Stop
from workers.registry import Registry

RUN = "0123456789abcdef" * 2
MOST_EVENTS = 200_000
SHARE_THROUGH_BYTES = 0.2


class Delivery(enum.StrEnum):
    """Who goes first."""

    ANY = "any"
    NEWEST_FIRST = "newest first"
    OLDEST_FIRST = "oldest first"
    CONTROL_LAST = "control last"
    WORK_FIRST = "work first"
    WORK_LAST = "work last"
    ONE_PEER_STARVES = "one peer starves"


Channel = tuple[int, int, Lane]


@dataclass(slots=True)
class _Sent:
    number: int
    envelope: Envelope
    body: Message | Record


@dataclass(slots=True)
class ScriptedRun:
    """A controller, its hosts, and what is under way between them.

    Attributes:
        hosts: by peer number.
        results: of the stages so far.
        after_event: called after each event, to assert what must always hold.
        recorders: by peer number, where the run is recorded.
        row_by_row: rows that leave together travel alone, so that their delays differ.
    """

    controller: Controller
    hosts: dict[int, NodeHost]
    random: random.Random
    delivery: Delivery
    results: list[StageResult] = field(default_factory=list)
    predicted: list[Predicted] = field(default_factory=list)
    finished: Finished | None = None
    after_event: Callable[[], None] = lambda: None
    row_by_row: bool = False
    channels: dict[int, Channels] = field(default_factory=dict)
    recorders: dict[int, Recorder] = field(default_factory=dict)
    _under_way: dict[Channel, deque[_Sent]] = field(default_factory=dict)
    _sent: int = 0
    _stopped: set[int] = field(default_factory=set)
    most_instances: int = 0

    @staticmethod
    def of(
        wiring: Wiring,
        train: Dataset,
        valid: Dataset,
        settings: ControllerSettings,
        peer_of: Sequence[int],
        *,
        seed: int = 0,
        delivery: Delivery = Delivery.ANY,
        parameters: NodeParameters | None = None,
        recorder_of: Callable[[int], Recorder] | None = None,
    ) -> ScriptedRun:
        peers = sorted(set(peer_of))
        channels = {
            p: Channels(RUN, p, 0, dict.fromkeys([CONTROLLER, *peers], 0))
            for p in (CONTROLLER, *peers)
        }
        host_settings = HostSettings.of(settings, peer_of)
        recorders = {p: recorder_of(p) for p in peers} if recorder_of else {}
        hosts = {
            p: NodeHost(
                wiring,
                Registry(),
                host_settings,
                p,
                facts=lambda p=p: ProcessFacts(channels[p].counts()),  # type: ignore[misc]
                queues=recorders[p].queues if recorders else RowQueues,
            )
            for p in peers
        }
        for peer, recorder in recorders.items():
            recorder.watch(hosts[peer].nodes)
        controller = Controller(
            wiring,
            train,
            valid,
            settings,
            peer_of,
            channels[CONTROLLER].counts,
            parameters=parameters,
        )
        return ScriptedRun(
            controller,
            hosts,
            random.Random(seed),
            delivery,
            channels=channels,
            recorders=recorders,
        )

    def run(self) -> Finished:
        """Deliver until the run is over and nothing is under way."""
        for peer in self.hosts:
            self._send(peer, CONTROLLER, Lane.CONTROL, Hello(peer - 1, 0, [], 1, "", 0))
        for number in range(MOST_EVENTS):
            self.step(number)
            if self.finished is not None and not any(self._under_way.values()):
                assert self._stopped == set(self.hosts)
                return self.finished
        raise AssertionError(f"not over after {MOST_EVENTS} events: {self.controller.status}")

    def step(self, number: int) -> None:
        """Let one thing happen."""
        ready = [p for p, host in self.hosts.items() if not host.idle]
        waiting = [channel for channel, sent in self._under_way.items() if sent]
        choice = self._choose(ready, waiting)
        assert choice is not None, (
            f"nothing is left to do while {self.controller.status}, "
            f"{self.controller.in_flight.instances} instances in flight, oldest "
            f"{self.controller.in_flight.oldest()}"
        )
        if isinstance(choice, int):
            self._work(choice)
        else:
            self._deliver(choice, number * 1e-6)
        at_barrier = self.controller.status is ControllerStatus.BARRIER
        if (
            self.random.random() < (0.3 if at_barrier else 0.02)
            and self.hosts.keys() - self._stopped
        ):
            # A worker reports once a second, whatever the controller waits for.
            peer = self.random.choice(sorted(self.hosts.keys() - self._stopped))
            report = self.hosts[peer].report()
            self._send(peer, CONTROLLER, Lane.CONTROL, Status(peer - 1, report))
        self.most_instances = max(self.most_instances, self.controller.in_flight.instances)
        self.after_event()

    def _choose(self, ready: list[int], waiting: list[Channel]) -> int | Channel | None:
        match self.delivery:
            case Delivery.CONTROL_LAST:
                waiting = [c for c in waiting if c[2] is not Lane.CONTROL] or waiting
            case Delivery.WORK_FIRST if ready:
                waiting = []
            case Delivery.WORK_LAST if waiting:
                ready = []
            case Delivery.ONE_PEER_STARVES:
                starved = max(self.hosts)
                ready = [p for p in ready if p != starved] or ready
                if ready and ready != [starved]:
                    waiting = [c for c in waiting if starved not in c[:2]]
        if not ready and not waiting:
            return None
        if waiting and self.delivery in (Delivery.NEWEST_FIRST, Delivery.OLDEST_FIRST):
            newest = self.delivery is Delivery.NEWEST_FIRST
            waiting.sort(key=lambda c: self._under_way[c][0].number, reverse=newest)
            waiting = waiting[:1]
        return self.random.choice([*ready, *waiting])

    # ---- what happens

    def _work(self, peer: int) -> None:
        host = self.hosts[peer]
        for out in host.work() or ():
            self._send_message(peer, out.peer, out.message)
        host.settle()
        for record in host.take_records():
            self._send(peer, CONTROLLER, Lane.CONTROL, record)

    def _deliver(self, channel: Channel, now: float) -> None:
        _, receiver, lane = channel
        sent = self._under_way[channel].popleft()
        rows = len(sent.body) if isinstance(sent.body, Message) else 0
        assert self.channels[receiver].accept(sent.envelope, lane, rows) is Verdict.OK
        if receiver == CONTROLLER:
            if isinstance(sent.body, Message):
                self._act(self.controller.on_answers(sent.body, now))
            else:
                self._act(self.controller.on_record(sent.body, now))
        elif isinstance(sent.body, Message):
            self.hosts[receiver].receive(sent.body)
        else:
            for reply in self._obey(receiver, sent.body):
                self._send(receiver, CONTROLLER, Lane.CONTROL, reply)

    def _obey(self, peer: int, record: Record) -> list[Record]:
        match record:
            case Link():
                return [Linked(peer - 1)]
            case Stop():
                self._stopped.add(peer)
                if peer in self.recorders:
                    self.recorders[peer].end()
                return []
        if peer not in self.recorders:
            return self.hosts[peer].on_record(record)
        self.recorders[peer].obeys(record)
        replies = self.hosts[peer].on_record(record)
        for reply in replies:
            self.recorders[peer].replied(reply)
        return replies

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case ToWorker(peer=peer, record=record):
                    self._send(CONTROLLER, peer, Lane.CONTROL, record)
                case Inject(peer=peer, message=message):
                    self._send_message(CONTROLLER, peer, message)
                case StageDone(result=result):
                    self.results.append(result)
                case Tell(predicted=predicted):
                    self.predicted.append(predicted)
                case Finished():
                    self.finished = action

    def _send_message(self, sender: int, receiver: int, message: Message) -> None:
        forward = message.direction is Direction.FORWARD
        lane = Lane.FORWARD if forward else Lane.BACKWARD
        for part in rows_of(message) if self.row_by_row else [message]:
            self._send(sender, receiver, lane, part, len(part))

    def _send(self, sender: int, receiver: int, lane: Lane, body: Any, rows: int = 0) -> None:
        self._sent += 1
        envelope = self.channels[sender].stamp(receiver, lane, rows)
        queue = self._under_way.setdefault((sender, receiver, lane), deque())
        if self.random.random() < SHARE_THROUGH_BYTES:
            body = crossed(envelope, body)
        queue.append(_Sent(self._sent, envelope, body))


def rows_of(message: Message) -> list[Message]:
    """Return a message of one row for each row of `message`."""
    return [
        replace(
            message,
            columns=message.columns[at : at + 1],
            payload=None
            if message.payload is None
            else {name: array[at : at + 1] for name, array in message.payload.items()},
        )
        for at in range(len(message))
    ]


def crossed(envelope: Envelope, body: Message | Record) -> Message | Record:
    """Return what arrives when `body` is sent: it went through bytes, and was checked."""
    if isinstance(body, Message):
        return decode(as_bytes(encode_message(envelope, body))).body
    received = decode(as_bytes(encode_record(envelope, body)))
    received.body.check_sender(envelope.sender)
    return received.body
