"""The multi-layer perceptron, by PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from amp_runtime.data.dataset import Dataset
from benchmarks.peers.model import Examples, Measured, PeerModel


@dataclass(frozen=True)
class Images:
    """Pixels [images, n] and labels int64 [images]."""

    pixels: torch.Tensor
    label: torch.Tensor


class Perceptron(PeerModel):
    """linear-1 .. linear-k, a relu after each but the last."""

    @classmethod
    def part(cls, data: Dataset, examples: Examples, words: np.ndarray | None) -> Images:
        label = data.gather("label", examples).values.astype(np.int64)
        pixels = data.gather("pixels", examples).values
        return Images(torch.tensor(pixels.reshape(len(examples), -1)), torch.tensor(label))

    def measure(self, part: Images, rows: torch.Tensor | None) -> Measured:
        y = part.pixels
        for number in range(1, len(self.nodes) + 1):
            y = self.nodes[f"linear-{number}"](y if number == 1 else torch.relu(y))
        with torch.no_grad():
            right = (y.argmax(dim=1) == part.label).sum()
        return Measured(functional.cross_entropy(y, part.label, reduction="sum"), right)
