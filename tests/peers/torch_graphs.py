"""The models of `tests/graph_models.py` in plain PyTorch, one example at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tests.graph_models import N_EDGE_TYPES, N_STEPS
from tests.peers.torch_models import Batch, NamedNodes

Example = Mapping[str, np.ndarray]


class OneByOne(NamedNodes, ABC):
    """A model whose batch is a list of examples: the loss is the mean of theirs."""

    def loss(self, batch: Batch) -> torch.Tensor:
        examples, _ = batch
        return torch.stack([self.loss_of_one(example) for example in examples]).mean()

    @abstractmethod
    def loss_of_one(self, example: Example) -> torch.Tensor:
        """Return the loss of one example."""


class GatedGraph(OneByOne):
    """Messages along edges by type, summed; gates; a softmax over the nodes."""

    def loss_of_one(self, example: Example) -> torch.Tensor:
        source, kind, target = (
            torch.tensor(example[name]).long() for name in ("source", "type", "target")
        )
        h = torch.tanh(self.nodes["start"](torch.tensor(example["annotation"])))
        for _ in range(N_STEPS):
            sums = torch.zeros_like(h)
            for number in range(N_EDGE_TYPES):
                of_type = kind == number
                messages = self.nodes[f"message-{number}"](h[source[of_type]])
                sums = sums.index_add(0, target[of_type], messages)
            both = torch.cat([sums, h], dim=1)
            gate = torch.sigmoid(self.nodes["gate"](both))
            h = h + gate * torch.tanh(self.nodes["candidate"](both))
        logits = self.nodes["readout"](h)[:, 0]
        return functional.cross_entropy(logits, torch.tensor(example["label"][0]).long())


class Tree(OneByOne):
    """A state for each node, from its children up; `readout` gives the logits of one."""

    def states(self, example: Example) -> dict[int, torch.Tensor]:
        token = dict(zip(example["leaf"].tolist(), example["token"].tolist(), strict=True))
        children: dict[int, dict[int, int]] = {}
        for node, (parent, side) in enumerate(
            zip(example["parent"].tolist(), example["side"].tolist(), strict=True)
        ):
            children.setdefault(parent, {})[side] = node
        states: dict[int, torch.Tensor] = {}

        def state_of(node: int) -> torch.Tensor:
            if node in token:
                embedded = self.nodes["embedding"](torch.tensor(token[node]))
                states[node] = torch.tanh(self.nodes["leaf"](embedded))
            else:
                pair = [state_of(children[node][side]) for side in (0, 1)]
                states[node] = self.branch(self.nodes["branch"](torch.cat(pair)))
            return states[node]

        state_of(children[-1][0])
        return states

    @abstractmethod
    def branch(self, x: torch.Tensor) -> torch.Tensor:
        """Return a branch's state from its product with both children."""

    def loss_at(self, node: int, state: torch.Tensor, example: Example) -> torch.Tensor:
        label = torch.tensor(example["label"][node]).long()
        return functional.cross_entropy(self.nodes["readout"](state), label)


class TreeOfRoots(Tree):
    def branch(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    def loss_of_one(self, example: Example) -> torch.Tensor:
        root = example["parent"].tolist().index(-1)
        return self.loss_at(root, self.states(example)[root], example)


class TreeOfNodes(Tree):
    def branch(self, x: torch.Tensor) -> torch.Tensor:
        gate, state = x.chunk(2)
        return torch.relu(gate) * state

    def loss_of_one(self, example: Example) -> torch.Tensor:
        losses: list[Any] = [self.loss_at(n, h, example) for n, h in self.states(example).items()]
        return torch.stack(losses).sum()
