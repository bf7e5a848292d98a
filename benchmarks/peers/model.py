"""What a model of a peer is, and what one update of it is made of, prepared once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from amp_runtime.data.dataset import Dataset
from tests.peers.torch_models import NamedNodes, Parameters

Examples = np.ndarray
"""int64 [k], numbers of examples."""


class Measured(NamedTuple):
    """What some examples come to: sums over them.

    Attributes:
        loss: with its gradient.
        metric: rows that are told right, or the absolute error; no gradient.
    """

    loss: torch.Tensor
    metric: torch.Tensor


@dataclass(frozen=True)
class Step:
    """The examples of one update.

    Attributes:
        parts: each is what `PeerModel.measure` takes.
        n_examples: of the update, whoever has them: the objective is the mean over these.
        words: int64 [rows], the rows of the model's table that are read; None: it has none.
    """

    parts: tuple[Any, ...]
    n_examples: int
    words: torch.Tensor | None = None


class PeerModel(NamedNodes, ABC):
    """A model in PyTorch whose parts are called as the nodes of our graph are.

    Attributes:
        table: [words, features], an embedding of which an update reads and changes few rows; it
            is no parameter: who updates takes the rows of a step, and their gradient.
    """

    table: torch.Tensor | None = None

    @classmethod
    @abstractmethod
    def part(cls, data: Dataset, examples: Examples, words: np.ndarray | None) -> Any:
        """Return these examples as `measure` takes them.

        Args:
            words: sorted, of the step; None: the model has no table.
        """

    @classmethod
    def words_of(cls, data: Dataset, examples: Examples) -> np.ndarray | None:
        """Return the rows of the table that these examples read, sorted; None: there is none."""
        return None

    @abstractmethod
    def measure(self, part: Any, rows: torch.Tensor | None) -> Measured:
        """Return what a part comes to.

        Args:
            rows: [words of the step, features] of the table.
        """

    def loss_of(self, step: Step, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Return the part of the mean loss that these examples are, without the way back."""
        with torch.no_grad():
            losses = [self.measure(part, rows).loss for part in step.parts]
        return torch.stack(losses).sum() / step.n_examples


def prepare_steps(
    model: type[PeerModel],
    data: Dataset,
    batches: Iterable[Examples],
    *,
    one_by_one: bool = False,
    rank: int = 0,
    of: int = 1,
) -> list[Step]:
    """Return one step for each batch.

    Args:
        one_by_one: a part holds one example; else all of the step.
        rank, of: which share of each batch is meant, and of how many.
    """
    steps = []
    for examples in batches:
        words, own = model.words_of(data, examples), examples[rank::of]
        some = [own[i : i + 1] for i in range(len(own))] if one_by_one else [own][: len(own)]
        parts = tuple(model.part(data, part, words) for part in some)
        steps.append(Step(parts, len(examples), None if words is None else torch.tensor(words)))
    return steps


def without_table(parameters: Parameters, name: str = "embedding") -> Parameters:
    """Return all parameters but those of the embedding."""
    return {node: arrays for node, arrays in parameters.items() if node != name}
