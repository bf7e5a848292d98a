"""The recurrent network that classifies the last state, by PyTorch.

A batch holds sequences of one length, so that nothing is padded: `of_one_length` makes such.
`ByStep` computes what the tokens add to all steps as one matrix, then the steps in a loop;
`ByModule` leaves both to PyTorch's own recurrent network, which does the same in C++.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from amp_runtime.data.dataset import Dataset
from benchmarks.peers.model import Examples, Measured, PeerModel


@dataclass(frozen=True)
class Sequences:
    """Sequences of one length.

    Attributes:
        tokens: int64 [steps, sequences].
        label: int64 [sequences].
    """

    tokens: torch.Tensor
    label: torch.Tensor


def of_one_length(data: Dataset, order: Examples, size: int) -> list[Examples]:
    """Return batches of `size` examples of one length, or fewer of a length, in random order."""
    counts = data.field("tokens").counts[order]
    batches = [
        of_length[begin : begin + size]
        for length in np.unique(counts)
        for of_length in [order[counts == length]]
        for begin in range(0, len(of_length), size)
    ]
    random = np.random.default_rng(len(batches))
    return [batches[i] for i in random.permutation(len(batches))]


class Recurrent(PeerModel):
    """h = relu(linear-1([embedding(token), h])) over the tokens, then linear-2(h)."""

    @classmethod
    def part(cls, data: Dataset, examples: Examples, words: np.ndarray | None) -> Sequences:
        tokens = data.gather("tokens", examples)
        steps = tokens.values.reshape(len(examples), -1).T.astype(np.int64)
        assert (tokens.counts == len(steps)).all(), "a part holds sequences of one length"
        label = data.gather("label", examples).values.astype(np.int64)
        return Sequences(torch.tensor(np.ascontiguousarray(steps)), torch.tensor(label))

    def measure(self, part: Sequences, rows: torch.Tensor | None) -> Measured:
        logits = self.nodes["linear-2"](self.last_state(part.tokens))
        with torch.no_grad():
            right = (logits.argmax(dim=1) == part.label).sum()
        return Measured(functional.cross_entropy(logits, part.label, reduction="sum"), right)

    @abstractmethod
    def last_state(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return [sequences, hidden]."""


class ByStep(Recurrent):
    """The steps in a loop of our own."""

    def last_state(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded, cell = self.nodes["embedding"](tokens), self.nodes["linear-1"]
        n_in = embedded.shape[-1]
        of_x, of_h = cell.weight.split([n_in, cell.weight.shape[0] - n_in])
        h = embedded.new_zeros(tokens.shape[1], of_h.shape[0])
        for added in functional.linear(embedded, of_x.T, cell.bias).unbind():
            h = torch.relu(torch.addmm(added, h, of_h))
        return h


class ByModule(Recurrent):
    """The steps in a loop of PyTorch's, the function behind torch.nn.RNN."""

    def last_state(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded, cell = self.nodes["embedding"](tokens), self.nodes["linear-1"]
        n_in = embedded.shape[-1]
        of_x, of_h = cell.weight.split([n_in, cell.weight.shape[0] - n_in])
        start = embedded.new_zeros(1, tokens.shape[1], of_h.shape[0])
        # It adds two biases where we add one.
        weights = [of_x.T, of_h.T, cell.bias, torch.zeros_like(cell.bias)]
        _, last = torch.rnn_relu(embedded, start, weights, True, 1, 0.0, True, False, False)
        return last[0]
