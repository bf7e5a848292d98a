"""The fields of a graph of one's own: what graph networks ask for, by node and by edge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amp_runtime.data.graphs.typed_graphs import Graphs
from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Array


def graph_fields(
    n_nodes: int,
    edges: Sequence[tuple[int, int, int]] | Array,
    *,
    undirected: bool = False,
    where: str = "",
) -> dict[str, Array]:
    """Return the fields of one example that is a graph.

        def examples(split, seed):
            ...
            yield {"annotation": [[1.0], [0.0]], **graph_fields(2, [(0, 0, 1)]), "label": 1}

    With one row for each node `n_out`, `n_in` and `first_edge`, for each edge `edge_source`,
    `edge_type` and `edge_target` (see `Graphs.columns`).

    Args:
        edges: (source, type, target), nodes and types from 0, in any order.
        undirected: whether an edge leads both ways, as one type.
        where: what an error names, a file and line say.
    Raises:
        DataError: no node, or an edge that is no such triple or leads to no node; names it.
    Cost: O(edges * log edges).
    """
    if n_nodes < 1:
        raise DataError(f"a graph of {n_nodes} nodes", where=where, fix="a graph has a node")
    table = np.asarray(edges if len(edges) else np.empty((0, 3), np.int64))
    if table.ndim != 2 or table.shape[1] != 3 or table.dtype.kind not in "iu":
        raise DataError(
            f"edges are {table.dtype}{list(table.shape)}",
            where=where,
            fix="give each as three whole numbers: source, type, target",
        )
    wrong = (table < 0).any(axis=1) | (table[:, ::2] >= n_nodes).any(axis=1)
    if wrong.any():
        number = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"edge {number}, (source, type, target) = {tuple(table[number].tolist())}, is not of "
            f"nodes 0 to {n_nodes - 1} and a type from 0",
            where=where,
        )
    build = Graphs.undirected if undirected else Graphs.of
    graphs = build(np.array([n_nodes]), np.array([len(table)]), table)
    return {name: values for name, (values, _) in graphs.columns(np.arange(1)).items()}
