"""A child-sum Tree-LSTM: trees whose nodes have any number of children; the root is classified.

nodes -> embedding --+-------------------> key of children (group: sum) --> cell --> top (cond)
                     |                          ^                                    |      |
                     +-> to-children (flatmap)  |                                    no    yes
                              |                 |                                    |      |
                              +-> child (join) -+-> forget --> children              |      v
                                     ^                                               |   hidden
                                     +-----------------------------------------------+   -> logits
                                                                                         -> loss
A row's state is the tree node that it is of. What a node is goes to its own row, and to each
of its children, whose forget gates see it; a leaf's group is empty, so it leaves at once.
"""

from __future__ import annotations

from amp_runtime.graph import POSITION, Graph
from amp_runtime.models.embedded import embedded
from amp_runtime.names import needs
from amp_runtime.rows.spec import Array, Columns
from amp_runtime.rows.structure import StructureArena


def build(
    graph: Graph,
    *,
    hidden: int = 128,
    embedding: int = 128,
    types: int | None = None,
    classes: int | None = None,
    input_dropout: float = 0.0,
    dropout: float = 0.0,
    node_bits: int = 16,
) -> None:
    """Build the network over trees whose nodes are numbered, in any order.

    Args:
        graph: over the fields of source `python_trees`: `type`, `parent`, `n_children`,
            `first_child` and `is_root` for each node, `child`, and a `label`.
        hidden: width of h and c.
        embedding: width of the embedding of a node's type.
        types: types are 0 to types - 1; none: as the source says.
        classes: labels are 0 to classes - 1; none: as the source says.
        input_dropout: share of the features of a node's embedding that are dropped in training.
        dropout: share of the features of the root's h that the readout does not see in
            training.
        node_bits: trees have up to 2**node_bits nodes.
    Source: Tai, Socher, Manning, arXiv:1503.00075, Child-Sum Tree-LSTM.
    """
    graph.state(node=node_bits)
    nodes = graph.input("nodes", each="type", state={"node": POSITION}, payload={"x": "type"})
    vectors = embedded(graph, nodes, "type", types, embedding)
    if input_dropout:
        vectors = graph.add("dropout", "input-dropout", vectors, rate=input_dropout)

    to_children = graph.add(
        "flatmap",
        "to-children",
        vectors,
        count=f"{__name__}:n_children",
        state=f"{__name__}:to_child",
    )
    of_child = {"h": hidden, "c": hidden}
    child = graph.add("join", "child", to_children, inputs=("x", "state"), loop={"state": of_child})
    forget = graph.add("forget", "forget", child)
    children = graph.add(
        "group",
        "children",
        forget,
        reduce="sum",
        key=f"{__name__}:to_parent",
        count=f"{__name__}:n_children",
        announced=True,
        passes={"x": "x"},
    )
    graph.connect(vectors, children.port("key"))
    cell = graph.add("child_sum_lstm", "cell", children)
    top = graph.add("cond", "top", cell, choose=f"{__name__}:is_root")
    graph.connect(top["no"], child.port("state"))

    readout = graph.add("take", "hidden", top["yes"], arrays=("h",))
    if dropout:
        readout = graph.add("dropout", "dropout", readout, rate=dropout)
    features = graph.entries("label") if classes is None else classes
    logits = graph.add("linear", "logits", readout, features=features)
    graph.add("softmax_cross_entropy", "loss", logits, label="label")


@needs("is_root")
def is_root(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("is_root", columns, columns["node"])


@needs("n_children")
def n_children(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("n_children", columns, columns["node"])


@needs("first_child", "child")
def to_child(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    first = structure.take("first_child", columns, columns["node"])
    return {"node": structure.take("child", columns, first + columns[POSITION])}


@needs("parent")
def to_parent(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"node": structure.take("parent", columns, columns["node"])}
