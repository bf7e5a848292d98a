"""A checked graph as plain records, and the tables that rows are routed by.

`Graph.build()` makes a `Wiring`; it crosses to the workers as plain data. Return
ports and input ports get dense numbers here, and backward channels are computed
through transparent nodes: an answer goes straight to the node that stamped the row.

A node with replicas stands here once for each, one behind the other: `cell.0`, `cell.1`.
Rows of instance i are for replica i mod their number, wherever they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from amp_runtime.rows.message import Mode
from amp_runtime.rows.spec import ArraySpec, PortSpec

CONTROLLER_NODE = -1
"""Stands for the controller where nodes are numbered."""

PerExample = "@example"
"""An input that injects one row for each example."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One IR node, checked; or one replica of it.

    Attributes:
        name: unique; of a replica the IR node's, a dot and `replica`.
        options: validated, as plain data.
        inputs, outputs: what passes each port.
        fields: structure fields that it needs.
        training: optimizer, update_every, min_update_frequency; {} without parameters.
        load: estimated microseconds a row, there and back.
        replica: which of them this is, from 0.
    """

    name: str
    kind: str
    options: Mapping[str, Any]
    inputs: Mapping[str, PortSpec]
    outputs: Mapping[str, PortSpec]
    fields: tuple[str, ...]
    training: Mapping[str, Any]
    transparent: bool
    one_to_one: bool
    parameterised: bool
    is_end: bool
    load: float
    replica: int = 0

    @property
    def ir_name(self) -> str:
        """The node's name in the model: no IR node's name has a dot."""
        return self.name.partition(".")[0]

    @property
    def replicas(self) -> int:
        """How many of them there are."""
        return int(self.training.get("replicas", 1))


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Rows that the controller injects, for each example one per element of a field.

    Attributes:
        each: the field that tells how many rows, or `@example`: one.
        state: {column: field name, `@position`, or an int}.
        payload: {array: field name, or None: zeros}.
        spec: what leaves here.
        at_least: how many rows each example must bring.
    """

    name: str
    each: str
    state: Mapping[str, str | int]
    payload: Mapping[str, str | None]
    spec: PortSpec
    at_least: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """From an output port (or a controller input: node -1) to an input port."""

    source: int
    source_port: str
    target: int
    target_port: str


