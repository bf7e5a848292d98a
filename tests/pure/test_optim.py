"""Optimisers: two steps worked by hand each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amp_runtime.optim import OPTIMIZERS, make_optimizer


def two_steps(first, second, **options):
    """Return a parameter, 10 at first, after each of two steps."""
    parameters = {"w": np.array([10.0])}
    mine = parameters["w"]
    optimizer = make_optimizer(options, parameters)
    seen = []
    for gradient in (first, second):
        optimizer.step({"w": np.array([gradient])})
        seen.append(float(mine[0]))
    assert optimizer.steps == 2
    return seen


def test_sgd_goes_down_the_gradient():
    assert two_steps(2.0, -4.0, name="sgd", lr=0.5) == [9.0, 11.0]


def test_sgd_with_momentum_sums_decayed_gradients():
    # v = 2, then 0.5 * 2 - 4 = -3
    assert two_steps(2.0, -4.0, name="sgd", lr=0.5, momentum=0.5) == [9.0, 10.5]


def test_adam_divides_the_corrected_mean_by_the_root_of_the_corrected_square():
    # m = 0.5 * 2 = 1, corrected 1 / 0.5 = 2;  s = 0.25 * 4 = 1, corrected 1 / 0.25 = 4
    # step 1: 0.1 * 2 / (2 + 1)
    # m = 0.5 + 0.5 * 6 = 3.5, / 0.75;  s = 0.75 + 0.25 * 36 = 9.75, / (1 - 0.75^2 = 0.4375)
    first, second = two_steps(2.0, 6.0, name="adam", lr=0.1, beta1=0.5, beta2=0.75, eps=1.0)
    assert first == pytest.approx(10 - 0.1 * 2 / 3, rel=1e-15)
    step = 0.1 * (3.5 / 0.75) / (math.sqrt(9.75 / 0.4375) + 1)
    assert second == pytest.approx(first - step, rel=1e-15)


def test_adam_steps_by_the_learning_rate_at_first_whatever_the_gradient():
    for gradient in (1e-3, 1.0, 1e3):
        first, _ = two_steps(gradient, 0.0, name="adam", lr=0.01)
        assert first == pytest.approx(10 - 0.01, rel=1e-6)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_every_array_has_a_state_of_its_own_and_is_updated_in_place(name):
    parameters = {"w": np.ones((2, 3)), "b": np.ones(3, np.float32)}
    arrays = list(parameters.values())
    optimizer = make_optimizer({"name": name, "lr": 0.1, "weight_decay": 0.0}, parameters)
    for _ in range(2):
        optimizer.step({"w": np.ones((2, 3)), "b": np.zeros(3, np.float32)})
    assert parameters["w"] is arrays[0]
    assert (parameters["w"] < 1).all()
    assert parameters["b"].tolist() == [1, 1, 1]
    assert parameters["b"].dtype == np.float32


def test_nesterov_looks_one_step_of_the_velocity_ahead():
    # v = 2, d = 2 + 0.5 * 2 = 3; then v = 1 - 4 = -3, d = -4 - 1.5 = -5.5
    assert two_steps(2.0, -4.0, name="sgd", lr=0.5, momentum=0.5, nesterov=True) == [8.5, 11.25]


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(ValueError, match="nesterov: needs a momentum"):
        OPTIMIZERS["sgd"].Options(lr=0.1, nesterov=True)


def test_weight_decay_is_added_to_the_gradient():
    # g = 2 + 0.1 * 10 = 3; then -4 + 0.1 * 8.5
    assert two_steps(2.0, -4.0, name="sgd", lr=0.5, weight_decay=0.1) == [8.5, 8.5 + 1.575]


def test_adagrad_divides_by_the_root_of_the_sum_of_squares():
    # sums 9 and 25, roots 3 and 5
    first, second = two_steps(3.0, 4.0, name="adagrad", lr=0.5)
    assert (first, second) == (pytest.approx(9.5), pytest.approx(9.5 - 0.4))


def test_adagrad_may_start_with_a_sum():
    first, _ = two_steps(3.0, 0.0, name="adagrad", lr=0.5, initial=16.0)
    assert first == pytest.approx(10 - 0.5 * 3 / 5)


def test_rmsprop_divides_by_the_root_of_the_decayed_mean_of_squares():
    # s = 0.25 * 16 = 4, root 2; then s = 0.75 * 4 + 0.25 * 4 = 4
    first, second = two_steps(4.0, 2.0, name="rmsprop", lr=0.5, decay=0.75)
    assert (first, second) == (pytest.approx(9.0), pytest.approx(8.5))


def test_rmsprop_with_momentum_sums_the_divided_gradients():
    # d = 2, then 0.5 * 2 + 1
    first, second = two_steps(4.0, 2.0, name="rmsprop", lr=0.5, decay=0.75, momentum=0.5)
    assert (first, second) == (pytest.approx(9.0), pytest.approx(8.0))


def test_adamw_shrinks_the_parameter_by_itself():
    first, _ = two_steps(0.0, 0.0, name="adamw", lr=0.1, weight_decay=0.5)
    assert first == pytest.approx(10 * (1 - 0.05))
    with_gradient, _ = two_steps(3.0, 0.0, name="adamw", lr=0.1, weight_decay=0.5)
    assert with_gradient == pytest.approx(9.5 - 0.1)


# ----------------------------------------------------------------------------- some steps ahead


def stepped(*gradients, **options):
    """Return an optimiser of w = 10 after steps, and what w is some more steps ahead."""
    options = {"weight_decay": 0.0, **options}
    optimizer = make_optimizer(options, {"w": np.array([10.0])})
    for gradient in gradients:
        optimizer.step({"w": np.array([gradient])})

    def ahead(*lrs, decaying=False):
        before = {k: a.copy() for k, a in optimizer.state["w"].items()}
        own, out = optimizer.parameters["w"], np.empty(1)
        was = own.copy()
        optimizer.ahead(own, optimizer.state["w"], lrs, out, decaying=decaying)
        assert (own == was).all()
        assert all((optimizer.state["w"][k] == a).all() for k, a in before.items())
        return float(out[0])

    return optimizer, ahead


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("name", ["sgd", "rmsprop"])
def test_decaying_momentum_is_what_steps_without_a_gradient_do(name, nesterov):
    more = {"nesterov": nesterov} if name == "sgd" else {}
    optimizer, ahead = stepped(2.0, -5.0, name=name, lr=0.5, momentum=0.5, **more)
    found = ahead(0.5, 0.5, 0.5, decaying=True)
    for _ in range(3):
        optimizer.step({"w": np.zeros(1)})
    assert found == pytest.approx(float(optimizer.parameters["w"][0]), rel=1e-15)


@pytest.mark.parametrize("nesterov", [False, True])
def test_linear_is_what_steps_do_with_the_gradient_that_keeps_the_velocity(nesterov):
    optimizer, ahead = stepped(2.0, -5.0, name="sgd", lr=0.5, momentum=0.5, nesterov=nesterov)
    found = ahead(0.5, 0.25)
    velocity = float(optimizer.state["w"]["velocity"][0])
    for factor in (1.0, 0.5):
        optimizer.step({"w": np.array([velocity * (1 - 0.5)])}, lr_factor=factor)
    assert found == pytest.approx(float(optimizer.parameters["w"][0]), rel=1e-15)


def test_adam_looks_ahead_with_the_bias_correction_of_the_steps_it_made():
    optimizer, ahead = stepped(*[2.0] * 40, name="adam", lr=0.1)
    # Of a constant gradient the corrected step is lr from the first step to the last: a
    # correction for one step alone would make it 3.16 times too short at the end.
    w = float(optimizer.parameters["w"][0])
    assert w == pytest.approx(10 - 40 * 0.1, rel=1e-6)
    assert ahead(0.1, 0.1, 0.05) == pytest.approx(w - 0.25, rel=1e-6)
    _, ahead = stepped(name="adam", lr=0.1)
    assert ahead(0.1) == ahead(0.1, decaying=True) == 10.0


@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_decaying_adam_is_worked_step_by_step(decay):
    optimizer, ahead = stepped(2.0, 6.0, name="adamw", lr=0.1, beta1=0.5, beta2=0.75, eps=1.0,
                               weight_decay=decay)  # fmt: skip
    w = float(optimizer.parameters["w"][0])
    m, s = 3.5, 9.75  # as above
    for t, lr in ((3, 0.1), (4, 0.2)):
        m *= 0.5
        w *= 1 - lr * decay
        w -= lr * m / (1 - 0.5**t) / (math.sqrt(s / (1 - 0.75**t)) + 1)
    assert ahead(0.1, 0.2, decaying=True) == pytest.approx(w, rel=1e-14)


def test_linear_adamw_shrinks_by_its_decay_too():
    optimizer, ahead = stepped(2.0, name="adamw", lr=0.1, beta1=0.5, beta2=0.75, eps=1.0,
                               weight_decay=0.25)  # fmt: skip
    w = float(optimizer.parameters["w"][0])
    move = 2 / (2 + 1)
    assert ahead(0.1, 0.2) == pytest.approx(w * (1 - 0.3 * 0.25) - 0.3 * move, rel=1e-14)


@pytest.mark.parametrize("nesterov", [False, True])
def test_a_raised_momentum_takes_a_gradient_as_far_over_more_steps(nesterov):
    ways = {}
    for raised in (0.0, 0.9):
        optimizer, _ = stepped(name="sgd", lr=0.5, momentum=0.5, nesterov=nesterov)
        path = []
        for gradient in [2.0] + [0.0] * 400:
            optimizer.step({"w": np.array([gradient])}, momentum=raised)
            path.append(10 - float(optimizer.parameters["w"][0]))
        assert optimizer.momentum == max(0.5, raised)
        ways[raised] = path
    assert ways[0.9][0] < ways[0.0][0] / 2
    # Nesterov's adds a part of the gradient itself, less of it the smaller the steps are.
    assert ways[0.9][-1] == pytest.approx(ways[0.0][-1], rel=1e-12)


def test_a_momentum_below_the_options_changes_nothing():
    for name, cls in OPTIMIZERS.items():
        more = {"momentum": 0.5} if name in ("sgd", "rmsprop") else {}
        plain, low = (stepped(name=name, lr=0.1, **more)[0] for _ in range(2))
        for gradient in (2.0, -5.0, 1.0):
            plain.step({"w": np.array([gradient])})
            low.step({"w": np.array([gradient])}, momentum=0.25)
        assert plain.parameters["w"] == low.parameters["w"], cls


def test_adams_mean_lives_longer_with_a_raised_momentum_and_is_looked_along_so():
    optimizer, ahead = stepped(*[2.0] * 60, name="adam", lr=0.1, eps=1e-12)
    before = float(optimizer.state["w"]["mean"][0])
    optimizer.step({"w": np.array([-2.0])}, momentum=0.95)
    assert optimizer.state["w"]["mean"][0] == pytest.approx(0.95 * before - 0.05 * 2)
    w = float(optimizer.parameters["w"][0])
    mean = float(optimizer.state["w"]["mean"][0]) / (1 - 0.9**61)
    assert ahead(0.1) == pytest.approx(w - 0.1 * mean / 2, rel=1e-9)


def test_without_momentum_there_is_nothing_to_go_along():
    keeps = {"sgd": {"momentum": 0.9}, "rmsprop": {"momentum": 0.9}, "adam": {}, "adamw": {}}
    for name, cls in OPTIMIZERS.items():
        assert bool(cls.momentum_of(cls.Options(lr=0.1, **keeps.get(name, {})))) == (name in keeps)
    sgd = OPTIMIZERS["sgd"]
    assert not sgd.momentum_of(sgd.Options(lr=0.1))
