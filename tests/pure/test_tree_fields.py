"""Trees of one's own: what is no tree is refused, by node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.data.trees.tree_fields import tree_fields
from amp_runtime.errors import DataError


def test_fields_of_a_tree_worked_by_hand():
    #      2
    #    / | \
    #   0  1  4
    #      |
    #      3
    got = tree_fields([2, 2, -1, 1, 2])
    assert {name: array.tolist() for name, array in got.items()} == {
        "parent": [2, 2, -1, 1, 2],
        "n_children": [0, 1, 3, 0, 0],
        "first_child": [0, 0, 1, 4, 4],
        "side": [0, 1, 0, 0, 2],
        "is_root": [0, 0, 1, 0, 0],
        "child": [3, 0, 1, 4],
    }
    assert all(array.dtype == np.int32 for array in got.values())


def test_a_single_node_is_a_tree():
    got = tree_fields([-1])
    assert got["is_root"].tolist() == [1]
    assert got["child"].tolist() == []


@given(st.data())
def test_children_are_the_inverse_of_parents(data):
    n = data.draw(st.integers(1, 30))
    names = data.draw(st.permutations(range(n)))
    parent = np.full(n, -1)
    for at in range(1, n):
        parent[names[at]] = names[data.draw(st.integers(0, at - 1))]
    got = tree_fields(parent)
    for node in range(n):
        first = got["first_child"][node]
        mine = got["child"][first : first + got["n_children"][node]].tolist()
        assert mine == np.flatnonzero(parent == node).tolist()
        assert got["side"][mine].tolist() == list(range(len(mine)))


def test_a_chain_of_100000_nodes_needs_no_recursion():
    n = 100_000
    assert tree_fields(np.arange(1, n + 1) % n - (np.arange(n) == n - 1))["is_root"].sum() == 1


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ([], "the parents of a tree are empty, not whole numbers"),
        ([0.5, -1], r"the parents of a tree are float64\[2\], not whole numbers"),
        ([[1, -1]], r"int64\[1, 2\]"),
        ([1, 2, 0], "has no root; one node of each has parent -1"),
        ([1, -1, -1], "has 2 roots, nodes 1 and 2"),
        ([3, 0, -1], "node 0 has parent 3, which is outside its tree of 3 nodes"),
        ([-2, 0, -1], "node 0 has parent -2, which is outside"),
        ([0, 2, -1], "node 0 is on a cycle or below one"),
        ([3, 2, 1, -1, 1], "node 1 is on a cycle or below one"),
        ([-1, 2, 3, 1, 3], "node 1 is on a cycle or below one"),
    ],
)
def test_row_98_what_is_no_tree_is_refused_by_node(parent, message):
    with pytest.raises(DataError, match=f"trees.txt:7: .*{message}"):
        tree_fields(parent, where="trees.txt:7")