@dataclass(frozen=True)
class Wiring:
    """The static graph.

    Attributes:
        fields: {structure field: spec}, those that any node needs.
        batch: examples per instance.
    """

    nodes: tuple[NodeSpec, ...]
    inputs: tuple[InputSpec, ...]
    edges: tuple[Edge, ...]
    fields: Mapping[str, ArraySpec]
    dtype: str
    batch: int

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Node number by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @property
    def n_ir_nodes(self) -> int:
        """How many nodes the model has, replicas counted once."""
        return sum(not node.replica for node in self.nodes)

    @property
    def parameterised(self) -> tuple[str, ...]:
        """Names in the model of the nodes with parameters."""
        return tuple(n.ir_name for n in self.nodes if n.parameterised and not n.replica)

    def named(self, name: str) -> tuple[int, ...]:
        """Return the numbers of the nodes that a name means: of an IR node all its replicas."""
        return tuple(i for i, node in enumerate(self.nodes) if name in (node.name, node.ir_name))

    @cached_property
    def return_ports(self) -> tuple[tuple[int, str], ...]:
        """(node, output port) by return port number; the controller's inputs come first."""
        controller = [(CONTROLLER_NODE, spec.name) for spec in self.inputs]
        stamped = [
            (i, port)
            for i, node in enumerate(self.nodes)
            if not node.transparent
            for port in node.outputs
        ]
        return (*controller, *stamped)

    @cached_property
    def input_ports(self) -> tuple[tuple[int, str], ...]:
        """(node, input port) by input port number."""
        return tuple((i, port) for i, node in enumerate(self.nodes) for port in node.inputs)

    @cached_property
    def targets(self) -> Mapping[tuple[int, str], tuple[int, ...]]:
        """Numbers of the input ports that each output port (or input) leads to, by replica."""
        number = {key: i for i, key in enumerate(self.input_ports)}
        found: dict[tuple[int, str], tuple[int, ...]] = {}
        for e in self.edges:
            source = e.source, e.source_port
            found[source] = (*found.get(source, ()), number[e.target, e.target_port])
        return found

    def arrivals(self, mode: Mode) -> Mapping[int, frozenset[int]]:
        """Return, for each input port, the return ports that its rows can carry."""
        found: dict[int, set[int]] = {i: set() for i in range(len(self.input_ports))}
        for return_port, key in enumerate(self.return_ports):
            node = key[0]
            if node >= 0 and self._passes_on(node, mode):
                continue  # stamps nothing in this mode
            to_visit = [*self.targets[key]]
            while to_visit:
                port = to_visit.pop()
                if return_port in found[port]:
                    continue
                found[port].add(return_port)
                reached = self.input_ports[port][0]
                if self._passes_on(reached, mode):
                    for output in self.nodes[reached].outputs:
                        to_visit += self.targets[reached, output]
        return {port: frozenset(returns) for port, returns in found.items()}

    def _passes_on(self, node: int, mode: Mode) -> bool:
        spec = self.nodes[node]
        return spec.transparent or (mode is Mode.EVALUATE and spec.one_to_one)

    @cached_property
    def returns_wanting_gradient(self) -> frozenset[int]:
        """Return ports whose node uses a gradient: parameters lie at it or before it."""
        arrivals = self.arrivals(Mode.TRAIN)
        ports_of: dict[int, list[int]] = {}
        for port, (node, _) in enumerate(self.input_ports):
            ports_of.setdefault(node, []).append(port)
        wanting: set[int] = set()
        while True:
            more = {
                return_port
                for return_port, (node, _) in enumerate(self.return_ports)
                if node >= 0
                and (
                    self.nodes[node].parameterised
                    or any(arrivals[port] & wanting for port in ports_of.get(node, ()))
                )
            }
            if more == wanting:
                return frozenset(wanting)
            wanting = more

    def ports_wanting_gradient(self, node: int) -> frozenset[str]:
        """Return the input ports of `node` some of whose rows want a gradient."""
        arrivals = self.arrivals(Mode.TRAIN)
        return frozenset(
            port
            for number, (owner, port) in enumerate(self.input_ports)
            if owner == node and arrivals[number] & self.returns_wanting_gradient
        )

    def forward_channels(self) -> frozenset[tuple[int, int]]:
        """Return (from node, to node) of all edges; -1 is the controller."""
        return frozenset((e.source, e.target) for e in self.edges)

    def backward_channels(self) -> frozenset[tuple[int, int]]:
        """Return (answering node, node that stamped) of all modes; -1 is the controller."""
        pairs = set()
        for mode in Mode:
            for port, return_ports in self.arrivals(mode).items():
                node = self.input_ports[port][0]
                if not self._passes_on(node, mode):
                    pairs |= {(node, self.return_ports[r][0]) for r in return_ports}
        return frozenset(pairs)

    # ---- plain data

    def to_plain(self) -> dict[str, Any]:
        """Return nested dicts, lists, strings and numbers; `from_plain` reads them."""
        return {
            "nodes": [
                {
                    **{n: getattr(node, n) for n in _PLAIN_NODE_FIELDS},
                    "options": dict(node.options),
                    "training": dict(node.training),
                    "fields": list(node.fields),
                    "inputs": _specs_to_plain(node.inputs),
                    "outputs": _specs_to_plain(node.outputs),
                }
                for node in self.nodes
            ],
            "inputs": [
                {
                    "name": spec.name,
                    "each": spec.each,
                    "state": dict(spec.state),
                    "payload": dict(spec.payload),
                    "spec": spec.spec.to_plain(),
                    "at_least": spec.at_least,
                }
                for spec in self.inputs
            ],
            "edges": [asdict(edge) for edge in self.edges],
            "fields": {name: spec.to_plain() for name, spec in self.fields.items()},
            "dtype": self.dtype,
            "batch": self.batch,
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Wiring:
        return Wiring(
            nodes=tuple(
                NodeSpec(
                    **{
                        **node,
                        "fields": tuple(node["fields"]),
                        "inputs": _specs_from_plain(node["inputs"]),
                        "outputs": _specs_from_plain(node["outputs"]),
                    }
                )
                for node in plain["nodes"]
            ),
            inputs=tuple(
                InputSpec(**{**spec, "spec": PortSpec.from_plain(spec["spec"])})
                for spec in plain["inputs"]
            ),
            edges=tuple(Edge(**edge) for edge in plain["edges"]),
            fields={name: ArraySpec.from_plain(s) for name, s in plain["fields"].items()},
            dtype=plain["dtype"],
            batch=plain["batch"],
        )


_PLAIN_NODE_FIELDS = (
    "name",
    "kind",
    "transparent",
    "one_to_one",
    "parameterised",
    "is_end",
    "load",
    "replica",
)


def _specs_to_plain(specs: Mapping[str, PortSpec]) -> dict[str, Any]:
    return {port: spec.to_plain() for port, spec in specs.items()}


def _specs_from_plain(plain: Mapping[str, Any]) -> dict[str, PortSpec]:
    return {port: PortSpec.from_plain(spec) for port, spec in plain.items()}


def fields_of(nodes: Iterable[NodeSpec]) -> Sequence[str]:
    """Return the structure fields that `nodes` need together, each once, in order."""
    return list(dict.fromkeys(field for node in nodes for field in node.fields))
