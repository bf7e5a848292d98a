"""The nodes of one worker, without I/O: rows in, rows out.

    receive(message) ---> queues by merge key ---> work() ---> messages to other workers
    on_record(record) --> replies                  settle()    after they were sent

Waiting rows with one merge key become one batch, up to the rows of one update. Which
goes first, `row_queues` says.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from amp_runtime.errors import AmpError, InvariantError, NodeError, StartError, WireError
from amp_runtime.graph.wiring import CONTROLLER_NODE, NodeSpec, Wiring, fields_of
from amp_runtime.host.row_queues import RowQueues
from amp_runtime.nodes.backward_weights import BackwardWeights
from amp_runtime.nodes.end import End
from amp_runtime.nodes.node import Evaluation, Kinds, Node, NodeContext
from amp_runtime.nodes.one_to_one import Parameterised
from amp_runtime.nodes.statistics import MetricSum, NodeReport, ProcessFacts, WorkerReport
from amp_runtime.nodes.updates import Schedule, UpdatePolicy
from amp_runtime.rows.message import (
    ADDRESS_COLUMNS,
    Answer,
    Direction,
    Emission,
    MergeKey,
    Message,
    Mode,
    Payload,
    Rows,
    dealt,
)
from amp_runtime.rows.spec import ArraySpec, Int32
from amp_runtime.rows.structure import StructureArena
from amp_runtime.wire.codec import check_payload
from amp_runtime.wire.protocol import (
    CONTROLLER,
    Acknowledged,
    AskShare,
    Barrier,
    EvaluateWith,
    GoOn,
    Parameters,
    Predictions,
    Record,
    Retired,
    SendParameters,
    SetParameters,
    Structure,
)

if TYPE_CHECKING:
    from amp_runtime.host.replicas import HostReplicas

PREDICTION_BYTES = 256 << 10
"""A node hands on its predictions when they are so large: they are no part of any answer."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What all workers of a run share.

    Attributes:
        peer_of: peer number by node number; the controller is peer 0.
        update_every: examples per update, for nodes that do not say otherwise.
        evaluation: what ends of the graph make of rows in evaluation.
    """

    peer_of: Sequence[int]
    seed: int = 0
    verify: bool = False
    schedule: Schedule = Schedule.ASYNCHRONOUS
    update_every: int = 100
    evaluation: Evaluation = Evaluation.METRICS


@dataclass(slots=True)
class Outgoing:
    """A message to another worker or to the controller."""

    peer: int
    message: Message


@dataclass(slots=True)
class _Counters:
    """What the host counts about a node.

    Attributes:
        rows, batches: by direction, all modes.
        sent: rows that it emitted, and rows that it answered, by direction.
        train_rows: forward rows in training.
    """

    rows: list[int] = field(default_factory=lambda: [0, 0])
    batches: list[int] = field(default_factory=lambda: [0, 0])
    sent: list[int] = field(default_factory=lambda: [0, 0])
    busy_s: float = 0.0
    train_rows: int = 0


def _is_too_big(error: Exception) -> bool:
    """Whether an array was asked for that no memory holds: NumPy has three errors for it."""
    numpy_says = ("array is too big", "Maximum allowed dimension exceeded")
    return isinstance(error, MemoryError) or str(error).startswith(numpy_says)


def _breach(node: Node, what: str) -> NodeError:
    """Return the error for what a kind's code returned and no kind may."""
    return NodeError(what, where=f"node {node.name!r} (kind {type(node).__qualname__})")


@dataclass(frozen=True, slots=True)
class _Expected:
    """What a message to one port must be.

    Attributes:
        n_state: state columns of the port's schema.
        n_columns: of the message's matrix.
        node: its name.
    """

    arrays: Mapping[str, ArraySpec]
    n_state: int
    n_columns: int
    node: str
    where: str


