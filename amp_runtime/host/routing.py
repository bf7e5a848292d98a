"""From what a node returned to messages: where rows and answers go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from amp_runtime.errors import NodeError
from amp_runtime.graph.wiring import CONTROLLER_NODE, Wiring
from amp_runtime.nodes.node import Node
from amp_runtime.rows.message import (
    ADDRESS_COLUMNS,
    Answer,
    Direction,
    Emission,
    Message,
    Mode,
    Payload,
    Rows,
    dealt,
)
from amp_runtime.rows.picking import picked
from amp_runtime.rows.segments import run_starts
from amp_runtime.rows.spec import Int32
from amp_runtime.wire.protocol import CONTROLLER


@dataclass(slots=True)
class Outgoing:
    """A message to a worker or to the controller."""

    peer: int
    message: Message


class Routing:
    """The tables of all edges, and the rules of what a kind may return.

    Args:
        peer_of: peer number by node number.
    """

    def __init__(self, wiring: Wiring, peer_of: Sequence[int]) -> None:
        self._wiring = wiring
        self._targets = {
            output: [(port, peer_of[wiring.input_ports[port][0]]) for port in ports]
            for output, ports in wiring.targets.items()
        }
        self._peer_of_return = [
            CONTROLLER if node == CONTROLLER_NODE else peer_of[node]
            for node, _ in wiring.return_ports
        ]
        self._wanting = wiring.returns_wanting_gradient

    def route(self, number: int, node: Node, results: object, mode: Mode) -> Iterator[Outgoing]:
        """Yield the messages that node `number` caused by what it returned.

        Raises:
            NodeError: it returned what no kind may; names the node.
        """
        if not isinstance(results, (tuple, list)):
            raise _breach(node, f"returned {results!r:.80}, not a list of Emissions and Answers")
        for result in results:
            if isinstance(result, Emission):
                yield from self._emitted(number, node, result, mode)
            elif isinstance(result, Answer):
                yield from self._answered(node, result, mode)
            else:
                raise _breach(node, f"returned {result!r:.80}, neither an Emission nor an Answer")

    def _emitted(
        self, number: int, node: Node, emission: Emission, mode: Mode
    ) -> Iterator[Outgoing]:
        rows = emission.rows
        if not len(rows):
            return
        targets = self._targets.get((number, emission.port))
        if targets is None:
            outputs = ", ".join(map(repr, self._wiring.nodes[number].outputs)) or "none"
            raise _breach(
                node, f"emitted rows at port {emission.port!r}; its output ports are: {outputs}"
            )
        if len(targets) == 1:
            yield _forward(targets[0], rows, mode)
            return
        for replica, index in dealt(rows.columns[:, ADDRESS_COLUMNS], len(targets)):
            yield _forward(targets[replica], rows if index is None else rows.take(index), mode)

    def _answered(self, node: Node, answer: Answer, mode: Mode) -> Iterator[Outgoing]:
        return_to, gradient = answer.return_to, answer.gradient
        if not len(return_to):
            return
        if return_to.ndim != 2:
            raise _breach(node, f"answered to addresses {list(return_to.shape)}, not [rows, 2]")
        ports = return_to[:, 0]
        if (ports == ports[0]).all():
            yield self._answered_at(node, int(ports[0]), return_to, gradient, mode)
            return
        order = ports.argsort(kind="stable")
        starts = run_starts(ports[order]).tolist()
        for start, end in pairwise((*starts, len(order))):
            rows = order[start:end]
            port, some = int(ports[rows[0]]), gradient
            if some is not None and port in self._wanting:
                some = {name: picked(array, rows) for name, array in some.items()}
            yield self._answered_at(node, port, picked(return_to, rows), some, mode)

    def _answered_at(
        self, node: Node, port: int, return_to: Int32, gradient: Payload | None, mode: Mode
    ) -> Outgoing:
        if not 0 <= port < len(self._peer_of_return):
            raise _breach(node, f"answered to return port {port}, which no row came with")
        # The controller and nodes without parameters before them have no use for dx.
        if port not in self._wanting:
            gradient = None
        message = Message(Direction.BACKWARD, mode, port, return_to[:, 1:], gradient)
        return Outgoing(self._peer_of_return[port], message)


def _forward(target: tuple[int, int], rows: Rows, mode: Mode) -> Outgoing:
    port, peer = target
    return Outgoing(peer, Message(Direction.FORWARD, mode, port, rows.columns, rows.payload))


def _breach(node: Node, what: str) -> NodeError:
    """Return the error for what a kind's code returned and no kind may."""
    return NodeError(what, where=f"node {node.name!r} (kind {type(node).__qualname__})")
