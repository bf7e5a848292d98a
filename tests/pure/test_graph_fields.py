"""The fields of a graph of one's own."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.data.graphs.graph_fields import graph_fields
from amp_runtime.errors import DataError


def plain(fields):
    return {name: values.tolist() for name, values in fields.items()}


def test_edges_are_brought_into_the_order_of_their_sources():
    assert plain(graph_fields(3, [(1, 0, 2), (0, 1, 2), (1, 0, 0)])) == {
        "edge_source": [0, 1, 1],
        "edge_type": [1, 0, 0],
        "edge_target": [2, 0, 2],
        "n_out": [1, 2, 0],
        "n_in": [1, 0, 2],
        "first_edge": [0, 1, 3],
    }


def test_undirected_edges_lead_both_ways_as_one_type():
    got = plain(graph_fields(2, np.array([(0, 1, 1)]), undirected=True))
    assert got["edge_source"] == [0, 1]
    assert got["edge_target"] == [1, 0]
    assert (got["edge_type"], got["n_in"], got["n_out"]) == ([1, 1], [1, 1], [1, 1])


def test_a_graph_may_have_no_edge():
    got = plain(graph_fields(2, []))
    assert (got["edge_type"], got["n_in"], got["first_edge"]) == ([], [0, 0], [0, 0])


@pytest.mark.parametrize(
    ("n_nodes", "edges", "message"),
    [
        (0, [], "a graph of 0 nodes"),
        (2, [(0, 0, 1), (0, 0, 2)], r"x:3: edge 1, .* = \(0, 0, 2\), is not of nodes 0 to 1"),
        (2, [(0, -1, 1)], "edge 0, .* and a type from 0"),
        (2, [(0, 1)], r"edges are int64\[1, 2\]; give each as three whole numbers"),
        (2, [(0.0, 0.0, 1.0)], r"edges are float64\[1, 3\]"),
    ],
)
def test_a_graph_that_is_none_is_told(n_nodes, edges, message):
    with pytest.raises(DataError, match=message):
        graph_fields(n_nodes, edges, where="x:3")
