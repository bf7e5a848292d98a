"""Learning rates by examples: values worked by hand, and which examples a step counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import f64, floats, make, only, rows, slots

from amp_runtime.nodes.updates import Schedule, UpdatePolicy
from amp_runtime.optim.lr_schedules import LR_SCHEDULES, make_lr_schedule
from amp_runtime.rows.message import Mode


def factors(*examples, **options) -> list[float]:
    schedule = make_lr_schedule(options)
    return [schedule.at(n) for n in examples]


def test_constant_is_one():
    assert factors(0, 10**9, name="constant") == [1, 1]


def test_step_multiplies_at_every_so_many_examples():
    assert factors(0, 99, 100, 250, name="step", every=100, factor=0.5) == [1, 1, 0.5, 0.25]


def test_linear_goes_to_its_final_factor_and_stays():
    assert factors(0, 25, 50, 99, name="linear", over=50, final=0.5) == [1, 0.75, 0.5, 0.5]


def test_cosine_goes_to_its_final_factor_and_stays():
    assert factors(0, 100, 400, name="cosine", over=200, final=0.2) == pytest.approx([1, 0.6, 0.2])
    (third,) = factors(100, name="cosine", over=300)
    assert third == pytest.approx(0.75)  # (1 + cos 60 degrees) / 2


def test_warm_up_multiplies_each():
    assert factors(0, 5, 10, 20, name="constant", warm_up=10) == [0, 0.5, 1, 1]
    assert factors(0, 5, 8, name="step", every=4, factor=0.5, warm_up=10) == [0, 0.25, 0.2]
    assert factors(25, name="linear", over=50, warm_up=50) == [0.25]


SAMPLES = {
    "constant": {},
    "step": {"every": 7, "factor": 0.9},
    "linear": {"over": 50, "final": 0.1},
    "cosine": {"over": 50, "final": 0.1},
}


@given(st.sampled_from(sorted(LR_SCHEDULES)), st.integers(0, 100), st.integers(0, 1000))
def test_no_factor_is_outside_0_to_1_and_none_rises_after_the_warm_up(name, warm_up, n):
    schedule = make_lr_schedule({"name": name, "warm_up": warm_up, **SAMPLES[name]})
    assert 0 <= schedule.at(n) <= 1
    if n >= warm_up:
        assert schedule.at(n + 1) <= schedule.at(n)


# ------------------------------------------------------------------- in a node's updates


def bias_node(policy: UpdatePolicy):
    """Return a linear node whose bias steps by the learning rate 1 times the factor."""
    return make(
        "linear",
        floats(1),
        features=1,
        updates=policy,
        optimizer={"name": "sgd", "lr": 1.0},
        training={"lr_schedule": {"name": "step", "every": 4, "factor": 0.5}},
    )


def learn(node, instance: int, n: int) -> None:
    """Bring `n` rows of one instance whose loss has the gradient 1 by the bias."""
    given = rows(x=np.zeros((n, 1)), instance=[instance] * n)
    emitted = only(node.forward("x", given, Mode.TRAIN))
    node.backward("y", slots(emitted), {"x": f64(np.ones((n, 1)))})
    node.accumulate()


def retire(node, instance: int, n_examples: int) -> None:
    node.on_retired(np.array([instance], np.int32), np.array([n_examples], np.int32))


def test_a_synchronous_step_counts_the_examples_before_it_also_those_of_steps_without_rows():
    node = bias_node(UpdatePolicy(Schedule.SYNCHRONOUS))
    steps = []
    for k in range(5):
        if k != 1:  # nothing reaches the node in the second step
            learn(node, k, 3)
        retire(node, k, 3)
        before = node.parameters["bias"].copy()
        node.step_for(3)
        steps += (before - node.parameters["bias"]).tolist()
    # before the steps: 0, 3, 6, 9, 12 examples
    assert steps == pytest.approx([1, 0, 0.5, 0.25, 0.125])


def test_an_asynchronous_step_counts_what_has_retired_in_training():
    node = bias_node(UpdatePolicy(min_update_frequency=1))
    retire(node, 0, 3)
    retire(node, 1, 0)  # an evaluation instance
    learn(node, 2, 1)
    assert node.optimizer.lr == 1
    retire(node, 3, 2)
    learn(node, 4, 1)
    assert node.optimizer.lr == 0.5
