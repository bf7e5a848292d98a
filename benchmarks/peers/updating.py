"""How PyTorch takes a step: the optimiser of a config, clipping by node, and rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from amp_runtime.config.schema import Config
from benchmarks.peers.model import PeerModel
from benchmarks.peers.options import optimizer_of
from tests.peers.torch_models import peer_of


@dataclass(frozen=True)
class Rule:
    """What a config says of updates.

    Attributes:
        optimizer: options of ours, `name` among them.
        clip_norm: of the gradient of each node by itself; None: it is not clipped.
    """

    optimizer: Mapping[str, Any]
    clip_norm: float | None

    @staticmethod
    def of(config: Config) -> Rule:
        """Read a config, whose learning rate stays as it begins.

        Raises:
            ValueError: it clips by value.
        """
        clip = config.training.clip
        optimizer = optimizer_of(config)
        if clip == "none":
            return Rule(optimizer, None)
        if not isinstance(clip, dict) or set(clip) != {"norm"}:
            raise ValueError(f"training.clip is {clip}; the peers clip by norm: {{norm: 1.0}}")
        return Rule(optimizer, float(clip["norm"]))

    def make(self, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        """Return PyTorch's own optimiser, all parameters in one call."""
        cls, options = peer_of(self.optimizer)
        return cls(list(parameters), fused=True, **options)


class TableRows:
    """The rows of a model's table that a step reads, as a leaf, and their update by hand.

    What a dense update does to the rows that had a gradient; it does nothing to the others, of
    these optimisers.

    Args:
        state: [words, features] for what the optimiser keeps; None: made here.
    Raises:
        ValueError: the optimiser changes rows that had no gradient, or is another.
    """

    def __init__(self, rule: Rule, table: torch.Tensor, state: torch.Tensor | None = None) -> None:
        options = dict(rule.optimizer)
        name, self._lr = options.pop("name"), options.pop("lr")
        self._eps = options.pop("eps", 0.0)  # sgd has none
        self._is_adagrad = name == "adagrad"
        initial = options.pop("initial", 0.0)
        if name not in ("adagrad", "sgd") or any(options.values()):
            raise ValueError(f"rows of a table are updated by plain sgd or adagrad, not {name}")
        self._table = table
        self._squares = torch.zeros_like(table) if state is None else state
        self._squares.fill_(initial)

    def take(self, words: torch.Tensor) -> torch.Tensor:
        """Return rows as a leaf that has a gradient."""
        return self._table.index_select(0, words).requires_grad_()

    def update(self, words: torch.Tensor, gradient: torch.Tensor) -> None:
        """Change rows, each named once."""
        change = gradient * -self._lr
        if self._is_adagrad:
            squares = self._squares.index_select(0, words).addcmul_(gradient, gradient)
            self._squares.index_copy_(0, words, squares)
            change /= squares.sqrt_().add_(self._eps)
        rows = self._table.index_select(0, words).add_(change)
        self._table.index_copy_(0, words, rows)


def clip_by_node(net: PeerModel, norm: float) -> None:
    """Scale the gradient of each node down to `norm`, where it is larger."""
    for node in net.nodes.values():
        torch.nn.utils.clip_grad_norm_(node.parameters(), norm, foreach=True)


def node_slices(net: PeerModel) -> Sequence[slice]:
    """Return where each node's parameters lie if all lie end to end."""
    slices, begin = [], 0
    for node in net.nodes.values():
        n = sum(p.numel() for p in node.parameters())
        slices.append(slice(begin, begin + n))
        begin += n
    return slices
