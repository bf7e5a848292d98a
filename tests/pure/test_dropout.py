"""dropout: masks are those of a fair coin, and functions of seed, node and state alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kinds import OWN, floats, make, only, rows, slots, spec

from amp_runtime.errors import BadOptionError
from amp_runtime.nodes.generators import node_key
from amp_runtime.rows.message import Mode
from workers.dropout import keep_mask

RATES = (0.1, 0.5, 0.9)
SIGMAS = 5
"""A fair coin strays further once in a million; the seed is fixed."""


def states(n_instances=40, n_examples=5, n_steps=20):
    """Return int32 [4000, 3]: every state of a small run, which differ in single bits."""
    every = itertools.product(range(n_instances), range(n_examples), range(n_steps))
    return np.array(list(every), np.int32)


def mask(rate, n=64, seed=0, name="dropout-1", state=None):
    return keep_mask(node_key(seed, name), states() if state is None else state, n, rate)


def assert_share(kept, share):
    """Assert that `kept` [n, ...] is true in `share` of the n, wherever one looks."""
    far = SIGMAS * np.sqrt(share * (1 - share) / len(kept))
    assert np.abs(kept.mean(axis=0) - share).max() < far


def test_kept_features_are_scaled_and_others_zero_in_both_directions():
    node = make("dropout", floats(200), rate=0.75)
    emitted = only(node.forward("x", rows(x=np.full((1, 200), 3.0)), Mode.TRAIN))
    assert set(emitted.payload["x"][0].tolist()) == {0, 12}  # 3 / (1 - 0.75)
    answer = only(node.backward("y", slots(emitted), {"x": np.full((1, 200), 5.0)}))
    assert answer.gradient["x"].tolist() == (emitted.payload["x"] / 12 * 20).tolist()


def test_evaluation_and_a_rate_of_zero_change_nothing():
    given = rows(x=np.random.default_rng(0).normal(size=(3, 8)))
    for node, mode in (
        (make("dropout", floats(8), rate=0.9), Mode.EVALUATE),
        (make("dropout", floats(8), rate=0.0), Mode.TRAIN),
    ):
        emitted = only(node.forward("x", given, mode))
        assert emitted.payload["x"].tolist() == given.payload["x"].tolist()
        assert (emitted.columns[0, 0] == OWN) == (mode is Mode.TRAIN)


@pytest.mark.parametrize("rate", RATES)
def test_each_feature_and_each_row_is_kept_as_often_as_the_rate_says(rate):
    kept = mask(rate)
    assert_share(kept.reshape(-1, 1), 1 - rate)
    assert_share(kept, 1 - rate)
    assert_share(mask(rate, n=4000, state=states()[:64]).T, 1 - rate)


@pytest.mark.parametrize("rate", RATES)
def test_neighbours_are_independent_among_features_rows_nodes_and_seeds(rate):
    """Two independent coins agree on heads in (1 - rate) squared of all throws."""
    kept = mask(rate)
    both = (1 - rate) ** 2
    for apart in (1, 2, 3, 32):
        assert_share(kept[:, apart:] & kept[:, :-apart], both)
    by_column = kept.reshape(40, 5, 20, 64)
    for axis in range(3):
        one, two = (np.take(by_column, [n], axis=axis) for n in (2, 3))
        assert_share((one & two).reshape(-1, 1), both)
        # Pairs that share no row: others are independent coins, but no independent pairs.
        pairs = np.take(by_column, range(1, 5, 2), axis) & np.take(by_column, range(0, 4, 2), axis)
        assert_share(pairs.reshape(-1, 64), both)
    assert_share(kept & mask(rate, name="dropout-2"), both)
    assert_share(kept & mask(rate, seed=1), both)


def test_columns_of_a_state_are_no_sum():
    """(1, 2) and (2, 1) are other states; so are (0, 1) and (1, 0)."""
    state = np.array([[1, 2], [2, 1], [0, 3], [3, 0], [0, 0], [-1, 4]], np.int32)
    assert len({row.tobytes() for row in mask(0.5, 256, state=state)}) == len(state)


def test_a_batch_has_the_masks_of_its_rows_one_by_one_to_the_bit_in_any_order():
    together = mask(0.3)
    order = np.random.default_rng(1).permutation(4000)
    assert (mask(0.3, state=states()[order]) == together[order]).all()
    for n in range(0, 4000, 37):
        assert (mask(0.3, state=states()[n : n + 1])[0] == together[n]).all()


def test_a_node_that_is_made_again_draws_the_same_and_other_arrays_draw_other_masks():
    def output(**given):
        sent = rows([1, 2], [3, 4], x=np.ones((2, 50)), h=np.ones((2, 50)))
        both = spec(("x", (50,), "float64"), ("h", (50,), "float64"))
        node = make("dropout", both, rate=0.5, **given)
        return {n: a.tolist() for n, a in only(node.forward("x", sent, Mode.TRAIN)).payload.items()}

    assert output() == output(verify=False)
    assert output()["x"] != output()["h"]
    assert output()["x"] != output(seed=1)["x"]
    assert output()["x"] != output(name="other")["x"]


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_a_rate_outside_0_to_1_is_refused(rate):
    with pytest.raises(BadOptionError, match=rf"rate: must be .*at least 0, below 1.*not {rate}"):
        make("dropout", floats(1), rate=rate)
