"""A tree as fields of an example: from the parent of each node, and checked to be a tree.

tree_fields([2, 2, -1])        nodes 0 and 1 are the children of node 2, the root
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Array, Int32


def tree_fields(parent: Any, *, where: str = "") -> dict[str, Int32]:
    """Return what the graphs of trees read, for the nodes of one tree.

    Args:
        parent: int [nodes], the number of each node's parent, -1 for the root; nodes are
            numbered from 0, in any order.
        where: file and line, for errors.
    Returns:
        With one element for each node:
            parent      as given: the key under which a group collects children.
            n_children  0 or more: how many rows that group waits for.
            first_child where in `child` its children begin.
            side        which child of its parent it is, from 0, by number: its position
                        in a group that stacks; 0 for the root.
            is_root     1 for the root: where a cond lets rows leave the loop.
        And with one element for each node but the root:
            child       the children of node 0, of node 1, ..., by number.
    Raises:
        DataError: no node, no root or several, a parent that does not exist, or nodes
            from which no way leads to the root; names the first.
    """
    given = np.asarray(parent)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        said = f"{given.dtype}{list(given.shape)}" if given.size else "empty"
        fix = "give the number of each node's parent, -1 for the root"
        raise DataError(
            f"the parents of a tree are {said}, not whole numbers", where=where, fix=fix
        )
    n = len(given)
    _check_is_tree(given, where)
    parents = given.astype(np.int32)
    n_children, first_child, child = children(parents, np.array([n]))
    side = np.zeros(n, np.int32)
    side[child] = np.arange(n - 1) - first_child[parents[child]]
    return {
        "parent": parents,
        "n_children": n_children,
        "first_child": first_child,
        "side": side,
        "is_root": (parents < 0).astype(np.int32),
        "child": child,
    }


def children(parent: Int32, n_nodes: Array) -> tuple[Int32, Int32, Int32]:
    """Return the inverse of `parent`: of each node how many children, and where they begin
    in the third array, which holds the children of all nodes of a tree, node by node.

    Args:
        parent: of the nodes of all trees, each within its own, -1 for a root.
        n_nodes: of each tree.
    """
    first_node = np.cumsum(n_nodes) - n_nodes
    offset = np.repeat(first_node, n_nodes)
    inner = np.flatnonzero(parent >= 0)
    of_node = (offset + parent)[inner]
    n_children = np.bincount(of_node, minlength=len(parent))
    first_child = np.cumsum(n_children) - n_children
    # Each tree has one root, so that in all trees before it are as many nodes fewer.
    first_child -= np.repeat(first_node - np.arange(len(n_nodes)), n_nodes)
    child = (inner - offset[inner])[np.argsort(of_node, kind="stable")]
    return n_children.astype(np.int32), first_child.astype(np.int32), child.astype(np.int32)


def _check_is_tree(parent: Array, where: str) -> None:
    n = len(parent)
    wrong = np.flatnonzero((parent < -1) | (parent >= n))
    if wrong.size:
        at = int(wrong[0])
        raise DataError(
            f"node {at} has parent {int(parent[at])}, which is outside its tree of {n} nodes",
            where=where,
            fix=f"parents are 0 to {n - 1}, or -1 for the root",
        )
    roots = np.flatnonzero(parent == -1)
    if len(roots) != 1:
        said = f"{len(roots)} roots, nodes {roots[0]} and {roots[1]}" if roots.size else "no root"
        raise DataError(f"a tree has {said}", where=where, fix="one node of each has parent -1")
    # Each round doubles the steps towards the root that a node has gone.
    above = np.where(parent < 0, roots[0], parent)
    for _ in range(n.bit_length()):
        above = above[above]
    lost = np.flatnonzero(above != roots[0])
    if lost.size:
        raise DataError(
            f"node {int(lost[0])} is on a cycle or below one: no way leads from it to the root",
            where=where,
            fix="mend its parents",
        )
