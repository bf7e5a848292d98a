"""A run in one process that goes through recoveries: the shipped controller, hosts, links and
decisions, with a network in between that loses, holds back and mixes as it is told.

What is not shipped code here is what the loops do between them: a dozen lines each. Each
process is one object, so that a search can copy those that a step changes, and no others.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from counting import build, examples

from amp_runtime.control.actions import Action, Commit, Finished, Inject, TakeShards, ToWorker
from amp_runtime.control.checkpoints import Resume
from amp_runtime.control.controller import Controller
from amp_runtime.control.recovery import Failure, Generation, Recovery, RecoverySettings
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import MessagesLostError, WorkerExitedError
from amp_runtime.graph import Graph
from amp_runtime.graph.wiring import Wiring
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import NodeHost
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.statistics import ProcessFacts
from amp_runtime.rows.message import Message
from amp_runtime.rows.saved import Saved
from amp_runtime.sockets.peer_link import PeerLink
from amp_runtime.wire.ledger import Lane
from amp_runtime.wire.protocol import (
    CONTROLLER,
    Hello,
    Link,
    Linked,
    ReadShards,
    Record,
    Reset,
    Shard,
    ShardsWritten,
    Stop,
    WriteShards,
)
from workers.registry import Registry

RUN = "0123456789abcdef" * 2
NEVER = RecoverySettings(max_restarts=1_000_000, quarantine_after=1_000_000)
"""Nothing is given up, and no instance left out."""

Frames = tuple[bytes, ...]
Disk = dict[tuple[str, str], tuple[Saved, tuple[int, ...]]]
"""Shards: {(folder, node): what it goes on from, and what it had counted}."""
Channel = tuple[int, int, int, Lane]
"""(sender, receiver, incarnation of the receiver, lane): a socket of its own each."""


class Wire:
    """Stands in for a process's sockets: keeps what is sent, and has one message to receive."""

    def __init__(self, peer: int) -> None:
        self.peer = peer
        self.sent: list[tuple[int, Lane, Frames]] = []
        self.coming: Frames | None = None

    def send(self, peer: int, lane: Lane, frames: Sequence[Any]) -> None:
        self.sent.append((peer, lane, tuple(bytes(frame) for frame in frames)))

    def receive(self, lane: Lane) -> list[bytes] | None:
        coming, self.coming = self.coming, None
        return None if coming is None else list(coming)

    def has_more(self, lane: Lane) -> bool:
        return False

    def drop_outboxes(self) -> None:
        self.sent.clear()


@dataclass(frozen=True)
class Fixed:
    """What is the same in all states of a run, and never copied."""

    wiring: Wiring
    train: Dataset
    valid: Dataset
    settings: ControllerSettings
    peer_of: tuple[int, ...]
    host_settings: HostSettings

    @staticmethod
    def of(n_examples: int, nodes: int = 1, valid: int = 0, **settings: Any) -> Fixed:
        splits = {"train": n_examples, "valid": max(valid, 1)}
        train, held = (
            Dataset.from_examples(examples(split, 0, **splits), where=split).astype("float64")
            for split in ("train", "valid")
        )
        held = held.subset(np.arange(valid))
        fields = {name: field.spec for name, field in train.fields.items()}
        graph = Graph(Registry(), fields=fields, dtype="float64")
        build(graph, train=n_examples, nodes=nodes)
        wiring = graph.build()
        made = ControllerSettings(**{"max_active_keys": 2, "update_every": 4, **settings})
        peer_of = tuple(range(1, len(wiring.nodes) + 1))
        return Fixed(wiring, train, held, made, peer_of, HostSettings.of(made, peer_of))

    def __deepcopy__(self, memo: dict[int, Any]) -> Fixed:
        return self


