"""The binary Tree-LSTM by DyNet, which finds by itself what to compute as one matrix (autobatch).

A step draws its trees anew as expressions, as DyNet is used; only in which order a tree is drawn is
prepared. DyNet computes in one thread, in float32; the rows of its embedding that have no gradient
are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dynet_config

# Read when dynet is imported. Memory grows where this is not enough.
dynet_config.set(mem=1024, autobatch=1, random_seed=1)

import dynet as dy
import numpy as np

from amp_runtime.data.dataset import Dataset
from benchmarks.peers.forest import forest


@dataclass(frozen=True)
class Tree:
    """One tree.

    Attributes:
        leaves: (node, word).
        branches: (node, left child, right child), children before their parent.
        label: of each node.
    """

    leaves: list[tuple[int, int]]
    branches: list[tuple[int, int, int]]
    label: list[int]


def trees_of(data: Dataset, examples: np.ndarray) -> list[Tree]:
    """Return examples of source `treebank`."""
    made = []
    for example in examples:
        one = np.array([example])
        words = np.unique(data.gather("token", one).values)
        tree = forest(data, one, words)
        branches = np.argsort(tree.level, kind="stable")[len(tree.leaves) :]
        rows = np.column_stack([branches, tree.children[branches]]).tolist()
        leaves = zip(tree.leaves.tolist(), words[tree.words].tolist(), strict=True)
        made.append(Tree(list(leaves), [(n, a, b) for n, a, b in rows], tree.label.tolist()))
    return made


class DynetTrees:
    """The model, and its training.

    Args:
        parameters: in our layout.
        optimizer: options of ours: plain sgd or adagrad.
    Raises:
        ValueError: another optimizer, or one with more options than its lr.
    """

    def __init__(
        self, parameters: Mapping[str, Mapping[str, np.ndarray]], optimizer: Mapping[str, Any]
    ) -> None:
        self._all = dy.ParameterCollection()
        add = self._all.parameters_from_numpy
        self.table = self._all.lookup_parameters_from_numpy(parameters["embedding"]["table"])
        self.linears = {
            node: (add(arrays["bias"]), add(np.ascontiguousarray(arrays["weight"].T)))
            for node, arrays in parameters.items()
            if node != "embedding"
        }
        self._features = parameters["leaf"]["weight"].shape[1] // 3
        given = dict(optimizer)
        name, lr, eps = given.pop("name"), given.pop("lr"), given.pop("eps", 0.0)
        if name not in ("adagrad", "sgd") or any(given.values()):
            raise ValueError(f"DyNet trains by plain sgd or adagrad here, not by {optimizer}")
        adagrad = name == "adagrad"
        self._trainer = (
            dy.AdagradTrainer(self._all, lr, eps) if adagrad else dy.SimpleSGDTrainer(self._all, lr)
        )
        self._trainer.set_clip_threshold(0)  # else it clips at 5

    def update(self, trees: Sequence[Tree]) -> float:
        """Take a step; return the mean loss that it began with."""
        loss = self.backward(trees)
        self._trainer.update()
        return loss

    def backward(self, trees: Sequence[Tree]) -> float:
        """Give all parameters their gradient; return the mean loss."""
        dy.renew_cg()
        losses = [loss for tree in trees for loss in self._losses(self._logits(tree), tree)]
        mean = dy.esum(losses) * (1 / len(trees))
        mean.forward()
        mean.backward()
        return float(mean.value())

    def evaluate(self, trees: Sequence[Tree]) -> tuple[float, float]:
        """Return the loss, and how many nodes are told right."""
        dy.renew_cg()
        logits = [of_node for tree in trees for of_node in self._logits(tree)]
        label = [label for tree in trees for label in tree.label]
        losses = [dy.pickneglogsoftmax(x, y) for x, y in zip(logits, label, strict=True)]
        loss = dy.esum(losses).value()
        found = dy.concatenate_cols(logits).npvalue().argmax(axis=0)
        return float(loss), float((found == label).sum())

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the parameters in our layout, new memory."""
        made = {
            node: {"weight": weight.as_array().T.copy(), "bias": bias.as_array()}
            for node, (bias, weight) in self.linears.items()
        }
        return made | {"embedding": {"table": self.table.as_array()}}

    def _losses(self, logits: Sequence[Any], tree: Tree) -> list[Any]:
        return [dy.pickneglogsoftmax(x, y) for x, y in zip(logits, tree.label, strict=True)]

    def _logits(self, tree: Tree) -> list[Any]:
        """Draw a tree; return the logits of each node."""
        n, states = self._features, {}
        bias, weight = self.linears["leaf"]
        for node, word in tree.leaves:
            gates = dy.affine_transform([bias, weight, self.table[word]])
            i, g, o = (dy.pick_range(gates, k * n, (k + 1) * n) for k in range(3))
            c = dy.cmult(dy.logistic(i), dy.tanh(g))
            states[node] = dy.cmult(dy.logistic(o), dy.tanh(c)), c
        bias, weight = self.linears["branch"]
        for node, left, right in tree.branches:
            (h_left, c_left), (h_right, c_right) = states[left], states[right]
            gates = dy.affine_transform([bias, weight, dy.concatenate([h_left, h_right])])
            f = dy.logistic(dy.pick_range(gates, n, 3 * n))
            i, g, o = (dy.pick_range(gates, k * n, (k + 1) * n) for k in (0, 3, 4))
            kept = dy.cmult(f, dy.concatenate([c_left, c_right]))
            new = dy.cmult(dy.logistic(i), dy.tanh(g))
            c = dy.esum([dy.pick_range(kept, 0, n), dy.pick_range(kept, n, 2 * n), new])
            states[node] = dy.cmult(dy.logistic(o), dy.tanh(c)), c
        bias, weight = self.linears["logits"]
        return [
            dy.affine_transform([bias, weight, states[node][0]]) for node in range(len(tree.label))
        ]
