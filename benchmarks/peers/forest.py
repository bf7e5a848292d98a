"""Binary trees as the peers take them: children of each node, and the level that it is on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amp_runtime.data.dataset import Dataset

FIELDS = ("token", "leaf", "parent", "side", "is_root", "label")


@dataclass(frozen=True)
class Forest:
    """Some trees, their nodes end to end.

    Attributes:
        leaves: int64 [leaves], numbers of nodes.
        words: int64 [leaves], places in the words of the step.
        children: int64 [nodes, 2]; of a leaf, no node.
        level: int64 [nodes]; of a leaf 0, of a branch one more than its higher child's.
        label: int64 [nodes].
    """

    leaves: np.ndarray
    words: np.ndarray
    children: np.ndarray
    level: np.ndarray
    label: np.ndarray


def forest(data: Dataset, examples: np.ndarray, words: np.ndarray) -> Forest:
    """Return examples of source `treebank`, whatever the order of their nodes."""
    token, leaf, parent, side, is_root, label = (data.gather(name, examples) for name in FIELDS)
    first = np.cumsum(parent.counts) - parent.counts
    leaves = leaf.values + np.repeat(first, leaf.counts)
    n = len(parent.values)
    level = np.full(n, -1)
    level[leaves] = 0
    children = np.full((n, 2), -1)
    below = np.flatnonzero(is_root.values == 0)
    above = parent.values[below] + np.repeat(first, parent.counts)[below]
    children[above, side.values[below]] = below
    branches = np.flatnonzero(children[:, 0] >= 0)
    while (level[branches] < 0).any():
        ready = branches[(level[branches] < 0) & (level[children[branches]] >= 0).all(axis=1)]
        level[ready] = level[children[ready]].max(axis=1) + 1
    return Forest(leaves, np.searchsorted(words, token.values), children, level, label.values)
