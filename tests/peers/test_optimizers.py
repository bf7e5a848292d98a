"""Our optimisers are PyTorch's, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.optim import OPTIMIZERS, make_optimizer

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make peers adds it")
pytestmark = pytest.mark.peers

CASES = {
    "sgd": ({}, torch.optim.SGD, {}),
    "momentum": ({"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (
        {"momentum": 0.9, "nesterov": True},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "adagrad": ({"initial": 0.1}, torch.optim.Adagrad, {"initial_accumulator_value": 0.1}),
    "rmsprop": ({"decay": 0.9}, torch.optim.RMSprop, {"alpha": 0.9}),
    "rmsprop with momentum": ({"momentum": 0.5}, torch.optim.RMSprop, {"momentum": 0.5}),
    "adam": ({"beta1": 0.8, "beta2": 0.95}, torch.optim.Adam, {"betas": (0.8, 0.95)}),
    "adamw": ({}, torch.optim.AdamW, {}),
}


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("case", list(CASES))
def test_thirty_steps_equal_those_of_pytorch(case, weight_decay):
    ours, torch_class, theirs = CASES[case]
    generator = np.random.default_rng(7)
    start = generator.normal(size=(4, 3))
    parameters = {"w": start.copy()}
    name = case.split()[0] if case.split()[0] in OPTIMIZERS else "sgd"
    optimizer = make_optimizer(
        {"name": name, "lr": 0.02, "weight_decay": weight_decay, **ours}, parameters
    )
    tensor = torch.nn.Parameter(torch.tensor(start))
    peer = torch_class([tensor], lr=0.02, weight_decay=weight_decay, **theirs)
    for _ in range(30):
        gradient = generator.normal(size=(4, 3))
        optimizer.step({"w": gradient.copy()})
        tensor.grad = torch.tensor(gradient)
        peer.step()
        np.testing.assert_allclose(parameters["w"], tensor.detach().numpy(), rtol=1e-12)
