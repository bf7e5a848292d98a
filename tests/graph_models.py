"""Small models and data of the shapes that cannot be batched by hand: graphs and trees.

Named in configs as `tests.graph_models:<function>`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.graphs.typed_graphs import Graphs
from amp_runtime.graph import POSITION, Graph
from amp_runtime.names import needs
from amp_runtime.rows.spec import Array, Columns
from amp_runtime.rows.structure import StructureArena

N_TOKENS, N_CLASSES, N_EDGE_TYPES, N_STEPS = 6, 3, 2, 2
Example = dict[str, Any]


# ---------------------------------------------------------------------------------- graphs


def gated_graph(graph: Graph, *, hidden: int = 5) -> None:
    """Build a gated graph network that tells which node is meant.

    Every step, a node sends its state along each of its edges, through the linear of the
    edge's type, and adds up what comes in; two gates make of both its next state. A node
    may have no edge, out or in.
    """
    graph.state(step=2, node=4)
    nodes = graph.input(
        "nodes",
        each="annotation",
        state={"step": 0, "node": POSITION},
        payload={"x": "annotation"},
    )
    start = graph.add("linear", "start", nodes, features=hidden, activation="tanh")
    loop = graph.add("phi", "loop", start, inputs=("start", "again"))
    edges = graph.add(
        "flatmap",
        "edges",
        loop,
        count=f"{__name__}:n_edges_out",
        state=f"{__name__}:edge_out",
        columns={"step": 2, "edge": 5},
    )
    typed = graph.add(
        "cond", "type", edges, choose=f"{__name__}:edge_type", outputs=("type-0", "type-1")
    )
    sent = [
        graph.add("linear", f"message-{n}", typed[f"type-{n}"], features=hidden)
        for n in range(N_EDGE_TYPES)
    ]
    messages = graph.add("phi", "messages", *sent, inputs=("type-0", "type-1"))
    sums = graph.add(
        "group",
        "sums",
        messages,
        loop,
        reduce="sum",
        key=f"{__name__}:target_of_edge",
        count=f"{__name__}:n_edges_in",
        announced=True,
    )
    both = graph.add("concat", "both", sums, loop, inputs=("sum", "state"))
    gate = graph.add("linear", "gate", both, features=hidden, activation="sigmoid")
    candidate = graph.add("linear", "candidate", both, features=hidden, activation="tanh")
    change = graph.add("multiply", "change", gate, candidate, inputs=("gate", "candidate"))
    state = graph.add("add", "state", loop, change, inputs=("old", "change"))
    step = graph.add("isu", "step", state, update=f"{__name__}:next_step")
    more = graph.add("cond", "more", step, choose=f"{__name__}:has_more_steps")
    graph.connect(more["yes"], loop.port("again"))
    # A bias that all rows share does not change their softmax: it has no gradient.
    logits = graph.add("linear", "readout", more["no"], features=1, bias=False)
    graph.add("softmax_over_rows", "loss", logits, count="len(annotation)", index="node")


def graphs(
    split: str, seed: int, *, train: int = 50, valid: int = 10, path: str = ""
) -> Iterator[Example]:
    """Yield random graphs of 1 to 6 nodes, or of a bAbI file the first or the last questions."""
    generator = np.random.default_rng([seed, split == "valid"])
    n = train if split == "train" else valid
    if path:
        lines = Path(path).read_text().splitlines()
        examples = babi(lines)
        yield from examples[:n] if split == "train" else examples[len(examples) - n :]
        return
    for _ in range(n):
        n_nodes = int(generator.integers(1, 7))
        edges = [
            (source, int(generator.integers(N_EDGE_TYPES)), target)
            for source in range(n_nodes)
            for target in range(n_nodes)
            if generator.random() < 0.25
        ]
        annotation = generator.normal(size=(n_nodes, 2))
        yield graph_example(annotation, edges, int(generator.integers(n_nodes)))


def babi(lines: list[str]) -> list[Example]:
    """Return one example a question of `source type target` and `? type node answer` lines."""
    examples, edges = [], []
    for line in [*lines, ""]:
        words = line.split()
        if not words:
            edges = []
        elif words[0] == "?":
            annotation = np.zeros((8, 1))
            annotation[int(words[2]) - 1] = 1
            examples.append(graph_example(annotation, edges, int(words[3]) - 1))
        else:
            source, kind, target = map(int, words)
            edges.append((source - 1, kind - 1, target - 1))
    return examples


def typed_graphs(split: str, seed: int, *, train: int = 50, valid: int = 10) -> Dataset:
    """Return random graphs of 1 to 6 nodes as our graph models take them; some have no edge."""
    generator = np.random.default_rng([seed, split == "valid"])
    n_nodes = generator.integers(1, 7, train if split == "train" else valid)
    edges = [
        (graph, source, int(generator.integers(N_EDGE_TYPES)), target)
        for graph, n in enumerate(n_nodes)
        for source in range(n)
        for target in range(n)
        if graph % 4 and generator.random() < 0.25
    ]
    table = np.array(edges).reshape(-1, 4)
    n_edges = np.bincount(table[:, 0], minlength=len(n_nodes))
    graphs = Graphs.of(n_nodes, n_edges, table[:, 1:])
    total = int(n_nodes.sum())
    return Dataset.from_columns(
        {
            "annotation": (generator.normal(size=(total, 2)), n_nodes),
            **graphs.columns(np.arange(len(graphs))),
            "label": generator.integers(0, n_nodes),
            "target": generator.normal(size=len(graphs)),
        },
        about=About({"edge_type": tuple(map(str, range(N_EDGE_TYPES)))}),
    )


def graph_example(annotation: Array, edges: list[tuple[int, int, int]], label: int) -> Example:
    """Return a graph whose edges are sorted by source, so that a node's are a range."""
    edges, n_nodes = sorted(edges), len(annotation)
    source, kind, target = np.array(edges, np.int64).reshape(-1, 3).T
    n_out = np.bincount(source, minlength=n_nodes)
    return {
        "annotation": annotation,
        "source": source,
        "type": kind,
        "target": target,
        "n_out": n_out,
        "first_out": np.cumsum(n_out) - n_out,
        "n_in": np.bincount(target, minlength=n_nodes),
        "label": label,
    }