class Worker:
    """One worker process."""

    def __init__(self, fixed: Fixed, peer: int, incarnation: int, generation: int) -> None:
        self.fixed = fixed
        self.peer, self.incarnation = peer, incarnation
        self.wire = Wire(peer)
        self.link = PeerLink(
            self.wire,  # type: ignore[arg-type]
            RUN,
            {CONTROLLER: 0},
            incarnation=incarnation,
            generation=generation,
        )
        self.stopped = False
        self.disk: Disk = {}
        self.incarnations: tuple[int, ...] = ()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.make_host()
        self._send(Hello(self.peer - 1, 0, [], 1, "", 0))

    def make_host(self) -> None:
        self.host = NodeHost(
            self.fixed.wiring,
            Registry(),
            self.fixed.host_settings,
            self.peer,
            clock=float,
            facts=self._facts,  # no lambda: a copy must not ask the one it was copied from
        )

    def _facts(self) -> ProcessFacts:
        return ProcessFacts(self.link.channels.counts())

    def _send(self, record: Record) -> None:
        self.link.send_record(CONTROLLER, record)

    def receive(self, lane: Lane, frames: Frames) -> None:
        """Take one message, and work until nothing is left to do."""
        self.wire.coming = frames
        for received in self.link.receive(lane, 1):
            match received.body:
                case Message():
                    self.host.receive(received.body)
                case Reset():
                    self._begin_anew()
                case Link(incarnations=incarnations):
                    self.incarnations = (0, *incarnations)
                    self.link.channels.hear(dict(enumerate(self.incarnations)))
                    self._send(Linked(self.peer - 1))
                case Stop():
                    self.stopped = True
                case WriteShards(checkpoint=number, folder=folder):
                    self._send(ShardsWritten(self.peer - 1, number, self._write(folder), ""))
                case ReadShards(folder=folder, shards=shards):
                    saved = {shard.node: self.disk[folder, shard.node][0] for shard in shards}
                    self.host.restore(saved)
                case _:
                    for reply in self.host.on_record(received.body):
                        self._send(reply)
        while (outgoing := self.host.work()) is not None:
            for out in outgoing:
                self.link.send_message(out.peer, out.message)
            self.host.settle()
            for record in self.host.take_records():
                self._send(record)

    def _write(self, folder: str) -> list[Shard]:
        shards = []
        for name, saved in self.host.save().items():
            self.disk[folder, name] = copy.deepcopy(saved), self.counts()
            shards.append(Shard(name, 0, "", True))
        return shards

    def __deepcopy__(self, memo: dict[int, Any]) -> Worker:
        host = self.host
        # What a host is given and never changes; nodes see its arena, which does.
        fixed = [host._arrivals, host._routing]
        for node in host.nodes.values():
            given = {f.name: getattr(node.context, f.name) for f in dataclasses.fields(NodeContext)}
            fixed += [value for name, value in given.items() if name != "structure"]
        memo |= {id(same): same for same in (*fixed, self.disk)}
        made: Worker = copied(self, memo)
        for node in made.host.parameterised():  # it knows its own arrays by where they are
            node._gradient_ids = [id(array) for array in node._gradients.values()]
        for each in made.host.nodes.values():  # and its stash has other views of them
            for name, column in each.stash._columns.items():
                each.stash._keep(name, column)
        return made

    def target_of(self, peer: int) -> int:
        """Return which incarnation of `peer` its socket goes to."""
        return self.incarnations[peer] if self.incarnations else 0

    def counts(self) -> tuple[int, ...]:
        """Return how often it has counted each example; () of one that counts nothing."""
        for node in self.host.parameterised():
            _ = node.gradients  # what waits to be summed, is
            return tuple(int(n) for n in node.parameters["count"])
        return ()


def copied(process: Any, memo: dict[int, Any]) -> Any:
    """Return a deep copy of a process, but for what is in `memo`, and what never changes."""
    fixed: Fixed = process.fixed
    for same in (fixed.wiring, fixed.train, fixed.valid, fixed.settings, fixed.host_settings):
        memo[id(same)] = same
    made = object.__new__(type(process))
    memo[id(process)] = made
    for name, value in vars(process).items():
        setattr(made, name, copy.deepcopy(value, memo))
    return made


