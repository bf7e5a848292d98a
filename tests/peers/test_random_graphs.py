"""Random graphs equal autograd, loss and every gradient, under any order of delivery.

The recipe, the seed and the delivery are hypothesis' and printed when a test fails.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import build
from random_runs import (
    EVERYTHING,
    N_TRAIN,
    data,
    initial_parameters,
    quick,
    recipes,
    run_settings,
    scripted,
)
from scripted import Delivery

from amp_runtime.nodes.updates import Schedule
from amp_runtime.remedies.backward_weights import BackwardWeights

pytest.importorskip("torch", reason="PyTorch is not installed (make peers)")

from tests.peers.graph_oracle import KINDS, loss_and_gradients

pytestmark = pytest.mark.peers
TOLERANCE = 1e-9


def one_update_equals_autograd(
    recipe, seed, delivery, schedule, keys, batch, verify, weights
) -> None:
    """Train one update on all examples, with a plain step of lr 1, and validate."""
    wiring = build(recipe, batch=batch, lr=1.0, update_every=N_TRAIN, backward_weights=weights)
    given = run_settings(
        schedule, max_active_keys=keys, update_every=N_TRAIN, verify=verify, seed=seed
    )
    before = initial_parameters(wiring, given)
    run = scripted(wiring, given, seed, delivery, data_seed=seed)
    train, valid = data(seed)
    loss, gradients = loss_and_gradients(wiring, before, train, seed)
    assert run.finished is not None
    after = run.finished.parameters
    for node, arrays in gradients.items():
        for name, wanted in arrays.items():
            # A step of lr 1 subtracts the gradient itself; the subtraction rounds.
            found = before[node][name] - after[node][name]
            limit = TOLERANCE * np.abs(wanted).max() + 1e-14
            np.testing.assert_allclose(found, wanted, 0, limit, err_msg=f"{node}.{name}")
    assert run.results[0].metrics["loss"] == pytest.approx(loss, rel=TOLERANCE)
    loss_then, _ = loss_and_gradients(wiring, after, valid)
    assert run.results[1].metrics["loss"] == pytest.approx(loss_then, rel=TOLERANCE)


drawn = {
    "recipe": recipes,
    "seed": st.integers(0, 2**16),
    "delivery": st.sampled_from(Delivery),
    "schedule": st.sampled_from(Schedule),
    "keys": st.integers(1, 8),
    "batch": st.integers(1, 3),
    "verify": st.booleans(),
    "weights": st.sampled_from(BackwardWeights),
}


@quick
@given(**drawn)
def test_one_update_equals_autograd_under_any_delivery(**how):
    one_update_equals_autograd(**how)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(quick, max_examples=300)
@given(**drawn)
def test_many_more_graphs_equal_autograd(**how):
    one_update_equals_autograd(**how)


def test_a_graph_of_everything_has_every_kind_of_the_oracle_but_those_of_trees():
    of_trees = {"child_sum_lstm", "forget", "tree_lstm_branch", "tree_lstm_leaf"}
    assert {node.kind for node in build(EVERYTHING).nodes} == KINDS.keys() - of_trees


@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("weights", BackwardWeights)
def test_a_graph_of_everything_equals_autograd(delivery, schedule, weights):
    one_update_equals_autograd(EVERYTHING, 7, delivery, schedule, 3, 2, True, weights)
