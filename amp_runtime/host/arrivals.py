"""What may come to a worker: rows as their port declares, structure as it was declared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from amp_runtime.errors import WireError
from amp_runtime.graph.wiring import Wiring
from amp_runtime.rows.message import ADDRESS_COLUMNS, Direction, Message
from amp_runtime.rows.spec import ArraySpec
from amp_runtime.wire.codec import check_payload
from amp_runtime.wire.protocol import Structure


@dataclass(frozen=True, slots=True)
class Expected:
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


class Arrivals:
    """The ports of the nodes of one worker.

    Args:
        here: numbers of the nodes that it hosts.
        verify: whether rows carry the state that they were emitted with.

    Attributes:
        forward, backward: what is expected, by input port and by return port.
    """

    def __init__(self, wiring: Wiring, here: Collection[int], *, verify: bool) -> None:
        self._wiring = wiring
        self._here = here
        self._verify = verify
        self.forward = self._expected(wiring.input_ports, forward=True)
        self.backward = self._expected(wiring.return_ports, forward=False)

    def expected(self, message: Message) -> Expected:
        """Return what is expected at the port that `message` is for.

        Raises:
            WireError: no node here has it.
        """
        ports = self.forward if message.direction is Direction.FORWARD else self.backward
        port = ports.get(message.port)
        if port is None:
            raise WireError(
                f"port {message.port} of a {message.direction.name} message is not here"
            )
        return port

    def check(self, message: Message, port: Expected) -> None:
        """Check a message against its port.

        Raises:
            AmpError: it has no rows, or other columns or arrays than declared.
        """
        if not len(message.columns):
            raise WireError("a message without rows", where=port.where)
        check_payload(message, port.arrays, port.where, port.n_columns)

    def _expected(self, ports: Sequence[tuple[int, str]], *, forward: bool) -> dict[int, Expected]:
        expected = {}
        for number, (node, port) in enumerate(ports):
            if node not in self._here:
                continue
            spec = self._wiring.nodes[node]
            port_spec = spec.inputs[port] if forward else spec.outputs[port]
            n_state = len(port_spec.schema.names)
            n_origin = n_state if self._verify else 0
            n_columns = ADDRESS_COLUMNS + n_state + n_origin if forward else 1 + n_origin
            where = f"node {spec.name!r}, port {port!r}"
            expected[number] = Expected(port_spec.arrays, n_state, n_columns, spec.name, where)
        return expected


def check_structure(record: Structure, fields: Mapping[str, ArraySpec]) -> None:
    """Check that the fields that were declared have come, as declared.

    Raises:
        AmpError: one has not.
    """
    for name, spec in fields.items():
        found = record.arrays.get(name)
        if found is None or not spec.fits(found):
            given = "missing" if found is None else ArraySpec(found.shape[1:], found.dtype.name)
            raise WireError(f"structure field {name!r} is {given}; declared: {spec}")
