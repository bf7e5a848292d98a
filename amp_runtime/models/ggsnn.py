"""Gated graph sequence networks: one builder tells a node of a graph, one a number of all of it.

nodes -> pad -> loop (phi) --+----------------> sums (group: sum) -> cell (gru) -> step (isu)
                  ^          |                   ^                                    |
                  |          +-> edges (flatmap) |                                    v
                  |                  |           |                               more (cond)
                  |                  v           |                                yes     no
                  |               type (cond) -> message-0, ... -> messages (phi)  |      |
                  +----------------------------------------------------------------+   readout

A row's state is a node and the steps that it has to go; on an edge it is that edge. In each
step a node sends its state along the edges that leave it, through the linear of the edge's
type; the rows of an edge type that a graph does not have do not exist, nor do messages to a
node that no edge reaches: its sum is zeros. So the work is that of the edges there are.

select_node     h_T -> logits -> softmax over the nodes of the graph
regress_graph   sum over nodes of sigmoid(gate([h_T, annotation])) * value(h_T) -> squared error
"""

from __future__ import annotations

from typing import Annotated

from amp_runtime.graph import POSITION, Graph, OutPort
from amp_runtime.limits import Ge, Gt, Le
from amp_runtime.names import needs
from amp_runtime.rows.spec import Array, Columns
from amp_runtime.rows.structure import StructureArena

Positive = Annotated[int, Gt(0)]
Bits = Annotated[int, Ge(1), Le(31)]


def select_node(
    graph: Graph,
    *,
    hidden: Positive = 5,
    steps: Positive = 5,
    edge_types: Positive | None = None,
    node_bits: Bits = 10,
    edge_bits: Bits = 14,
) -> None:
    """Build the network whose answer is one of the nodes.

    Args:
        graph: over the fields `annotation`, [features] for each node; `n_out`, `n_in` and
            `first_edge` for each node, `edge_type` and `edge_target` for each edge, by
            source, as source `babi15` has them; and `label`, the number of a node.
        hidden: width of a node's state; it begins with the annotation, and zeros.
        steps: how often messages are sent.
        edge_types: types are 0 to edge_types - 1; none: as the source says.
        node_bits, edge_bits: graphs have up to 2**bits nodes, and edges.
    Source: Li, Tarlow, Brockschmidt, Zemel, arXiv:1511.05493; as a graph of IR nodes:
        AMPNet, arXiv:1705.09786.
    """
    final = _propagation(graph, hidden, steps, edge_types, node_bits, edge_bits)
    # A bias that all rows share does not change their softmax: it has no gradient.
    logits = graph.add("linear", "logits", final, features=1, bias=False)
    graph.add("softmax_over_rows", "loss", logits, count="len(annotation)", index="node")


def regress_graph(
    graph: Graph,
    *,
    hidden: Positive = 100,
    steps: Positive = 4,
    edge_types: Positive | None = None,
    node_bits: Bits = 10,
    edge_bits: Bits = 14,
) -> None:
    """Build the network whose answer is a number for the whole graph.

    Args:
        graph: over the fields of `select_node`, but `target` in place of `label`: a float.
        hidden, steps, edge_types, node_bits, edge_bits: as in `select_node`.
    Source: as of `select_node`; gated sum: Gilmer et al., arXiv:1704.01212, there of a GG-NN.
    """
    final = _propagation(graph, hidden, steps, edge_types, node_bits, edge_bits)
    # h_0 is the annotation and zeros, whose weights would never be used.
    first = graph.input(
        "first",
        each="annotation",
        state={"step": 0, "node": POSITION},
        payload={"x": "annotation"},
    )
    both = graph.add("concat", "both", final, first, inputs=("final", "first"))
    gate = graph.add("linear", "gate", both, features=1, activation="sigmoid")
    value = graph.add("linear", "value", final, features=1)
    gated = graph.add("multiply", "gated", gate, value, inputs=("gate", "value"))
    total = graph.add(
        "group",
        "total",
        gated,
        reduce="sum",
        key=f"{__name__}:whole_graph",
        count=f"{__name__}:n_nodes",
        columns={},
    )
    graph.add("squared_error", "loss", total, scaled=graph.scales("target"))


def _propagation(
    graph: Graph,
    hidden: int,
    steps: int,
    edge_types: int | None,
    node_bits: int,
    edge_bits: int,
) -> OutPort:
    """Add all up to the states of the nodes after the last step, which leave with step 0."""
    step_bits = steps.bit_length()
    graph.state(step=step_bits, node=node_bits)
    nodes = graph.input(
        "nodes",
        each="annotation",
        state={"step": steps, "node": POSITION},
        payload={"h": "annotation"},
    )
    start = graph.add("pad", "start", nodes, features=hidden)
    loop = graph.add("phi", "loop", start, inputs=("start", "again"))
    edges = graph.add(
        "flatmap",
        "edges",
        loop,
        count=f"{__name__}:n_edges_out",
        state=f"{__name__}:edge_out",
        columns={"step": step_bits, "edge": edge_bits},
    )
    messages = _messages(graph, edges["y"], hidden, edge_types)
    sums = graph.add(
        "group",
        "sums",
        messages,
        loop,
        reduce="sum",
        key=f"{__name__}:to_target",
        count=f"{__name__}:n_edges_in",
        announced=True,
        passes={"h": "h"},
    )
    cell = graph.add("gru", "cell", sums)
    step = graph.add("isu", "step", cell, update=f"{__name__}:one_step_less")
    more = graph.add("cond", "more", step, choose=f"{__name__}:has_steps_to_go")
    graph.connect(more["yes"], loop.port("again"))
    return more["no"]


def _messages(graph: Graph, edges: OutPort, hidden: int, edge_types: int | None) -> OutPort:
    """Add a linear for each type of edges, and what leads its rows there and back together."""
    n_types = graph.entries("edge_type") if edge_types is None else edge_types
    names = [f"message-{number}" for number in range(n_types)]
    if n_types == 1:
        return graph.add("linear", names[0], edges, features=hidden)["y"]
    typed = graph.add("cond", "type", edges, choose=f"{__name__}:type_of_edge", outputs=names)
    sent = [graph.add("linear", name, typed[name], features=hidden) for name in names]
    return graph.add("phi", "messages", *sent, inputs=names)["y"]


@needs("n_out")
def n_edges_out(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("n_out", columns, columns["node"])


@needs("first_edge")
def edge_out(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    first = structure.take("first_edge", columns, columns["node"])
    return {"edge": first + columns[POSITION]}


@needs("edge_type")
def type_of_edge(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("edge_type", columns, columns["edge"])


@needs("edge_target")
def to_target(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"node": structure.take("edge_target", columns, columns["edge"])}


@needs("n_in")
def n_edges_in(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("n_in", columns, columns["node"])


def one_step_less(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] - 1}


def has_steps_to_go(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] > 0


def whole_graph(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {}


@needs("len(annotation)")
def n_nodes(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("len(annotation)", columns)
