"""The binary Tree-LSTM with a loss at every node, by PyTorch.

`ByLevel` has all branches of a level in one matrix, over many trees. It keeps the states that
still have a parent to come, its frontier; at each level one gather brings the children of the
level's branches to its front, pair by pair, and the rest behind. So a level costs what is waiting,
not all nodes so far. `ByBranch` computes branch after branch, as the recursion over a tree does;
what needs no order, leaves and logits, is one matrix of a tree there too.

Both read the rows of the embedding that the words of a step need, and no gradient is as large as
the table: with Adagrad that is the same, and several times faster than a dense update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from amp_runtime.data.dataset import Dataset
from benchmarks.peers.forest import forest
from benchmarks.peers.model import Examples, Measured, PeerModel, without_table
from tests.peers.torch_models import Parameters


class TreeLstm(PeerModel):
    """Cells and readout, for both ways through a tree."""

    def __init__(self, parameters: Parameters, dtype: torch.dtype) -> None:
        super().__init__(without_table(parameters), dtype)
        self.table = torch.tensor(parameters["embedding"]["table"], dtype=dtype)

    @classmethod
    def words_of(cls, data: Dataset, examples: Examples) -> np.ndarray:
        return np.unique(data.gather("token", examples).values).astype(np.int64)

    def leaf(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return h and c of leaves; gates in the order i, g, o."""
        i, g, o = self.nodes["leaf"](x).chunk(3, dim=-1)
        c = torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def branch(self, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return h and c of branches; gates in the order i, f of each child, g, o.

        Args:
            h, c: [branches, 2 * features], of both children.
        """
        features = h.shape[-1] // 2
        sizes = [features, 2 * features, features, features]
        i, f, g, o = self.nodes["branch"](h).split(sizes, dim=-1)
        kept = torch.sigmoid(f) * c
        left, right = kept.chunk(2, dim=-1)
        new = left + right + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(new), new

    def read(self, h: torch.Tensor, label: torch.Tensor) -> Measured:
        """Return the loss, and how many nodes are told right.

        Args:
            h: [nodes, features], in the order of `label`.
        """
        logits = self.nodes["logits"](h)
        with torch.no_grad():
            right = (logits.argmax(dim=1) == label).sum()
        return Measured(functional.cross_entropy(logits, label, reduction="sum"), right)


class Gather(torch.autograd.Function):
    """Rows in another order: a permutation, so that the way back is one too."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor
    ) -> torch.Tensor:
        ctx.inverse = inverse
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = gradients
        return gradient.index_select(0, ctx.inverse), None, None


@dataclass(frozen=True)
class Levels:
    """How the branches of some trees are computed.

    Attributes:
        words: int64 [leaves], places in the words of the step.
        levels: of each level: the frontier in the order that it is wanted in, int64, what brings
            it back, int64, and how many branches.
        label: int64 [nodes], in the order of computation.
    """

    words: torch.Tensor
    levels: tuple[tuple[torch.Tensor, torch.Tensor, int], ...]
    label: torch.Tensor


class ByLevel(TreeLstm):
    """All branches of a level at once, over all trees of a part."""

    @classmethod
    def part(cls, data: Dataset, examples: Examples, words: np.ndarray | None) -> Levels:
        assert words is not None
        trees = forest(data, examples, words)
        frontier, order = trees.leaves, [trees.leaves]
        place = np.empty(len(trees.level), np.int64)
        levels = []
        for level in range(1, int(trees.level.max()) + 1):
            branches = np.flatnonzero(trees.level == level)
            place[frontier] = np.arange(len(frontier))
            first = place[trees.children[branches].ravel()]
            rest = np.delete(np.arange(len(frontier)), first)
            wanted = np.concatenate([first, rest])
            levels.append((torch.tensor(wanted), torch.tensor(np.argsort(wanted)), len(branches)))
            frontier = np.concatenate([branches, frontier[rest]])
            order.append(branches)
        label = trees.label[np.concatenate(order)].astype(np.int64)
        return Levels(torch.tensor(trees.words), tuple(levels), torch.tensor(label))

    def measure(self, part: Levels, rows: torch.Tensor | None) -> Measured:
        assert rows is not None
        h, c = self.leaf(functional.embedding(part.words, rows))
        every = [h]
        for wanted, back, n in part.levels:
            sizes = [2 * n, len(wanted) - 2 * n]
            of_children, h_rest = Gather.apply(h, wanted, back).split(sizes)
            memories, c_rest = Gather.apply(c, wanted, back).split(sizes)
            new, c_new = self.branch(of_children.reshape(n, -1), memories.reshape(n, -1))
            every.append(new)
            h, c = torch.cat([new, h_rest]), torch.cat([c_new, c_rest])
        return self.read(torch.cat(every), part.label)


@dataclass(frozen=True)
class Branches:
    """One tree.

    Attributes:
        words: int64 [leaves], places in the words of the step.
        leaves: [leaves], numbers of nodes.
        branches: (node, left child, right child), children before their parent.
        label: int64 [nodes], leaves first, then branches.
    """

    words: torch.Tensor
    leaves: list[int]
    branches: list[tuple[int, int, int]]
    label: torch.Tensor


class ByBranch(TreeLstm):
    """One tree, branch after branch."""

    @classmethod
    def part(cls, data: Dataset, examples: Examples, words: np.ndarray | None) -> Branches:
        assert words is not None
        assert len(examples) == 1, "branch by branch goes one tree at a time"
        tree = forest(data, examples, words)
        branches = np.argsort(tree.level, kind="stable")[len(tree.leaves) :]
        label = tree.label[np.concatenate([tree.leaves, branches])].astype(np.int64)
        rows = np.column_stack([branches, tree.children[branches]])
        return Branches(
            torch.tensor(tree.words),
            tree.leaves.tolist(),
            [(node, left, right) for node, left, right in rows.tolist()],
            torch.tensor(label),
        )

    def measure(self, part: Branches, rows: torch.Tensor | None) -> Measured:
        assert rows is not None
        h, c = self.leaf(functional.embedding(part.words, rows))
        states = dict(zip(part.leaves, zip(h.unbind(), c.unbind(), strict=True), strict=True))
        for node, left, right in part.branches:
            (h_left, c_left), (h_right, c_right) = states[left], states[right]
            states[node] = self.branch(torch.cat([h_left, h_right]), torch.cat([c_left, c_right]))
        every = [states[node][0] for node, _, _ in part.branches]
        return self.read(torch.cat([h, torch.stack(every)]) if every else h, part.label)
