"""The same models in plain PyTorch: what our training must be equal to.

Parameters come and go as `{node name: {parameter name: numpy array}}`, in our
layout: a linear's weight is [in, out] (y = x @ weight + bias), an embedding's
table is [entries, features]. A batch is a pair (inputs, labels), labels int [n].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

Parameters = Mapping[str, Mapping[str, np.ndarray]]
Batch = tuple[Any, Any]

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
_CALLED = {"decay": "alpha", "initial": "initial_accumulator_value"}


def peer_of(options: Mapping[str, Any], *, lazy: bool = False) -> tuple[type[Any], dict[str, Any]]:
    """Return PyTorch's class and options for options of ours, `name` among them."""
    given = dict(options)
    cls = torch.optim.SparseAdam if lazy else OPTIMIZERS[given["name"]]
    if "beta1" in given:
        given["betas"] = given.pop("beta1"), given.pop("beta2")
    if lazy:
        assert (given.pop("weight_decay"), given["name"]) == (0, "adam")
    theirs = {_CALLED.get(name, name): value for name, value in given.items() if name != "name"}
    return cls, theirs


class Linear(nn.Module):
    """y = x @ weight + bias, or without one."""

    def __init__(
        self, weight: np.ndarray, bias: np.ndarray | None = None, *, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=dtype))
        self.bias = None if bias is None else nn.Parameter(torch.tensor(bias, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight.T, self.bias)


class Embedding(nn.Module):
    """Row `index` of the table; its gradient is dense."""

    def __init__(self, table: np.ndarray, dtype: torch.dtype) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor(table, dtype=dtype))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return functional.embedding(index, self.table)


class Gru(nn.Module):
    """PyTorch's cell; ours has one bias for the gates r and z, and two for the new state."""

    def __init__(
        self, weight: np.ndarray, bias: np.ndarray, bias_h: np.ndarray, *, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=dtype))
        self.bias = nn.Parameter(torch.tensor(bias, dtype=dtype))
        self.bias_h = nn.Parameter(torch.tensor(bias_h, dtype=dtype))

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        of_x, of_h = self.weight.split([x.shape[1], h.shape[1]])
        bias_h = functional.pad(self.bias_h, (2 * h.shape[1], 0))
        return torch.gru_cell(x, h, of_x.T, of_h.T, self.bias, bias_h)


def module_of(arrays: Mapping[str, np.ndarray], dtype: torch.dtype) -> nn.Module:
    """Return the module that a node's parameters are of."""
    if "table" in arrays:
        return Embedding(**arrays, dtype=dtype)
    return (Gru if "bias_h" in arrays else Linear)(**arrays, dtype=dtype)


