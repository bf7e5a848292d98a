"""A binary Tree-LSTM with a loss at every node of the tree.

leaves -> embedding -> leaf --> nodes (phi) --+--> hidden (take) -> logits -> loss
                                  ^           |
                                  |           +--> top (cond) -- yes --> done (sink)
                                  |                     |
                                  |                     no
                                  |                     v
                                  +------ branch <- children (group: two become one)

A row's state is the tree node that it is of. A branch is computed as soon as both of its
children are, whatever the rest of the tree does; the group makes a child's row its parent's.

Metrics beside `loss`: `accuracy` over all nodes, `accuracy_root` over roots, and
`accuracy_binary` over roots with the lower half of the classes taken for one, and the upper
half for the other; roots of the class in the middle are left out.
"""

from __future__ import annotations

from typing import Any

from amp_runtime.graph import Graph
from amp_runtime.models.embedded import embedded
from amp_runtime.names import needs
from amp_runtime.rows.spec import Array, Columns
from amp_runtime.rows.structure import StructureArena


def build(
    graph: Graph,
    *,
    hidden: int = 128,
    embedding: int | None = None,
    vocabulary: int | None = None,
    classes: int | None = None,
    dropout: float = 0.0,
    node_bits: int = 20,
) -> None:
    """Build the network over binary trees whose nodes are numbered, children first.

    Args:
        graph: over the fields of source `treebank`: `token` and `leaf` for each leaf;
            `parent`, `side`, `is_root` and `label` for each node.
        hidden: width of h and c.
        embedding: width of a word's embedding; none: that of the pre-trained vectors, with
            which it then begins, or 128 without such.
        vocabulary: words are 0 to vocabulary - 1; none: as the source says.
        classes: labels are 0 to classes - 1; none: as the source says.
        dropout: share of the features of h that the readout does not see in training.
        node_bits: trees have up to 2**node_bits nodes.
    Raises:
        ShapeMismatchError: the pre-trained vectors are of another width than `embedding`.
    Source: Tai, Socher, Manning, arXiv:1503.00075; as a graph of IR nodes: AMPNet,
        arXiv:1705.09786.
    """
    graph.state(node=node_bits)
    leaves = graph.input("leaves", each="token", state={"node": "leaf"}, payload={"x": "token"})
    words = embedded(graph, leaves, "token", vocabulary, embedding)
    leaf = graph.add("tree_lstm_leaf", "leaf", words, features=hidden)
    nodes = graph.add("phi", "nodes", leaf, inputs=("leaf", "branch"))

    readout = graph.add("take", "hidden", nodes, arrays=("h",))
    if dropout:
        readout = graph.add("dropout", "dropout", readout, rate=dropout)
    features = graph.entries("label") if classes is None else classes
    logits = graph.add("linear", "logits", readout, features=features)
    graph.add(
        "softmax_cross_entropy",
        "loss",
        logits,
        label="label",
        index="node",
        accuracies=_accuracies(features),
    )

    top = graph.add("cond", "top", nodes, choose=f"{__name__}:is_root")
    graph.add("sink", "done", top["yes"])
    children = graph.add(
        "group",
        "children",
        top["no"],
        reduce="stack",
        count=2,
        key=f"{__name__}:to_parent",
        position=f"{__name__}:side",
    )
    branch = graph.add("tree_lstm_branch", "branch", children)
    graph.connect(branch, nodes.port("branch"))


def _accuracies(classes: int) -> dict[str, Any]:
    """Return the metrics over roots: of all classes, and of their lower against upper half."""
    rows, half = f"{__name__}:is_root", classes // 2
    halves = [list(range(half)), list(range(classes - half, classes))]
    binary = {"accuracy_binary": {"rows": rows, "merge": halves}} if half else {}
    return {"accuracy_root": {"rows": rows}, **binary}


@needs("is_root")
def is_root(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("is_root", columns, columns["node"])


@needs("parent")
def to_parent(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"node": structure.take("parent", columns, columns["node"])}


@needs("side")
def side(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("side", columns, columns["node"])