class Control:
    """The controller's process."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Control:
        injecting = self.controller._injecting
        fixed = [injecting._ports, injecting._peer_at, injecting._fields]
        memo |= {id(same): same for same in (*fixed, self.newest, *self.recovery.failures)}
        return copied(self, memo)

    def __init__(self, fixed: Fixed, settings: RecoverySettings = NEVER) -> None:
        self.fixed = fixed
        self.wire = Wire(CONTROLLER)
        self.peers = sorted(set(fixed.peer_of))
        self.link = PeerLink(self.wire, RUN, dict.fromkeys(self.peers, 0))  # type: ignore[arg-type]
        self.recovery = Recovery(settings)
        self.finished: Finished | None = None
        self.time = 0.0
        self.newest: Resume | None = None
        self.number = 0
        self.make_controller()

    def make_controller(self) -> None:
        self.controller = Controller(
            self.fixed.wiring,
            self.fixed.train,
            self.fixed.valid,
            self.fixed.settings,
            self.fixed.peer_of,
            self.link.channels.counts,
            self.time,
            generation=self.recovery.generation,
            resume=self.newest,
            checkpoint=self.number,
        )

    def receive(self, lane: Lane, frames: Frames) -> None:
        self.wire.coming = frames
        for received in self.link.receive(lane, 1):
            if isinstance(received.body, Message):
                self._act(self.controller.on_answers(received.body, self.time))
            else:
                self._act(self.controller.on_record(received.body, self.time))

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case ToWorker(peer=peer, record=record):
                    self.link.send_record(peer, record)
                case Inject(peer=peer, message=message):
                    self.link.send_message(peer, message)
                case TakeShards(number=number):
                    for peer in self.peers:
                        self.link.send_record(peer, WriteShards(number, self._folder(number)))
                case Commit(number=number, shards=shards, run=run):
                    self.newest, self.number = Resume(self._folder(number), shards, run), number
                case Finished():
                    self.finished = action

    def _folder(self, number: int) -> str:
        return f"{number} of generation {self.recovery.generation.number}"

    def recover(self, failures: Sequence[Failure]) -> Generation:
        in_flight = self.controller.in_flight.numbers()
        generation = self.recovery.next(failures, in_flight, self.time)
        failed = {failure.peer for failure in failures}
        self.link.advance(
            generation.number, {peer: generation.incarnation(peer) for peer in self.peers}
        )
        self.make_controller()
        for peer in self.peers:
            if peer not in failed:
                self.link.send_record(peer, Reset())
        return generation

    def target_of(self, peer: int) -> int:
        return self.recovery.generation.incarnation(peer)


def crash(peer: int | None) -> Failure:
    return Failure(WorkerExitedError(f"worker {peer} was killed"), peer)


@dataclass
class World:
    """All processes of a run, and what is under way between them.

    Attributes:
        workers: by peer; None: dead, and nobody knows yet.
        disk: what outlives processes.
    """

    control: Control
    workers: dict[int, Worker | None]
    under_way: dict[Channel, tuple[Frames, ...]] = field(default_factory=dict)
    disk: Disk = field(default_factory=dict)

    @staticmethod
    def of(fixed: Fixed, settings: RecoverySettings = NEVER) -> World:
        control = Control(fixed, settings)
        world = World(control, {peer: Worker(fixed, peer, 0, 0) for peer in control.peers})
        for worker in world.workers.values():
            world._collect(worker)
        return world

    def branch(self, *peers: int) -> World:
        """Return a copy in which these processes may be changed, and the network."""
        control = copy.deepcopy(self.control) if CONTROLLER in peers else self.control
        workers = {
            peer: copy.deepcopy(worker) if peer in peers else worker
            for peer, worker in self.workers.items()
        }
        return World(control, workers, dict(self.under_way), dict(self.disk))

    def channels(self) -> list[Channel]:
        """Return those with a message that somebody could receive."""
        return sorted(self.under_way)

    def deliver(self, channel: Channel) -> None:
        """Give the next message of a channel to its receiver.

        Raises:
            AmpError: the receiver cannot go on; one that was told of lost messages has failed.
        """
        _, receiver, incarnation, lane = channel
        frames = self.take(channel)
        process = self.process(receiver)
        if process is None or (isinstance(process, Worker) and process.incarnation != incarnation):
            return
        if isinstance(process, Worker):
            process.disk = self.disk  # that of this world
        try:
            process.receive(lane, frames)
        except MessagesLostError:
            if receiver == CONTROLLER:
                self.recover([crash(None)])
            else:
                self.workers[receiver] = None
            return
        self._collect(process)

    def take(self, channel: Channel, at: int = 0) -> Frames:
        """Take a message off a channel, the next one by default."""
        waiting = self.under_way.pop(channel)
        if rest := (*waiting[:at], *waiting[at + 1 :]):
            self.under_way[channel] = rest
        return waiting[at]

    def process(self, peer: int) -> Control | Worker | None:
        return self.control if peer == CONTROLLER else self.workers[peer]

    def kill(self, peer: int, *, losing: bool) -> None:
        """Kill a worker; what it sent is lost with it, or not; what was sent to it is."""
        self.workers[peer] = None
        for channel in list(self.under_way):
            if channel[1] == peer or (losing and channel[0] == peer):
                del self.under_way[channel]

    def dead(self) -> list[int]:
        return [peer for peer, worker in self.workers.items() if worker is None]

    def recover(self, failures: Sequence[Failure]) -> None:
        """Do what the controller's process does about failures, those of dead workers."""
        generation = self.control.recover(failures)
        for failure in failures:
            if failure.peer is not None:
                for channel in list(self.under_way):  # its sockets are gone
                    if channel[1] == failure.peer:
                        del self.under_way[channel]
                incarnation = generation.incarnation(failure.peer)
                made = Worker(self.control.fixed, failure.peer, incarnation, generation.number)
                self.workers[failure.peer] = made
                self._collect(made)
        self._collect(self.control)

    def _collect(self, process: Control | Worker | None) -> None:
        """Put what a process has sent on its way."""
        assert process is not None
        sent, process.wire.sent = process.wire.sent, []
        for peer, lane, frames in sent:
            incarnation = 0 if peer == CONTROLLER else process.target_of(peer)
            channel = (process.wire.peer, peer, incarnation, lane)
            self.under_way[channel] = (*self.under_way.get(channel, ()), frames)
