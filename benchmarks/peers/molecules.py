"""The gated graph network that tells a number of a molecule, batched by hand with PyTorch.

Molecules lie end to end, so that the matrix of their bonds is block-diagonal. Edges are sorted by
type: a step gathers the states that they begin at once, has a matrix for each type, and sums all
messages where they go by one index_add.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.nn import functional

from amp_runtime.data.dataset import Dataset
from benchmarks.peers.model import Examples, Measured, PeerModel


@dataclass(frozen=True)
class Graphs:
    """Molecules end to end.

    Attributes:
        annotation: [atoms, features].
        graph: int64 [atoms], to which molecule an atom belongs.
        source, target: int64 [edges], sorted by type.
        types: of each type that has edges, and how many.
        wanted: [molecules].
    """

    annotation: torch.Tensor
    graph: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    types: tuple[tuple[int, int], ...]
    wanted: torch.Tensor

    @cached_property
    def n_edges(self) -> list[int]:
        return [n for _, n in self.types]


def graphs_of(data: Dataset, examples: Examples) -> Graphs:
    """Return examples of source `qm9`."""
    annotation, kind, source, target = (
        data.gather(name, examples)
        for name in ("annotation", "edge_type", "edge_source", "edge_target")
    )
    first = np.cumsum(annotation.counts, dtype=np.int64) - annotation.counts
    offset = np.repeat(first, kind.counts)
    by_type = np.argsort(kind.values, kind="stable")
    numbers, counts = np.unique(kind.values, return_counts=True)
    return Graphs(
        torch.tensor(annotation.values),
        torch.tensor(np.repeat(np.arange(len(examples)), annotation.counts)),
        torch.tensor((source.values + offset)[by_type]),
        torch.tensor((target.values + offset)[by_type]),
        tuple(zip(numbers.tolist(), counts.tolist(), strict=True)),
        torch.tensor(data.gather("target", examples).values),
    )


class GatedGraphs(PeerModel):
    """What all ways of passing messages have in common: 4 steps of them, the cell, the readout.

    Attributes:
        steps: how often messages are sent.
    """

    steps = 4

    @classmethod
    def part(cls, data: Dataset, examples: Examples, words: np.ndarray | None) -> Graphs:
        return graphs_of(data, examples)

    def measure(self, part: Graphs, rows: torch.Tensor | None) -> Measured:
        cell = self.nodes["cell"]
        hidden = cell.bias_h.shape[0]
        # What the cell's own forward makes of its parameters, once for all steps.
        of_x, of_h = (weight.T for weight in cell.weight.split(hidden))
        bias_h = functional.pad(cell.bias_h, (2 * hidden, 0))
        h = functional.pad(part.annotation, (0, hidden - part.annotation.shape[1]))
        for _ in range(self.steps):
            h = torch.gru_cell(self.sums(h, part), h, of_x, of_h, cell.bias, bias_h)
        gate = torch.sigmoid(self.nodes["gate"](torch.cat([h, part.annotation], dim=1)))
        told = self.total((gate * self.nodes["value"](h))[:, 0], part)
        with torch.no_grad():
            error = (told - part.wanted).abs().sum()
        return Measured(functional.mse_loss(told, part.wanted, reduction="sum"), error)

    @abstractmethod
    def sums(self, h: torch.Tensor, part: Graphs) -> torch.Tensor:
        """Return the sum of the messages to each atom, [atoms, hidden]."""

    def total(self, values: torch.Tensor, part: Graphs) -> torch.Tensor:
        """Return the sum of each molecule, of a value for each atom."""
        return values.new_zeros(len(part.wanted)).index_add(0, part.graph, values)


class ByHand(GatedGraphs):
    """Messages of all edges of a type at once, summed by index_add."""

    def sums(self, h: torch.Tensor, part: Graphs) -> torch.Tensor:
        if not part.types:  # no molecule has a bond
            return torch.zeros_like(h)
        sent = functional.embedding(part.source, h).split(part.n_edges)
        messages = [
            self.nodes[f"message-{number}"](x)
            for (number, _), x in zip(part.types, sent, strict=True)
        ]
        return torch.zeros_like(h).index_add(0, part.target, torch.cat(messages))
