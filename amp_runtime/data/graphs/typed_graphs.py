"""Directed graphs with typed edges as columns of a data set.

nodes     0 1 2             edges by source   0 -> 2  1 -> 0  1 -> 2
n_out     1 2 0             first_edge        0 1 3
n_in      1 0 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from amp_runtime.rows.segments import ranges
from amp_runtime.rows.spec import Array, Int32, Int64


@dataclass(frozen=True, slots=True)
class Graphs:
    """Graphs end to end; node numbers are within a graph, from 0.

    Attributes:
        n_nodes, n_edges: int32 [graphs].
        edges: int32 [edges, 3]: source, type, target; by graph, and by source within it.
    """

    n_nodes: Int32
    n_edges: Int32
    edges: Int32

    @staticmethod
    def of(n_nodes: Array, n_edges: Array, edges: Array) -> Graphs:
        """Return graphs of edges that are in order of graphs, but not of sources."""
        graph = np.repeat(np.arange(len(n_edges)), n_edges)
        order = np.lexsort((edges[:, 2], edges[:, 1], edges[:, 0], graph))
        counts = np.asarray(n_nodes, np.int32), np.asarray(n_edges, np.int32)
        return Graphs(*counts, edges[order].astype(np.int32))

    @staticmethod
    def undirected(n_nodes: Array, n_edges: Array, edges: Array) -> Graphs:
        """Return graphs of edges that are stored once, and lead both ways, as one type."""
        both = np.stack([edges, edges[:, ::-1]], axis=1).reshape(-1, 3)
        return Graphs.of(n_nodes, 2 * np.asarray(n_edges, np.int64), both)

    def __len__(self) -> int:
        return len(self.n_nodes)

    def columns(self, graphs: Int64) -> Mapping[str, tuple[Array, Array]]:
        """Return the columns of examples that are these graphs; a graph may come twice.

        With one row for each edge, by source: `edge_source`, `edge_type`, `edge_target`;
        with one row for each node: `n_out` and `n_in`, how many edges leave and reach it,
        and `first_edge`, the first of those that leave.
        """
        n_nodes, n_edges = self.n_nodes[graphs], self.n_edges[graphs]
        edges = self.edges[ranges((np.cumsum(self.n_edges) - self.n_edges)[graphs], n_edges)]
        first_node = np.repeat(np.cumsum(n_nodes) - n_nodes, n_edges)
        total = int(n_nodes.sum())
        n_out = np.bincount(first_node + edges[:, 0], minlength=total)
        n_in = np.bincount(first_node + edges[:, 2], minlength=total)
        begins = np.repeat(np.cumsum(n_edges) - n_edges, n_nodes)  # of each node's graph
        return {
            "edge_source": (edges[:, 0], n_edges),
            "edge_type": (edges[:, 1], n_edges),
            "edge_target": (edges[:, 2], n_edges),
            "n_out": (n_out, n_nodes),
            "n_in": (n_in, n_nodes),
            "first_edge": (np.cumsum(n_out) - n_out - begins, n_nodes),
        }