@needs("n_out")
def n_edges_out(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("n_out", columns, columns["node"])


@needs("first_out")
def edge_out(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    first = structure.take("first_out", columns, columns["node"])
    return {"edge": first + columns[POSITION]}


@needs("type")
def edge_type(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("type", columns, columns["edge"])


@needs("target")
def target_of_edge(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"node": structure.take("target", columns, columns["edge"])}


@needs("n_in")
def n_edges_in(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("n_in", columns, columns["node"])


def next_step(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] + 1}


def has_more_steps(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] < N_STEPS


# ----------------------------------------------------------------------------------- trees


def tree_of_roots(graph: Graph, *, hidden: int = 4) -> None:
    """Build a recursive network over binary trees, with a loss at the root."""
    node, branch = _leaves_and_branches(graph, hidden)
    root = graph.add("cond", "root", node, choose=f"{__name__}:is_root")
    children = _pairs(graph, root)
    state = graph.add("linear", "branch", children, features=hidden, activation="tanh")
    graph.connect(state, branch)
    _loss(graph, root["yes"])


def tree_of_nodes(graph: Graph, *, hidden: int = 4) -> None:
    """Build one whose branches are a product of two parts, with a loss at every node."""
    node, branch = _leaves_and_branches(graph, hidden)
    root = graph.add("cond", "root", node, choose=f"{__name__}:is_root")
    graph.add("sink", "end", root["yes"])
    both = graph.add("linear", "branch", _pairs(graph, root), features=2 * hidden)
    parts = graph.add("split", "parts", both, outputs={"gate": hidden, "state": hidden})
    gate = graph.add("relu", "gate", parts["gate"])
    state = graph.add("multiply", "product", gate, parts["state"], inputs=("gate", "state"))
    graph.connect(state, branch)
    _loss(graph, node)


def _leaves_and_branches(graph: Graph, hidden: int) -> Any:
    graph.state(node=5)
    leaves = graph.input("leaves", each="token", state={"node": "leaf"}, payload={"x": "token"})
    embedded = graph.add("embedding", "embedding", leaves, entries=N_TOKENS, features=hidden)
    leaf = graph.add("linear", "leaf", embedded, features=hidden, activation="tanh")
    node = graph.add("phi", "node", leaf, inputs=("leaf", "branch"))
    return node, node.port("branch")


def _pairs(graph: Graph, root: Any) -> Any:
    return graph.add(
        "group",
        "pairs",
        root["no"],
        reduce="stack",
        count=2,
        key=f"{__name__}:to_parent",
        position=f"{__name__}:side",
    )


def _loss(graph: Graph, source: Any) -> None:
    logits = graph.add("linear", "readout", source, features=N_CLASSES)
    graph.add("softmax_cross_entropy", "loss", logits, index="node")


def trees(split: str, seed: int, *, train: int = 50, valid: int = 10) -> Iterator[Example]:
    """Yield random binary trees of 1 to 7 leaves; nodes are numbered in no order."""
    generator = np.random.default_rng([seed, split == "valid"])
    for _ in range(train if split == "train" else valid):
        n_leaves = int(generator.integers(1, 8))
        n_nodes = 2 * n_leaves - 1
        names = generator.permutation(n_nodes)
        parent, side = np.full(n_nodes, -1), np.zeros(n_nodes, np.int64)
        roots = list(names[:n_leaves])
        for branch in names[n_leaves:]:
            for number in (0, 1):
                child = roots.pop(generator.integers(len(roots)))
                parent[child], side[child] = branch, number
            roots.append(branch)
        yield {
            "token": generator.integers(0, N_TOKENS, n_leaves),
            "leaf": names[:n_leaves],
            "parent": parent,
            "side": side,
            "is_root": (parent < 0).astype(np.int64),
            "label": generator.integers(0, N_CLASSES, n_nodes),
        }


def wide_trees(split: str, seed: int, *, train: int = 50, valid: int = 10) -> Iterator[Example]:
    """Yield random trees of 1 to 9 nodes with any number of children, children first."""
    generator = np.random.default_rng([seed, split == "valid"])
    for _ in range(train if split == "train" else valid):
        n = int(generator.integers(1, 10))
        parent = np.array([*(generator.integers(at + 1, n) for at in range(n - 1)), -1])
        n_children = np.bincount(parent[:-1], minlength=n)
        yield {
            "type": generator.integers(0, N_TOKENS, n),
            "parent": parent,
            "n_children": n_children,
            "first_child": np.cumsum(n_children) - n_children,
            "child": np.argsort(parent[:-1], kind="stable"),
            "is_root": (parent < 0).astype(np.int64),
            "label": int(generator.integers(0, N_CLASSES)),
        }


@needs("parent")
def is_root(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("parent", columns, columns["node"]) < 0


@needs("parent")
def to_parent(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"node": structure.take("parent", columns, columns["node"])}


@needs("side")
def side(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("side", columns, columns["node"])
