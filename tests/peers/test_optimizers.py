"""Our optimisers, schedules, clipping and initialisers are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.nodes.initializers import make_initializer
from amp_runtime.optim import OPTIMIZERS, make_optimizer
from amp_runtime.optim.clip import Clip
from amp_runtime.optim.lr_schedules import make_lr_schedule
from amp_runtime.optim.row_gradients import RowGradient, RowSums

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


# --------------------------------------------------------------------------- clip, schedules


@pytest.mark.parametrize("bound", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("by", ["norm", "value"])
def test_clipping_equals_that_of_pytorch(by, bound):
    generator = np.random.default_rng(3)
    arrays = [generator.normal(size=shape) for shape in ((4, 3), (3,))]
    tensors = [torch.nn.Parameter(torch.zeros(array.shape).double()) for array in arrays]
    for tensor, array in zip(tensors, arrays, strict=True):
        tensor.grad = torch.tensor(array)
    function = {"norm": "clip_grad_norm_", "value": "clip_grad_value_"}[by]
    getattr(torch.nn.utils, function)(tensors, bound)
    changed = [not np.array_equal(t.grad, a) for t, a in zip(tensors, arrays, strict=True)]
    assert Clip(**{by: bound}).apply(arrays) == any(changed)
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_allclose(array, tensor.grad, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "peer"),
    [
        ({"name": "step", "every": 30, "factor": 0.5}, ("StepLR", {"step_size": 3, "gamma": 0.5})),
        ({"name": "cosine", "over": 100}, ("CosineAnnealingLR", {"T_max": 10})),
        (
            {"name": "linear", "over": 80, "final": 0.25},
            ("LinearLR", {"start_factor": 1.0, "end_factor": 0.25, "total_iters": 8}),
        ),
        ({"name": "constant", "warm_up": 50}, ("LambdaLR", {"lr_lambda": lambda k: min(1, k / 5)})),
    ],
)
def test_schedules_by_examples_equal_pytorchs_by_steps_of_ten(options, peer):
    schedule, (name, theirs) = make_lr_schedule(options), peer
    tensor = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([tensor], lr=1.0)
    scheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, **theirs)
    for k in range(10):
        assert schedule.at(10 * k) == pytest.approx(scheduler.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        scheduler.step()


# ------------------------------------------------------------------------------ lazy rows


@pytest.fixture(autouse=True, scope="module")
def _checked_sparse_tensors():
    """PyTorch asks that one says whether they are to be checked."""
    with torch.sparse.check_sparse_tensor_invariants():
        yield


def sparse(rows, values):
    """Return the gradient of a table of 9 rows."""
    indices = torch.tensor(rows[None])
    return torch.sparse_coo_tensor(indices, torch.tensor(values), (9, 4))


def test_lazy_adam_equals_sparse_adam():
    generator = np.random.default_rng(5)
    start = generator.normal(size=(9, 4))
    table = start.copy()
    # SparseAdam adds eps to the root before it corrects the bias: with a small one that is equal.
    ours = make_optimizer({"name": "adam", "lr": 0.02, "eps": 1e-30}, {"table": table})
    tensor = torch.nn.Parameter(torch.tensor(start))
    peer = torch.optim.SparseAdam([tensor], lr=0.02, eps=1e-30)
    sums = RowSums(table, lazy=True)
    for _ in range(30):
        rows = generator.integers(0, 9, 5)  # a row may stand twice
        values = generator.normal(size=(5, 4))
        sums.add(rows, values)
        ours.step({"table": sums.take()})
        tensor.grad = sparse(rows, values)
        peer.step()
        np.testing.assert_allclose(table, tensor.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "peer"),
    [({"name": "sgd"}, torch.optim.SGD), ({"name": "adagrad"}, torch.optim.Adagrad)],
)
def test_lazy_sgd_and_adagrad_equal_pytorchs_with_sparse_gradients(options, peer):
    generator = np.random.default_rng(5)
    start = generator.normal(size=(9, 4))
    table = start.copy()
    ours = make_optimizer({**options, "lr": 0.02}, {"table": table})
    tensor = torch.nn.Parameter(torch.tensor(start))
    theirs = peer([tensor], lr=0.02)
    for _ in range(30):
        rows, values = np.sort(generator.permutation(9)[:3]), generator.normal(size=(3, 4))
        tensor.grad = sparse(rows, values)
        theirs.step()
        ours.step({"table": RowGradient(rows, values, lazy=True)})
        np.testing.assert_allclose(table, tensor.detach().numpy(), rtol=1e-12)


# --------------------------------------------------------------------------- initialisers


NONLINEARITIES = ["linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]
WITH_FANS = ["xavier_uniform", "xavier_normal", "kaiming_normal", "orthogonal"]


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("mode", ["fan_in", "fan_out"])
def test_kaiming_has_the_gain_and_the_fans_of_pytorch(nonlinearity, mode):
    options = {"name": "kaiming_uniform", "a": 0.3, "mode": mode, "nonlinearity": nonlinearity}
    ours = make_initializer(options).make((300, 200), np.random.default_rng(0))
    theirs = torch.empty(200, 300)  # [out, in] there
    torch.nn.init.kaiming_uniform_(theirs, 0.3, mode, nonlinearity)
    assert np.abs(ours).max() == pytest.approx(float(theirs.abs().max()), rel=1e-3)


@pytest.mark.parametrize(
    "name", ["xavier_uniform", "xavier_normal", "kaiming_normal", "orthogonal"]
)
def test_standard_deviations_are_those_of_pytorch(name):
    ours = make_initializer({"name": name}).make((300, 200), np.random.default_rng(0))
    theirs = torch.empty(200, 300)
    getattr(torch.nn.init, f"{name}_")(theirs)
    assert ours.std() == pytest.approx(float(theirs.std()), rel=0.02)


def test_a_truncated_normal_has_the_moments_of_pytorchs():
    options = {"name": "truncated_normal", "mean": 0.5, "std": 2.0, "a": -1.0, "b": 3.0}
    ours = make_initializer(options).make((300, 200), np.random.default_rng(0))
    theirs = torch.empty(200, 300)
    torch.nn.init.trunc_normal_(theirs, 0.5, 2.0, -1.0, 3.0)
    assert ours.mean() == pytest.approx(float(theirs.mean()), abs=0.03)
    assert ours.std() == pytest.approx(float(theirs.std()), rel=0.02)
