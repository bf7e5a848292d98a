"""A treebank of a few small trees, for runs of the ready Tree-LSTM that take a second."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

CLASSES = 3
WORDS = 12
MOST_LEAVES = 6


def tree(drawn: random.Random, n_leaves: int) -> tuple[int, str]:
    """Return the label of a random tree, and the tree: a word's is its number modulo CLASSES, a
    branch's the greater of its children's."""
    if n_leaves == 1:
        word = drawn.randrange(WORDS)
        return word % CLASSES, f"({word % CLASSES} w{word})"
    n_left = drawn.randint(1, n_leaves - 1)
    (one, left), (other, right) = tree(drawn, n_left), tree(drawn, n_leaves - n_left)
    return max(one, other), f"({max(one, other)} {left} {right})"


def write_treebank(folder: Path, *, train: int, valid: int) -> None:
    """Write the files of source `treebank`, the same each time."""
    folder.mkdir()
    drawn = random.Random(7)
    for name, n in (("train", train), ("dev", valid)):
        lines = (tree(drawn, drawn.randint(1, MOST_LEAVES))[1] for _ in range(n))
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


def sections(folder: Path) -> dict[str, Any]:
    """Return the sections of a config that trains a Tree-LSTM on the treebank in `folder`."""
    return {
        "model": {"builder": "tree_lstm", "hidden": 8, "embedding": 8},
        "data": {
            "source": "treebank",
            "path": str(folder),
            "classes": CLASSES,
            "batch": 2,
        },
    }
