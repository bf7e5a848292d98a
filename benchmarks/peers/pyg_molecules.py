"""The gated graph network of molecules by PyTorch Geometric: its batches, its message passing."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import MessagePassing, global_add_pool

from amp_runtime.data.dataset import Dataset
from benchmarks.peers.model import Examples
from benchmarks.peers.molecules import GatedGraphs, Graphs, graphs_of
from tests.peers.torch_models import Parameters


class Bonds(MessagePassing):
    """Sums messages; the edges of a type have a linear of their own, and lie side by side."""

    def __init__(self) -> None:
        super().__init__(aggr="add")

    def forward(
        self, x: torch.Tensor, edges: torch.Tensor, linears: list[nn.Module], n_edges: list[int]
    ) -> torch.Tensor:
        """Return the sum at each target of `edges`, [2, edges]."""
        # It reads in this call what a message may be given.
        return self.propagate(edges, x=x, linears=linears, n_edges=n_edges)

    def message(
        self, x_j: torch.Tensor, linears: list[nn.Module], n_edges: list[int]
    ) -> torch.Tensor:
        sent = zip(linears, x_j.split(n_edges), strict=True)
        return torch.cat([linear(x) for linear, x in sent])


class ByGeometric(GatedGraphs):
    """Messages of all edges of a type at once, passed and summed by PyTorch Geometric."""

    def __init__(self, parameters: Parameters, dtype: torch.dtype) -> None:
        super().__init__(parameters, dtype)
        self.bonds = Bonds()

    @classmethod
    def part(cls, data: Dataset, examples: Examples, words: np.ndarray | None) -> Graphs:
        molecules = []
        for one in (graphs_of(data, np.array([example])) for example in examples):
            numbers, counts = np.array(one.types, np.int64).reshape(-1, 2).T
            molecules.append(
                Data(
                    x=one.annotation,
                    edge_index=torch.stack([one.source, one.target]),
                    edge_type=torch.tensor(np.repeat(numbers, counts)),
                    y=one.wanted,
                )
            )
        both = Batch.from_data_list(molecules)
        kind, order = both.edge_type.sort(stable=True)
        numbers, counts = (found.tolist() for found in kind.unique(return_counts=True))
        source, target = both.edge_index[:, order]
        types = tuple(zip(numbers, counts, strict=True))
        return Graphs(both.x, both.batch, source.contiguous(), target.contiguous(), types, both.y)

    def sums(self, h: torch.Tensor, part: Graphs) -> torch.Tensor:
        if not part.types:  # no molecule has a bond
            return torch.zeros_like(h)
        linears = [self.nodes[f"message-{number}"] for number, _ in part.types]
        edges = torch.stack([part.source, part.target])
        return self.bonds(h, edges, linears, part.n_edges)

    def total(self, values: torch.Tensor, part: Graphs) -> torch.Tensor:
        return global_add_pool(values[:, None], part.graph, len(part.wanted))[:, 0]
