"""softmax_over_rows: one softmax over all rows of an example, when all have come."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import answered, f64, floats, make, only, rows, structure

from amp_runtime.errors import (
    DuplicateStateError,
    GroupSizeError,
    InvariantError,
    NodeError,
    ShapeMismatchError,
)
from amp_runtime.rows.message import Mode

FIELDS = {1: {"n": [3], "label": [1]}, 2: {"n": [1], "label": [0]}, 3: {"n": [2], "label": [5]}}


def loss(**given):
    options = {"count": "n", "index": "step", **given}
    return make("softmax_over_rows", floats(1), name="loss", arena=structure(FIELDS), **options)


def test_all_rows_are_answered_when_the_last_has_come():
    node = loss()
    e = np.exp([1.0, 2.0, 3.0])
    assert node.forward("x", rows(1, [2, 0], first_slot=5, x=[[3.0], [1.0]]), Mode.TRAIN) == ()
    assert node.waiting == 1
    answer = only(node.forward("x", rows(1, 1, first_slot=9, x=[[2.0]]), Mode.TRAIN))
    p = e / e.sum()
    found = {slot: g["x"] for slot, g in answered([answer]).items()}
    assert found.keys() == {5, 6, 9}
    np.testing.assert_allclose([found[6], found[9], found[5]], f64([p - [0, 1, 0]]).T, rtol=1e-14)
    metrics = node.take_metrics(Mode.TRAIN)
    assert metrics["loss"].total == pytest.approx(-np.log(p[1]), rel=1e-14)
    assert (metrics["accuracy"].total, metrics["accuracy"].count) == (0, 1)
    node.assert_drained()


def test_an_example_of_one_row_costs_nothing_and_is_right():
    node = loss()
    answer = only(node.forward("x", rows(2, 0, x=[[-4.0]]), Mode.TRAIN))
    assert answered([answer]) == {0: {"x": [0]}}
    metrics = node.take_metrics(Mode.TRAIN)
    assert (metrics["loss"].total, metrics["accuracy"].total) == (0, 1)


def test_the_first_of_equal_rows_is_chosen():
    node = loss()
    node.forward("x", rows(1, [0, 1, 2], x=[[1.0], [2.0], [2.0]]), Mode.TRAIN)
    assert node.take_metrics(Mode.TRAIN)["accuracy"].total == 1


def test_large_logits_do_not_overflow():
    node = loss()
    answer = only(node.forward("x", rows(1, [0, 1, 2], x=[[1e4], [0.0], [0.0]]), Mode.TRAIN))
    assert answered([answer]) == {0: {"x": [1]}, 1: {"x": [-1]}, 2: {"x": [0]}}
    assert node.take_metrics(Mode.TRAIN)["loss"].total == 1e4


def test_evaluation_answers_null_and_counts_apart():
    node = loss()
    answer = only(node.forward("x", rows(1, [0, 1, 2], x=[[1.0], [2.0], [0.0]]), Mode.EVALUATE))
    assert answered([answer]) == dict.fromkeys(range(3))
    assert node.take_metrics(Mode.TRAIN) == {}
    assert node.take_metrics(Mode.EVALUATE)["accuracy"].total == 1
    node.assert_drained()


@pytest.mark.parametrize(
    ("instance", "step", "error", "said"),
    [
        (1, [0, 0], DuplicateStateError, "a second member at position 0 of its example"),
        (1, [1, 3], NodeError, r"step 3\): a row of number 3, outside 0 to 2"),
        (2, [0, 0], GroupSizeError, "a member more than the 1 that its example expects"),
        (3, [0, 1], NodeError, "label 5 is outside 0 to 1"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(instance, step, error, said):
    with pytest.raises(error, match=f"node 'loss'.*{said}"):
        loss().forward("x", rows(instance, step, x=[[1.0]] * len(step)), Mode.TRAIN)


def test_rows_that_wait_for_ever_are_counted_when_nothing_is_in_flight():
    node = loss()
    node.forward("x", rows(1, 0, x=[[1.0]]), Mode.TRAIN)
    with pytest.raises(InvariantError, match="1 rows are still in the stash and 1 keys wait"):
        node.assert_drained()


def test_a_graph_that_does_not_fit_is_refused():
    with pytest.raises(ShapeMismatchError, match=r"one array float64\[rows, 1\]"):
        make("softmax_over_rows", floats(2), count="n", index="step")
    with pytest.raises(ShapeMismatchError, match=r"no state column 'stop' .*did you mean 'step'"):
        make("softmax_over_rows", floats(1), count="n", index="stop")
