"""Instances on their way into the graph: who gets which rows, and whose structure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amp_runtime.control.actions import Action, Inject, ToWorker
from amp_runtime.control.feed import Injection
from amp_runtime.control.in_flight import InFlight
from amp_runtime.graph.wiring import CONTROLLER_NODE, Wiring, fields_of
from amp_runtime.rows.message import ADDRESS_COLUMNS, Direction, Message, Mode
from amp_runtime.rows.spec import Int32
from amp_runtime.wire.protocol import Structure


class Injecting:
    """Makes messages of injections, and notes them as in flight.

    Args:
        peer_of: peer number by node number.
        verify: rows also carry the state that they are injected with.
    """

    def __init__(
        self, wiring: Wiring, peer_of: Sequence[int], in_flight: InFlight, *, verify: bool
    ) -> None:
        self._in_flight = in_flight
        self._verify = verify
        self._ports = [wiring.targets[CONTROLLER_NODE, spec.name] for spec in wiring.inputs]
        self._peer_at = [peer_of[node] for node, _ in wiring.input_ports]
        self._fields = {
            peer: fields_of([n for n, p in zip(wiring.nodes, peer_of, strict=True) if p == peer])
            for peer in sorted(set(peer_of))
        }

    def actions(self, injection: Injection, mode: Mode) -> list[Action]:
        """Return what sends an injection on its way, structure first."""
        self._in_flight.admit(injection.instances, injection.n_rows, injection.n_examples)
        actions: list[Action] = []
        counts = {"instances": injection.instances, "n_examples": injection.n_examples}
        for peer, fields in self._fields.items():
            if fields:
                arrays = {n: injection.structure[n] for f in fields for n in (f, f"#{f}")}
                actions.append(ToWorker(peer, Structure({**counts, **arrays})))
        for number, rows in enumerate(injection.inputs):
            for port, some in rows.dealt(self._ports[number]):
                columns = self._stamp(number, some.columns)
                message = Message(Direction.FORWARD, mode, port, columns, some.payload)
                actions.append(Inject(self._peer_at[port], message))
        return actions

    def _stamp(self, return_port: int, columns: Int32) -> Int32:
        state = columns[:, ADDRESS_COLUMNS:]
        stamped = np.concatenate([columns, state], axis=1) if self._verify else columns.copy()
        stamped[:, 0] = return_port
        stamped[:, 1] = self._in_flight.stamp(state)
        return stamped
