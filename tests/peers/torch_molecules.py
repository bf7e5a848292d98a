"""The gated graph network of `models/ggsnn.py` that tells a number, batched as PyTorch has it.

Many graphs are one: their nodes end to end, so that the matrix of edges is block-diagonal;
messages are those of all edges of a type at once, summed where they go by index_add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from amp_runtime.data.dataset import Dataset
from tests.peers.torch_models import Batch, NamedNodes


@dataclass(frozen=True)
class GraphBatch:
    """Graphs end to end.

    Attributes:
        annotation: [nodes, features].
        graph: int64 [nodes], to which graph a node belongs.
        edges: {type: (source, target)}, int64 each; types without an edge are left out.
        n_graphs: how many there are.
    """

    annotation: torch.Tensor
    graph: torch.Tensor
    edges: Mapping[int, tuple[torch.Tensor, torch.Tensor]]
    n_graphs: int


def graph_batch(data: Dataset, examples: np.ndarray) -> Batch:
    """Return examples of source `qm9` as one batch: (graphs, targets)."""
    annotation, kind, source, target = (
        data.gather(name, examples)
        for name in ("annotation", "edge_type", "edge_source", "edge_target")
    )
    first = np.cumsum(annotation.counts) - annotation.counts
    offset = np.repeat(first, kind.counts)
    ends = torch.tensor(np.stack([source.values + offset, target.values + offset]))
    edges = {
        int(number): ends[:, np.flatnonzero(kind.values == number)]
        for number in np.unique(kind.values)
    }
    graphs = GraphBatch(
        torch.tensor(annotation.values),
        torch.tensor(np.repeat(np.arange(len(examples)), annotation.counts)),
        {number: (both[0], both[1]) for number, both in edges.items()},
        len(examples),
    )
    return graphs, torch.tensor(data.gather("target", examples).values)


class MoleculeGGSNN(NamedNodes):
    """Steps of messages and a gru; sum over atoms of sigmoid(gate([h, annotation])) value(h).

    Attributes:
        steps: how often messages are sent.
    """

    steps = 4

    def forward(self, graphs: GraphBatch) -> torch.Tensor:
        """Return a number for each graph."""
        hidden = self.nodes["cell"].bias_h.shape[0]
        h = functional.pad(graphs.annotation, (0, hidden - graphs.annotation.shape[1]))
        for _ in range(self.steps):
            sums = torch.zeros_like(h)
            for number, (source, target) in graphs.edges.items():
                sums = sums.index_add(0, target, self.nodes[f"message-{number}"](h[source]))
            h = self.nodes["cell"](sums, h)
        gate = torch.sigmoid(self.nodes["gate"](torch.cat([h, graphs.annotation], dim=1)))
        values = (gate * self.nodes["value"](h))[:, 0]
        return torch.zeros(graphs.n_graphs, dtype=h.dtype).index_add(0, graphs.graph, values)

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the mean squared error."""
        graphs, targets = batch
        return functional.mse_loss(self(graphs), targets)


def mean_absolute_error(net: MoleculeGGSNN, data: Dataset, at_once: int = 500) -> float:
    """Return the error over all examples of `data`."""
    total = 0.0
    with torch.no_grad():
        for begin in range(0, len(data), at_once):
            examples = np.arange(begin, min(begin + at_once, len(data)))
            graphs, targets = graph_batch(data, examples)
            total += float((net(graphs) - targets).abs().sum(dtype=torch.float64))
    return total / len(data)
