"""How many rows come to each node and go between nodes: counted on a few examples.

Where a row goes depends on its state alone, never on a payload. So the graph is run once
with stand-ins in place of the mathematics: they make no parameters and hand on zeros.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from amp_runtime.control.feed import Feed
from amp_runtime.data.dataset import Dataset
from amp_runtime.graph.placement import Work
from amp_runtime.graph.wiring import CONTROLLER_NODE, Wiring
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import NodeHost
from amp_runtime.nodes.loss import Loss
from amp_runtime.nodes.node import Kinds, Node
from amp_runtime.nodes.one_to_one import OneToOne
from amp_runtime.nodes.statistics import Metrics
from amp_runtime.rows.message import Direction, Message, Mode, Payload, Rows
from amp_runtime.rows.spec import PortSpec
from amp_runtime.wire.protocol import Structure

EXAMPLES = 64
MOST_BATCHES = 20_000
"""A loop that never ends is for the run to tell; what was counted until then will do."""

ROW_US = 0.8
"""To send a row to another worker, or to receive it, when some hundred travel together."""
BYTES_PER_US = 4000.0


@dataclass(slots=True)
class Traffic:
    """What some examples brought, there and back.

    Attributes:
        rows: forward rows that came, by node.
        sent, sent_bytes: rows and bytes by (sender, receiver); the controller is -1.
    """

    n_examples: int
    rows: Counter[int] = field(default_factory=Counter)
    sent: Counter[tuple[int, int]] = field(default_factory=Counter)
    sent_bytes: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, sender: int, receiver: int, message: Message) -> None:
        if message.direction is Direction.FORWARD:
            self.rows[receiver] += len(message)
        arrays = (message.columns, *(message.payload or {}).values())
        self.sent[sender, receiver] += len(message)
        self.sent_bytes[sender, receiver] += sum(array.nbytes for array in arrays)


def estimated_work(wiring: Wiring, kinds: Kinds, dataset: Dataset, seed: int = 0) -> Work:
    """Return what an example costs each node, and between nodes: rows times what one costs."""
    traffic = count(wiring, kinds, dataset, seed)
    n = max(traffic.n_examples, 1)
    nodes_us = [
        spec.load * max(traffic.rows[number], 1) / n for number, spec in enumerate(wiring.nodes)
    ]
    between_us: dict[tuple[int, int], float] = defaultdict(float)
    for (sender, receiver), rows in traffic.sent.items():
        us = (rows * ROW_US + traffic.sent_bytes[sender, receiver] / BYTES_PER_US) / n
        if CONTROLLER_NODE in (sender, receiver):
            nodes_us[max(sender, receiver)] += us
        elif sender != receiver:
            between_us[min(sender, receiver), max(sender, receiver)] += us
    return Work(nodes_us, between_us)


def count(wiring: Wiring, kinds: Kinds, dataset: Dataset, seed: int = 0) -> Traffic:
    """Run up to EXAMPLES training examples through the graph, and count.

    Code of a user that raises ends the counting, and not the run: where it fails there,
    the run says so with node, worker and log.
    """
    order = dataset.order(seed, 1)[:EXAMPLES]
    traffic = Traffic(len(order))
    with contextlib.suppress(Exception):
        _Run(wiring, kinds, traffic).run(Feed(wiring, dataset, order, 0))
    return traffic


class _Run:
    """One host for each node, so that all rows between nodes are seen."""

    def __init__(self, wiring: Wiring, kinds: Kinds, traffic: Traffic) -> None:
        self._wiring = wiring
        self._traffic = traffic
        settings = HostSettings(peer_of=range(1, len(wiring.nodes) + 1))
        stand_ins = _StandIns(kinds)
        self._hosts = [
            NodeHost(wiring, stand_ins, settings, peer, clock=lambda: 0.0)
            for peer in settings.peer_of
        ]
        self._ready: deque[int] = deque()

    def run(self, feed: Feed) -> None:
        while n_instances := len(feed.upcoming()[0]):
            injection = feed.take(n_instances)
            counts = {"instances": injection.instances, "n_examples": injection.n_examples}
            for host in self._hosts:
                host.on_record(Structure({**counts, **injection.structure}))
            for return_port, rows in enumerate(injection.inputs):
                spec = self._wiring.inputs[return_port]
                for port, some in rows.dealt(self._wiring.targets[CONTROLLER_NODE, spec.name]):
                    columns = some.columns.copy()
                    columns[:, 0] = return_port
                    message = Message(Direction.FORWARD, Mode.TRAIN, port, columns, some.payload)
                    self._deliver(CONTROLLER_NODE, self._wiring.input_ports[port][0], message)
        for _ in range(MOST_BATCHES):
            if not self._ready:
                return
            self._work(self._ready.popleft())

    def _work(self, node: int) -> None:
        host = self._hosts[node]
        for out in host.work() or ():
            self._deliver(node, out.peer - 1, out.message)
        host.settle()
        if not host.idle:
            self._ready.append(node)

    def _deliver(self, sender: int, receiver: int, message: Message) -> None:
        self._traffic.add(sender, receiver, message)
        if receiver != CONTROLLER_NODE:
            if self._hosts[receiver].idle:
                self._ready.append(receiver)
            self._hosts[receiver].receive(message)


class _StandIns:
    """Kinds, with stand-ins for those whose mathematics nothing depends on here."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds

    def names(self) -> Sequence[str]:
        return self._kinds.names()

    def load(self, kind: str, *, where: str = "") -> type[Node]:
        cls = self._kinds.load(kind, where=where)
        for base, stand_in in ((OneToOne, _OneToOne), (Loss, _Loss)):
            if issubclass(cls, base):
                return type(cls.__name__, (stand_in,), {"kind": kind, "Options": cls.Options})
        return cls


def _zeros(spec: PortSpec, n_rows: int) -> Payload:
    return {n: np.zeros((n_rows, *a.shape), a.numpy_dtype) for n, a in spec.arrays.items()}


class _OneToOne(OneToOne):
    """As many rows as came, both ways."""

    @classmethod
    def infer(
        cls, options: object, inputs: Mapping[str, PortSpec], dtype: str
    ) -> Mapping[str, PortSpec]:
        return inputs

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        n_rows = len(next(iter(payload.values())))
        return _zeros(self.context.outputs["y"], n_rows), {}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        n_rows = len(next(iter(gradient.values())))
        return _zeros(self.context.inputs["x"], n_rows) if wants_input else None


class _Loss(Loss):
    """Answers with a gradient where one is wanted."""

    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        return {}, _zeros(self.context.inputs["x"], len(rows)) if wants_gradient else None
