"""lstm and gru are PyTorch's cells: forward, and every gradient."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import make, only, rows, slots, spec

from amp_runtime.rows.message import Mode

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make peers adds it")
pytestmark = pytest.mark.peers

N_ROWS, N_IN, N = 7, 3, 5


def arrays(names):
    """Return what a step is given, and dL/d(what leaves)."""
    generator = np.random.default_rng(4)
    widths = {"x": N_IN, "h": N, "c": N}
    given = {name: generator.normal(size=(N_ROWS, widths[name])) for name in names}
    return given, {name: generator.normal(size=(N_ROWS, N)) for name in names[1:]}


def ours(kind, names, parameters):
    """Return what leaves a node, dL/d(its inputs) and dL/d(its parameters)."""
    given, c = arrays(names)
    node = make(kind, spec(*((n, a.shape[1:], "float64") for n, a in given.items())))
    for name, array in parameters.items():
        node.parameters[name][...] = array
    assert node.parameters.keys() == parameters.keys()
    left = only(node.forward("x", rows(**given), Mode.TRAIN))
    answer = only(node.backward("y", slots(left), c))
    node.accumulate()
    return left.payload, answer.gradient, node.gradients


def theirs(cell, names):
    """Return what leaves a cell and dL/d(its inputs); its parameters keep their gradient."""
    given, c = arrays(names)
    x, *state = (torch.tensor(a, requires_grad=True) for a in given.values())
    left = cell(x, state[0] if len(state) == 1 else tuple(state))
    left = dict(zip(names[1:], left if isinstance(left, tuple) else (left,), strict=True))
    sum((torch.tensor(c[name]) * y).sum() for name, y in left.items()).backward()
    gradients = dict(zip(names, (x.grad, *(s.grad for s in state)), strict=True))
    return left, gradients


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        other = theirs[name]
        other = other.detach().numpy() if isinstance(other, torch.Tensor) else other
        np.testing.assert_allclose(array, other, rtol=1e-12, atol=1e-14, err_msg=name)


def weights(module, of=lambda parameter: parameter):
    """Return (weight [in + features, k * features], bias of x, bias of h), or their gradients."""
    found = {name: of(p).detach().numpy() for name, p in module.named_parameters()}
    weight = np.concatenate([found["weight_ih"].T, found["weight_hh"].T])
    return weight, found["bias_ih"], found["bias_hh"]


def test_an_lstm_step_and_its_gradients_are_those_of_pytorch():
    names = ("x", "h", "c")
    cell = torch.nn.LSTMCell(N_IN, N, dtype=torch.float64)
    weight, bias, other_bias = weights(cell)
    # PyTorch adds two biases, we one: its gradient is that of either.
    parameters = {"weight": weight, "bias": bias + other_bias}
    left, to_inputs, to_parameters = ours("lstm", names, parameters)
    their_left, their_inputs = theirs(cell, names)
    assert_same(left, their_left)
    assert_same(to_inputs, their_inputs)
    weight, bias, other_bias = weights(cell, lambda p: p.grad)
    assert_same({"bias": bias}, {"bias": other_bias})
    assert_same(to_parameters, {"weight": weight, "bias": bias})


def test_a_gru_step_and_its_gradients_are_those_of_pytorch():
    names = ("x", "h")
    cell = torch.nn.GRUCell(N_IN, N, dtype=torch.float64)
    weight, bias, bias_h = weights(cell)
    # The gates r and z add both biases, we one; n has two, and we too.
    together = np.concatenate([(bias + bias_h)[: 2 * N], bias[2 * N :]])
    parameters = {"weight": weight, "bias": together, "bias_h": bias_h[2 * N :]}
    left, to_inputs, to_parameters = ours("gru", names, parameters)
    their_left, their_inputs = theirs(cell, names)
    assert_same(left, their_left)
    assert_same(to_inputs, their_inputs)
    weight, bias, bias_h = weights(cell, lambda p: p.grad)
    assert_same(to_parameters, {"weight": weight, "bias": bias, "bias_h": bias_h[2 * N :]})