class NamedNodes(nn.Module):
    """A model whose parts are called as the nodes of our graph are."""

    def __init__(self, parameters: Parameters, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.nodes = nn.ModuleDict(
            {node: module_of(arrays, dtype) for node, arrays in parameters.items()}
        )

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the parameters in our form, new memory."""
        return {
            node: {name: p.detach().numpy().copy() for name, p in module.named_parameters()}
            for node, module in self.nodes.items()
        }

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the mean cross-entropy over the batch's examples."""
        inputs, labels = batch
        target = torch.as_tensor(np.array(labels, np.int64).reshape(-1))
        return functional.cross_entropy(self(inputs), target)

    def gradients(self) -> dict[str, dict[str, np.ndarray]]:
        """Return dL/dparameter in our form, new memory; zeros of one that took no part."""
        return {
            node: {
                name: (torch.zeros_like(p) if p.grad is None else p.grad).numpy().copy()
                for name, p in module.named_parameters()
            }
            for node, module in self.nodes.items()
        }


class ListReductionRNN(NamedNodes):
    """h = relu(linear-1([embedding(token), h])) over the tokens, then linear-2(h).

    h starts at zeros. Inputs are n sequences of int, of any lengths above 0.
    """

    def forward(self, sequences: Sequence[Any]) -> torch.Tensor:
        """Return logits [n, labels]. An example that has ended keeps its h."""
        embedding, cell, readout = (
            self.nodes[name] for name in ("embedding", "linear-1", "linear-2")
        )
        tokens = nn.utils.rnn.pad_sequence(
            [torch.as_tensor(np.asarray(s, np.int64)) for s in sequences], batch_first=True
        )
        lengths = torch.tensor([len(s) for s in sequences])
        h = torch.zeros(len(sequences), cell.bias.shape[0], dtype=self.dtype)
        for step in range(tokens.shape[1]):
            new = torch.relu(cell(torch.cat([embedding(tokens[:, step]), h], dim=1)))
            h = torch.where((step < lengths)[:, None], new, h)
        return readout(h)


class MLP(NamedNodes):
    """linear-1 .. linear-k, a relu after each but the last. Inputs are [n, features]."""

    def forward(self, x: Any) -> torch.Tensor:
        y = torch.as_tensor(np.array(x), dtype=self.dtype)
        for i in range(1, len(self.nodes) + 1):
            y = self.nodes[f"linear-{i}"](y if i == 1 else torch.relu(y))
        return y


def train_steps(
    model: type[NamedNodes],
    parameters: Parameters,
    batches: Iterable[Batch],
    optimizer: str,
    options: Mapping[str, Any],
    dtype: str = "float64",
    lr_factors: Sequence[float] | None = None,
    clip_norm: float | None = None,
) -> dict[str, dict[str, np.ndarray]]:
    """Take one optimiser step a batch, on the mean loss, and return the parameters.

    Args:
        model: ListReductionRNN, MLP, or one of `torch_graphs`.
        parameters: where to start; not changed.
        optimizer: of OPTIMIZERS; `options` are torch's own (lr, momentum, betas, eps).
        dtype: `float32` or `float64`, of parameters and arithmetic.
        lr_factors: of each step, by LambdaLR.
        clip_norm: of the gradient of each node by itself.
    """
    net = model(parameters, getattr(torch, dtype))
    stepper = OPTIMIZERS[optimizer](net.parameters(), **options)
    factor = torch.optim.lr_scheduler.LambdaLR(
        stepper, lambda k: lr_factors[k] if lr_factors and k < len(lr_factors) else 1.0
    )
    for batch in batches:
        stepper.zero_grad()
        net.loss(batch).backward()
        if clip_norm is not None:
            for node in net.nodes.values():
                nn.utils.clip_grad_norm_(node.parameters(), clip_norm)
        stepper.step()
        factor.step()
    return net.arrays()


def loss_and_gradients(
    model: type[NamedNodes], parameters: Parameters, batch: Batch, dtype: str = "float64"
) -> tuple[float, dict[str, dict[str, np.ndarray]]]:
    """Return the mean loss of one batch and its gradient for every parameter."""
    net = model(parameters, getattr(torch, dtype))
    loss = net.loss(batch)
    loss.backward()
    return loss.item(), net.gradients()


def accuracy(model: type[NamedNodes], parameters: Parameters, batch: Batch, dtype: str) -> float:
    """Return the share of a batch's examples whose largest logit is the label's."""
    net = model(parameters, getattr(torch, dtype))
    with torch.no_grad():
        chosen = net(batch[0]).argmax(dim=1).numpy()
    return float((chosen == np.asarray(batch[1]).reshape(-1)).mean())


def random_parameters(shapes: Mapping[str, Any], seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return parameters drawn as PyTorch's own layers draw theirs.

    Args:
        shapes: {node name: (rows, columns)}; a node called `embedding...` gets a
            table from a standard normal, any other a weight and a bias from
            uniform(-k, k), k = 1 / sqrt(rows).
    """
    random = np.random.default_rng(seed)
    made: dict[str, dict[str, np.ndarray]] = {}
    for node, (rows, columns) in shapes.items():
        if node.startswith("embedding"):
            made[node] = {"table": random.normal(size=(rows, columns))}
            continue
        k = 1 / np.sqrt(rows)
        made[node] = {
            "weight": random.uniform(-k, k, (rows, columns)),
            "bias": random.uniform(-k, k, columns),
        }
    return made


LIST_REDUCTION_SHAPES = {"embedding": (14, 128), "linear-1": (256, 128), "linear-2": (128, 10)}
MLP_SHAPES = {
    "linear-1": (784, 784),
    "linear-2": (784, 784),
    "linear-3": (784, 784),
    "linear-4": (784, 10),
}
