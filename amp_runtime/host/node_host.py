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
from typing import TYPE_CHECKING

import numpy as np

from amp_runtime import failpoints
from amp_runtime.errors import AmpError, InvariantError, ParametersError, WireError
from amp_runtime.graph.wiring import Wiring, fields_of
from amp_runtime.host.arrivals import Arrivals, check_structure
from amp_runtime.host.counters import Counters
from amp_runtime.host.making import HostSettings, make_node
from amp_runtime.host.routing import Outgoing, Routing
from amp_runtime.host.row_queues import Queues, RowQueues
from amp_runtime.nodes.end import End
from amp_runtime.nodes.node import Kinds, Node
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.nodes.statistics import ProcessFacts, WorkerReport
from amp_runtime.nodes.updates import Schedule
from amp_runtime.rows.message import (
    ADDRESS_COLUMNS,
    Answer,
    Direction,
    Emission,
    MergeKey,
    Message,
    Mode,
    Rows,
)
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.structure import StructureArena
from amp_runtime.wire.protocol import (
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
    WriteShards,
)

if TYPE_CHECKING:
    from amp_runtime.host.replicas import HostReplicas

PREDICTION_BYTES = 256 << 10
"""A node hands on its predictions when they are so large: they are no part of any answer."""

MAY_BE_ODD = ("node/gradients/", "node/remedies/")
"""What a node saves and need not be finite: no parameter is made of it before it is looked at."""
OTHER_FORM = "it must be of the same kind, optimizer, compensation and version of amp_runtime"


class NodeHost:
    """Runs the nodes of peer `peer`.

    Attributes:
        working_on: name of the node that is run, or that an error is about; else ''.

    Args:
        kinds: finds node classes.
        clock: CPU seconds of this thread, for busy shares: with more workers than cores,
            wall time would count the neighbours too.
        facts: what the loop knows about its process, for reports.
        queues: makes what rows wait in: others record, or replay, which batches are taken.
    """

    def __init__(
        self,
        wiring: Wiring,
        kinds: Kinds,
        settings: HostSettings,
        peer: int,
        clock: Callable[[], float] = time.thread_time,
        facts: Callable[[], ProcessFacts] = ProcessFacts,
        queues: Callable[..., Queues] = RowQueues,
    ) -> None:
        self.wiring = wiring
        self.peer = peer
        self._settings = settings
        self._clock = clock
        self._facts = facts
        self._numbers = [i for i, p in enumerate(settings.peer_of) if p == peer]
        fields = fields_of([wiring.nodes[i] for i in self._numbers])
        self.arena = StructureArena({name: wiring.fields[name] for name in fields})
        self.nodes: dict[int, Node] = {
            i: make_node(wiring, i, kinds, settings, self.arena) for i in self._numbers
        }
        self._replicas = self._find_replicas()
        self._arrivals = Arrivals(wiring, self.nodes, verify=settings.verify)
        self._routing = Routing(wiring, settings.peer_of)
        self._needs_structure = {i for i in self._numbers if wiring.nodes[i].fields}
        self._counters = {i: Counters() for i in self._numbers}
        self._ends = [node for node in self.nodes.values() if isinstance(node, End)]
        self._queues = queues(
            self._most_rows,
            taking_turns=len(self._numbers) > 1,
            forward_first=settings.schedule is Schedule.SYNCHRONOUS,
        )
        self._retired_examples = 0
        self._parked: list[Message] = []
        self._to_settle: int | None = None
        self.working_on = ""

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
            failpoints.hit("worker.before_backward")
            results: Sequence[Emission | Answer] = node.backward(port, slots, message.payload)
            self._to_settle = number
        else:
            number, port = self.wiring.input_ports[message.port]
            node = self.nodes[number]
            self.working_on = node.name
            width = self._arrivals.forward[message.port].n_state
            rows = Rows(message.columns, message.payload or {}, width)
            failpoints.hit("worker.before_forward")
            results = node.forward(port, rows, message.mode)
            failpoints.hit("worker.after_forward")
        counters = self._counters[number]
        for outgoing in self._routing.route(number, node, results, message.mode):
            counters.sent[outgoing.message.direction] += len(outgoing.message)
            self._send(node, outgoing, out)
        counters.worked_on(message)
        counters.busy_s += self._clock() - started
        return out

    def settle(self) -> None:
        """Let the node that answered last accumulate its gradients."""
        if self._to_settle is not None:
            failpoints.hit("worker.after_answers")
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
                check_structure(record, self.arena.fields)
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
            case WriteShards():
                # Sums what is to be summed, so that who goes on does it as one who reads that.
                self.save()
                return []
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
        nodes = {}
        for number, node in self.nodes.items():
            moves = self._replicas.moves(node.name) if self._replicas else None
            nodes[node.name] = self._counters[number].report(node, moves)
        return WorkerReport(
            nodes=nodes,
            process=self._facts(),
            queued_rows=self.queued_rows,
            parked_rows=self.parked_rows,
            live_structures=self.arena.live,
        )

    def _barrier(self, record: Barrier) -> Acknowledged:
        failpoints.hit("worker.before_barrier")
        self.assert_invariants()
        # Who goes on from here does as one who begins here.
        self._queues.begin_round()
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

    def _send(self, sender: Node, outgoing: Outgoing, out: list[Outgoing]) -> None:
        """Queue a message that is for a node here; put any other into `out`."""
        message = outgoing.message
        message.columns.flags.writeable = False
        for array in (message.payload or {}).values():
            array.flags.writeable = False
        if outgoing.peer != self.peer:
            out.append(outgoing)
            return
        try:
            self._check(message)
        except AmpError as error:
            raise error.at(f"rows from node {sender.name!r}") from error.__cause__
        self._enqueue(message)

    # ---- to stop, and to go on

    def save(self) -> dict[str, Saved]:
        """Return what each node goes on from, by name; nothing is in flight.

        The arrays stand until the next batch or record.

        Raises:
            InvariantError: rows are queued, stashed, or wait in a join.
        """
        self.assert_invariants()
        found = {}
        for number, node in self.nodes.items():
            self.working_on = node.name
            saved = Saved({"retired_examples": self._retired_examples})
            saved.add("counters", self._counters[number].save())
            saved.add("node", node.save())
            if self._replicas:
                saved.add("replica", self._replicas.save(node.name))
            found[node.name] = saved
        self.working_on = ""
        return found

    def restore(self, saved: Mapping[str, Saved]) -> None:
        """Go on from what `save` returned of the same nodes, wherever they were.

        No row has come yet: who is to go back makes a new host, and restores that.

        Args:
            saved: of all nodes that are here.
        Raises:
            ParametersError: a node's is missing, or another's.
        """
        for number, node in self.nodes.items():
            self.working_on = node.name
            own = saved.get(node.name)
            if own is None:
                raise ParametersError(f"nothing is saved of node {node.name!r}", where=node.where)
            try:
                self._retired_examples = own.numbers["retired_examples"]
                self._counters[number].restore(own.part("counters"))
                node.restore(own.part("node"))
                if self._replicas:
                    self._replicas.restore(node.name, own.part("replica"))
            except KeyError as error:
                said = f"what is saved of it lacks {error}"
                raise ParametersError(said, where=node.where, fix=OTHER_FORM) from error
        self.working_on = ""

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

    def _check(self, message: Message) -> None:
        port = self._arrivals.expected(message)
        try:
            self._arrivals.check(message, port)
        except AmpError:
            self.working_on = port.node
            raise
