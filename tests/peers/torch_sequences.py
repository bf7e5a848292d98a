"""Models of sequences by PyTorch's own recurrent modules, with our names and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import rnn

from tests.peers.torch_models import Batch, Embedding, Linear, NamedNodes, Parameters

N_GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}


class Sequences(NamedNodes):
    """torch.nn.LSTM, GRU or RNN over padded sequences, and one linear.

    PyTorch adds two biases where we add one: its second stays as zeros, but for the part of
    a GRU's candidate, which is our `bias_h`.

    Class attributes: as the options of our model `rnn`.
    """

    cell: str
    layers: int
    bidirectional: bool
    readout: str

    def __init__(self, parameters: Parameters, dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.dtype = dtype
        self._own = {name: arrays for name, arrays in parameters.items() if self._is_cell(name)}
        others = {name: arrays for name, arrays in parameters.items() if name not in self._own}
        self.nodes = nn.ModuleDict(
            {
                name: Embedding(**arrays, dtype=dtype)
                if "table" in arrays
                else Linear(**arrays, dtype=dtype)
                for name, arrays in others.items()
            }
        )
        weight = next(iter(self._own.values()))["weight"]
        self.hidden = weight.shape[1] // N_GATES[self.cell]
        options: dict[str, Any] = {
            "num_layers": self.layers,
            "bidirectional": self.bidirectional,
            "batch_first": True,
            "dtype": dtype,
        }
        n_in = weight.shape[0] - self.hidden
        if self.cell in ("relu", "tanh"):
            self.recurrence = nn.RNN(n_in, self.hidden, nonlinearity=self.cell, **options)
        else:
            module = {"lstm": nn.LSTM, "gru": nn.GRU}[self.cell]
            self.recurrence = module(n_in, self.hidden, **options)
        for name, arrays in self._own.items():
            self._put(self._place(name), arrays)

    @staticmethod
    def _is_cell(name: str) -> bool:
        return name == "linear-1" or name.startswith("cell")

    def _place(self, name: str) -> str:
        """Return as PyTorch calls a layer and direction: `l0`, `l1_reverse`."""
        _, *parts = name.split("-") if name != "linear-1" else ("linear",)
        layer = int(parts[0]) - 1 if parts and parts[0].isdigit() else 0
        return f"l{layer}" + "_reverse" * ("back" in parts)

    def _put(self, place: str, arrays: Any) -> None:
        found = {kind: getattr(self.recurrence, f"{kind}_{place}") for kind in KINDS}
        h = self.hidden
        with torch.no_grad():
            weight = torch.tensor(arrays["weight"], dtype=self.dtype)
            found["weight_ih"].copy_(weight[:-h].T)
            found["weight_hh"].copy_(weight[-h:].T)
            found["bias_ih"].copy_(torch.tensor(arrays["bias"], dtype=self.dtype))
            found["bias_hh"].zero_()
            if self.cell == "gru":
                found["bias_hh"][2 * h :] = torch.tensor(arrays["bias_h"], dtype=self.dtype)
        if self.cell != "gru":
            found["bias_hh"].requires_grad_(False)
            return
        ours = torch.zeros(3 * h, dtype=self.dtype)
        ours[2 * h :] = 1
        found["bias_hh"].register_hook(lambda gradient: gradient * ours)

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        made = super().arrays()
        for name in self._own:
            found = {
                kind: getattr(self.recurrence, f"{kind}_{self._place(name)}").detach().numpy()
                for kind in KINDS
            }
            weight = np.concatenate([found["weight_ih"].T, found["weight_hh"].T])
            made[name] = {"weight": weight, "bias": found["bias_ih"].copy()}
            if self.cell == "gru":
                made[name]["bias_h"] = found["bias_hh"][2 * self.hidden :].copy()
        return made

    def forward(self, sequences: Any) -> torch.Tensor:
        """Return logits [examples, classes], or [steps of all, classes] of a tagger."""
        lengths = torch.tensor([len(s) for s in sequences])
        steps = rnn.pad_sequence([torch.as_tensor(np.array(s)) for s in sequences], True)
        x = self.nodes["embedding"](steps.long()) if "embedding" in self.nodes else steps
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.recurrence(packed)
        states, _ = rnn.pad_packed_sequence(states, batch_first=True)
        last = last[0] if isinstance(last, tuple) else last
        there = torch.arange(states.shape[1]) < lengths[:, None]
        if self.readout == "last":
            made = torch.cat(list(last[-2:] if self.bidirectional else last[-1:]), dim=1)
        elif self.readout == "mean":
            made = (states * there[..., None]).sum(dim=1) / lengths[:, None]
        elif self.readout == "max":
            made = states.masked_fill(~there[..., None], -torch.inf).amax(dim=1)
        else:
            made = states[there]
        return self.nodes["linear-2" if "linear-2" in self.nodes else "logits"](made)

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the mean over examples of the sum over their rows."""
        sequences, labels = batch
        target = torch.as_tensor(np.array(labels, np.int64).reshape(-1))
        return functional.cross_entropy(self(sequences), target, reduction="sum") / len(sequences)


KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def sequences_of(options: dict[str, Any]) -> type[Sequences]:
    """Return the model that has these options of our `rnn`."""
    defaults = {"cell": "relu", "layers": 1, "bidirectional": False, "readout": "last"}
    return type("Sequences", (Sequences,), {**defaults, **options})