class NodeHost:
    """Runs the nodes of peer `peer`.

    Attributes:
        working_on: name of the node that is run, or that an error is about; else ''.

    Args:
        kinds: finds node classes.
        clock: CPU seconds of this thread, for busy shares: with more workers than cores,
            wall time would count the neighbours too.
        facts: what the loop knows about its process, for reports.
    """

    def __init__(
        self,
        wiring: Wiring,
        kinds: Kinds,
        settings: HostSettings,
        peer: int,
        clock: Callable[[], float] = time.thread_time,
        facts: Callable[[], ProcessFacts] = ProcessFacts,
    ) -> None:
        self.wiring = wiring
        self.peer = peer
        self._settings = settings
        self._clock = clock
        self._facts = facts
        self._numbers = [i for i, p in enumerate(settings.peer_of) if p == peer]
        self._peer_of_return = [
            CONTROLLER if node == CONTROLLER_NODE else settings.peer_of[node]
            for node, _ in wiring.return_ports
        ]
        self._wanting = wiring.returns_wanting_gradient
        fields = fields_of([wiring.nodes[i] for i in self._numbers])
        self.arena = StructureArena({name: wiring.fields[name] for name in fields})
        self.nodes: dict[int, Node] = {
            i: self._make(kinds, i, wiring.nodes[i]) for i in self._numbers
        }
        self._replicas = self._find_replicas()
        self._forward_ports = self._expected(wiring.input_ports, forward=True)
        self._return_ports = self._expected(wiring.return_ports, forward=False)
        self._needs_structure = {i for i in self._numbers if wiring.nodes[i].fields}
        self._counters = {i: _Counters() for i in self._numbers}
        self._ends = [node for node in self.nodes.values() if isinstance(node, End)]
        self._queues = RowQueues(self._most_rows, taking_turns=len(self._numbers) > 1)
        self._retired_examples = 0
        self._parked: list[Message] = []
        self._to_settle: int | None = None
        self.working_on = ""

    def _make(self, kinds: Kinds, number: int, spec: NodeSpec) -> Node:
        cls = kinds.load(spec.kind, where=f"node {spec.name!r}")
        training = spec.training
        context = NodeContext(
            name=spec.name,
            ir_name=spec.ir_name,
            kind=spec.kind,
            options=cls.read_options(spec.options),
            inputs=spec.inputs,
            outputs=spec.outputs,
            wants_gradient=self.wiring.ports_wanting_gradient(number),
            return_ports={
                port: r for r, (n, port) in enumerate(self.wiring.return_ports) if n == number
            },
            dtype=self.wiring.dtype,
            seed=self._settings.seed,
            structure=self.arena.only(spec.fields),
            verify=self._settings.verify,
            evaluation=self._settings.evaluation,
        )
        if spec.parameterised:
            policy = UpdatePolicy(
                self._settings.schedule,
                training["update_every"],
                training["min_update_frequency"],
                spec.replica,
                spec.replicas,
            )
            context = replace(
                context,
                updates=policy,
                optimizer=training["optimizer"],
                lr_schedule=training["lr_schedule"],
                clip=training["clip"],
                initializer=training["initializer"],
                backward_weights=BackwardWeights(training["backward_weights"]),
            )
        where = f"node {spec.name!r} (kind {spec.kind})"
        try:
            node = cls(context)
        except AmpError as error:
            raise (error if error.where else error.at(where)) from error.__cause__
        except Exception as error:
            fix = "make its layers smaller" if _is_too_big(error) else ""
            said = f"cannot be made: {type(error).__name__}: {error}"
            raise StartError(said, where=where, fix=fix) from error
        if not hasattr(node, "stash"):
            raise StartError("its __init__ does not call super().__init__(context)", where=where)
        return node

    def _find_replicas(self) -> HostReplicas | None:
        found = [
            (self.wiring.nodes[i], node)
            for i, node in self.nodes.items()
            if self.wiring.nodes[i].replicas > 1 and isinstance(node, Parameterised)
        ]
        if not found:
            return None
        # Imported here: most workers host none.
        from amp_runtime.host.replicas import HostReplicas

        return HostReplicas(self.peer - 1, found, self._settings.schedule)

    # ---- rows

    def receive(self, message: Message) -> None:
        """Queue a message from another process, after checking it against its port.

        Raises:
            WireError: it is not for a node here, or not what the port declares.
        """
        self._check(message)
        self._enqueue(message)

    def work(self) -> list[Outgoing] | None:
        """Run one node on one merged batch; None if no row is ready.

        `settle()` must be called after the messages returned were sent.
        """
        message = self._queues.next_batch()
        if message is None:
            return None
        started = self._clock()
        out: list[Outgoing] = []
        if message.direction is Direction.BACKWARD:
            number, port = self.wiring.return_ports[message.port]
            node = self.nodes[number]
            self.working_on = node.name
            slots = np.ascontiguousarray(message.columns[:, 0])
            if self._settings.verify:
                node.check_origin(slots, message.columns[:, 1:])
            results: Sequence[Emission | Answer] = node.backward(port, slots, message.payload)
            self._to_settle = number
        else:
            number, port = self.wiring.input_ports[message.port]
            node = self.nodes[number]
            self.working_on = node.name
            width = self._forward_ports[message.port].n_state
            rows = Rows(message.columns, message.payload or {}, width)
            results = node.forward(port, rows, message.mode)
        if not isinstance(results, (tuple, list)):
            raise _breach(node, f"returned {results!r:.80}, not a list of Emissions and Answers")
        for result in results:
            if isinstance(result, Emission):
                self._emit(number, result, message.mode, out)
            elif isinstance(result, Answer):
                self._answer(number, result, message.mode, out)
            else:
                raise _breach(node, f"returned {result!r:.80}, neither an Emission nor an Answer")
        counters = self._counters[number]
        counters.rows[message.direction] += len(message)
        if message.direction is Direction.FORWARD and message.mode is Mode.TRAIN:
            counters.train_rows += len(message)
        counters.batches[message.direction] += 1
        counters.busy_s += self._clock() - started
        return out

    def settle(self) -> None:
        """Let the node that answered last accumulate its gradients."""
        if self._to_settle is not None:
            started = self._clock()
            self.nodes[self._to_settle].accumulate()
            self._counters[self._to_settle].busy_s += self._clock() - started
            self._to_settle = None
        self.working_on = ""

    @property
    def idle(self) -> bool:
        """Whether no row is ready to be worked on."""
        return not self._queues

    # ---- control

    def on_record(self, record: Record) -> list[Record]:
        """Obey a record of the controller; return the replies."""
        match record:
            case Structure():
                self._check_structure(record)
                self.arena.add(record.arrays)
                parked, self._parked = self._parked, []
                for message in parked:
                    self._enqueue(message)
                return []
            case Retired():
                instances, n_examples = record.arrays["instances"], record.arrays["n_examples"]
                self.arena.remove(instances)
                self._retired_examples += int(n_examples.sum())
                for node in self._in_turn():
                    node.on_retired(instances, n_examples)
                return []
            case Barrier():
                done = self._barrier(record)
                shares = self._replicas.at_barrier(record) if self._replicas else ()
                return [*self.take_predictions(0), *shares, done]
            case AskShare() | GoOn() | EvaluateWith() if self._replicas:
                self.working_on = record.node
                replies: list[Record] = [*self._replicas.obey(record)]
                self.working_on = ""
                return replies
            case SetParameters(node=name, arrays=arrays):
                self._parameterised(name).set_parameters(arrays)
                return []
            case SendParameters():
                return [
                    Parameters(self.peer - 1, node.name, dict(node.parameters))
                    for node in self.parameterised()
                ]
            case _:
                raise WireError(f"record {record.verb!r} is not for the nodes of a worker")

    def take_records(self) -> list[Record]:
        """Return what nodes have to tell the controller after work."""
        shares = self._replicas.due() if self._replicas else ()
        return [*self.take_predictions(), *shares]

    def take_predictions(self, at_least_bytes: int = PREDICTION_BYTES) -> list[Predictions]:
        """Return what nodes have predicted, of those that keep so much."""
        records: list[Predictions] = []
        for node in self._ends:
            if node.predicted.n_bytes >= at_least_bytes:
                records += self._predictions(node)
        return records

    def _predictions(self, node: End) -> Iterator[Predictions]:
        """Yield all that a node has predicted, in records of a bounded size."""
        n_bytes, taken = node.predicted.n_bytes, node.predicted.take()
        if taken is None:
            return
        state, arrays = taken
        some = max(PREDICTION_BYTES * len(state) // n_bytes, 1)
        for first in range(0, len(state), some):
            cut = slice(first, first + some)
            by_name = {name: array[cut] for name, array in arrays.items()}
            yield Predictions(self.peer - 1, node.name, {"#state": state[cut], **by_name})

    def _in_turn(self) -> Iterator[Parameterised]:
        for node in self.parameterised():
            self.working_on = node.name
            yield node
        self.working_on = ""

    def parameterised(self) -> list[Parameterised]:
        return [node for node in self.nodes.values() if isinstance(node, Parameterised)]

    def _parameterised(self, name: str) -> Parameterised:
        self.working_on = name
        for node in self.parameterised():
            if node.name == name:
                return node
        raise WireError(f"parameters for {name!r}, which is no parameterised node here")

    def assert_invariants(self) -> None:
        """Assert that nothing of any instance is left, as it must be at a barrier.

        Raises:
            InvariantError: rows are queued, stashed, or wait in a join.
        """
        if self.queued_rows:
            raise InvariantError(f"{self.queued_rows} rows are queued though nothing is in flight")
        for node in self.nodes.values():
            node.assert_drained()

    @property
    def queued_rows(self) -> int:
        return self._queues.rows + self.parked_rows

    @property
    def parked_rows(self) -> int:
        return sum(len(m) for m in self._parked)

    def report(self) -> WorkerReport:
        return WorkerReport(
            nodes={self.wiring.nodes[i].name: self._node_report(i) for i in self._numbers},
            process=self._facts(),
            queued_rows=self.queued_rows,
            parked_rows=self.parked_rows,
            live_structures=self.arena.live,
        )

    def _barrier(self, record: Barrier) -> Acknowledged:
        self.assert_invariants()
        for node in self._in_turn():
            if record.step_examples:
                node.step_for(record.step_examples)
            if record.apply_left_over:
                node.apply_left_over()
        report = self.report()
        if record.reset_metrics:
            for any_node in self.nodes.values():
                any_node.reset_metrics()
        return Acknowledged(self.peer - 1, record.barrier, report)

    def _node_report(self, number: int) -> NodeReport:
        node, counters = self.nodes[number], self._counters[number]
        updates: dict[str, Any] = {}
        if isinstance(node, Parameterised):
            moves = self._replicas.moves(node.name) if self._replicas else 0
            updates = {
                "averagings": moves if self.wiring.nodes[number].replicas > 1 else None,
                "updates": node.version - moves,
                "staleness": node.staleness.counts.tolist(),
                "gradient_rows": node.updates.rows,
                "lr": node.optimizer.lr,
                "clipped": node.clipped if node.clip is not None else None,
            }
            if (versions := node.weights.versions) is not None:
                updates |= {
                    "weight_copies_peak": versions.peak,
                    "weight_copies_peak_bytes": versions.peak_bytes,
                }
        metrics = {
            mode.name.lower(): {  # a kind may well sum with numpy; a record holds plain numbers
                n: MetricSum(float(m.total), int(m.count))
                for n, m in node.take_metrics(mode).items()
            }
            for mode in Mode
        }
        return NodeReport(
            rows_forward=counters.rows[Direction.FORWARD],
            rows_backward=counters.rows[Direction.BACKWARD],
            rows_emitted=counters.sent[Direction.FORWARD],
            rows_answered=counters.sent[Direction.BACKWARD],
            batches_forward=counters.batches[Direction.FORWARD],
            batches_backward=counters.batches[Direction.BACKWARD],
            busy_s=counters.busy_s,
            stash_used=node.stash.used,
            stash_peak=node.stash.peak,
            stash_bytes=node.stash.nbytes,
            join_waiting=node.waiting,
            metrics={mode: values for mode, values in metrics.items() if values},
            **updates,
        )

    # ---- routing

    def _emit(self, number: int, emission: Emission, mode: Mode, out: list[Outgoing]) -> None:
        if not len(emission.rows):
            return
        ports = self.wiring.targets.get((number, emission.port))
        if ports is None:
            outputs = ", ".join(map(repr, self.wiring.nodes[number].outputs)) or "none"
            raise _breach(
                self.nodes[number],
                f"emitted rows at port {emission.port!r}; its output ports are: {outputs}",
            )
        rows = emission.rows
        if len(ports) == 1:
            self._emit_at(number, ports[0], rows, mode, out)
            return
        for replica, index in dealt(rows.columns[:, ADDRESS_COLUMNS], len(ports)):
            some = rows if index is None else rows.take(index)
            self._emit_at(number, ports[replica], some, mode, out)

    def _emit_at(self, number: int, port: int, rows: Rows, mode: Mode, out: list[Outgoing]) -> None:
        message = Message(Direction.FORWARD, mode, port, rows.columns, rows.payload)
        self._send(number, self._settings.peer_of[self.wiring.input_ports[port][0]], message, out)

    def _answer(self, number: int, answer: Answer, mode: Mode, out: list[Outgoing]) -> None:
        if not len(answer.return_to):
            return
        if answer.return_to.ndim != 2:
            raise _breach(
                self.nodes[number],
                f"answered to addresses {list(answer.return_to.shape)}, not [rows, 2]",
            )
        ports = answer.return_to[:, 0]
        if (ports == ports[0]).all():
            self._answer_port(number, int(ports[0]), answer.return_to, answer.gradient, mode, out)
            return
        order = np.argsort(ports, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(ports[order])) + 1):
            return_port, gradient = int(ports[rows[0]]), answer.gradient
            if gradient is not None and return_port in self._wanting:
                gradient = {name: array[rows] for name, array in gradient.items()}
            self._answer_port(number, return_port, answer.return_to[rows], gradient, mode, out)

    def _answer_port(
        self,
        number: int,
        return_port: int,
        return_to: Int32,
        gradient: Payload | None,
        mode: Mode,
        out: list[Outgoing],
    ) -> None:
        if not 0 <= return_port < len(self._peer_of_return):
            raise _breach(
                self.nodes[number],
                f"answered to return port {return_port}, which no row came with",
            )
        # The controller and nodes without parameters before them have no use for dx.
        if return_port not in self._wanting:
            gradient = None
        message = Message(Direction.BACKWARD, mode, return_port, return_to[:, 1:], gradient)
        self._send(number, self._peer_of_return[return_port], message, out)

    def _send(self, sender: int, peer: int, message: Message, out: list[Outgoing]) -> None:
        self._counters[sender].sent[message.direction] += len(message)
        message.columns.flags.writeable = False
        for array in (message.payload or {}).values():
            array.flags.writeable = False
        if peer != self.peer:
            out.append(Outgoing(peer, message))
            return
        try:
            self._check(message)
        except AmpError as error:
            name = self.wiring.nodes[sender].name
            raise error.at(f"rows from node {name!r}") from error.__cause__
        self._enqueue(message)

    # ---- queues

    def _enqueue(self, message: Message) -> None:
        if message.direction is Direction.FORWARD:
            node = self.wiring.input_ports[message.port][0]
            if node in self._needs_structure and not self.arena.has(
                message.columns[:, ADDRESS_COLUMNS]
            ):
                self._parked.append(message)
                return
        self._queues.add(message)

    def _most_rows(self, key: MergeKey) -> float:
        """Return how many rows to merge: those that one update is made of.

        More would cost updates, which the user asked for by `update_every`: all rows of
        a batch see the same parameters. It would also let instances that were admitted
        together travel as one for ever, one node at work and the others waiting.
        """
        direction, mode, port, _ = key
        if mode is Mode.EVALUATE or self._settings.schedule is Schedule.SYNCHRONOUS:
            return math.inf
        ports = self.wiring.return_ports if direction else self.wiring.input_ports
        number = ports[port][0]
        spec = self.wiring.nodes[number]
        training = spec.training
        if (frequency := training.get("min_update_frequency", "auto")) != "auto":
            return float(frequency)
        if not self._retired_examples:
            return math.inf
        # Rows of instances in flight are counted too: an upper bound, and soon a close one.
        rows_per_example = self._counters[number].train_rows / self._retired_examples
        rows_per_example *= spec.replicas  # of its own examples
        return float(training.get("update_every", self._settings.update_every)) * rows_per_example

    def _check_structure(self, record: Structure) -> None:
        for name, spec in self.arena.fields.items():
            found = record.arrays.get(name)
            if found is None or not spec.fits(found):
                given = "missing" if found is None else ArraySpec(found.shape[1:], found.dtype.name)
                raise WireError(f"structure field {name!r} is {given}; declared: {spec}")

    def _check(self, message: Message) -> None:
        ports = (
            self._forward_ports if message.direction is Direction.FORWARD else self._return_ports
        )
        port = ports.get(message.port)
        if port is None:
            raise WireError(
                f"port {message.port} of a {message.direction.name} message is not here"
            )
        try:
            if not len(message.columns):
                raise WireError("a message without rows", where=port.where)
            check_payload(message, port.arrays, port.where, port.n_columns)
        except AmpError:
            self.working_on = port.node
            raise

    def _expected(self, ports: Sequence[tuple[int, str]], *, forward: bool) -> dict[int, _Expected]:
        """Return what may come to each of `ports` that is a port of a node here."""
        expected = {}
        for number, (node, port) in enumerate(ports):
            if node not in self.nodes:
                continue
            spec = self.wiring.nodes[node]
            port_spec = spec.inputs[port] if forward else spec.outputs[port]
            n_state = len(port_spec.schema.names)
            n_origin = n_state if self._settings.verify else 0
            n_columns = ADDRESS_COLUMNS + n_state + n_origin if forward else 1 + n_origin
            where = f"node {spec.name!r}, port {port!r}"
            expected[number] = _Expected(port_spec.arrays, n_state, n_columns, spec.name, where)
        return expected
