"""squared_error and sigmoid_cross_entropy: losses against a target of as many features."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kinds import answered, differences, f64, floats, make, only, rows, spec, structure

from amp_runtime.errors import BadOptionError, NodeError, ShapeMismatchError
from amp_runtime.rows.message import Mode

KINDS = ("squared_error", "sigmoid_cross_entropy")


def loss(kind, targets, n=2, **given):
    """Return a loss whose instances 1, 2, ... have `targets`, one row each."""
    arena = structure({i: {"target": [t]} for i, t in enumerate(targets, start=1)})
    return make(kind, floats(n), name="loss", arena=arena, **given)


def metrics(node, mode=Mode.TRAIN):
    return {name: (m.total, m.count) for name, m in node.take_metrics(mode).items()}


def test_squared_error_is_that_worked_by_hand():
    node = loss("squared_error", [[1.0, 2.0], [0.0, 0.0]])
    found = answered(node.forward("x", rows([1, 2], x=[[3.0, 2.0], [-1.0, 0.5]]), Mode.TRAIN))
    assert found == {0: {"x": [4, 0]}, 1: {"x": [-2, 1]}}
    assert metrics(node) == {"loss": (4 + 1 + 0.25, 0), "absolute_error": (2 + 1 + 0.5, 4)}


def test_the_absolute_error_is_told_in_further_units():
    node = loss("squared_error", [[1.0, 2.0]], scaled={"error_debye": 1.5, "error_ratio": 15.0})
    node.forward("x", rows(1, x=[[3.0, 2.5]]), Mode.TRAIN)
    assert metrics(node)["absolute_error"] == (2.5, 2)
    assert metrics(node)["error_debye"] == (3.75, 2)
    assert metrics(node)["error_ratio"] == (37.5, 2)
    assert set(metrics(node)) == set(node.metric_names(node.options))


@pytest.mark.parametrize(
    ("scaled", "message"),
    [
        ({"loss": 2.0}, "scaled: 'loss' is no name for a further metric"),
        ({"error in debye": 2.0}, "'error in debye' is no name"),
        ({"error": 0.0}, r"scaled.error: 0.0 is not above 0"),
        ({"error": -1.0}, "scaled.error: -1.0 is not above 0"),
    ],
)
def test_a_unit_that_is_none_is_refused(scaled, message):
    with pytest.raises(BadOptionError, match=message):
        loss("squared_error", [[1.0, 2.0]], scaled=scaled)


def test_sigmoid_cross_entropy_is_that_worked_by_hand():
    ln3 = math.log(3)
    node = loss("sigmoid_cross_entropy", [[1.0, 0.0]])
    # sigmoid(ln 3) = 3/4, sigmoid(0) = 1/2
    found = answered(node.forward("x", rows(1, x=[[ln3, 0.0]]), Mode.TRAIN))
    np.testing.assert_allclose(found[0]["x"], [-0.25, 0.5], rtol=1e-14)
    assert metrics(node)["loss"] == (pytest.approx(math.log(4 / 3) + math.log(2)), 0)
    assert metrics(node)["accuracy"] == (2, 2)


def test_large_logits_do_not_overflow():
    node = loss("sigmoid_cross_entropy", [[1.0, 0.0]])
    answer = only(node.forward("x", rows(1, x=[[-1e4, 1e4]]), Mode.TRAIN))
    assert answer.gradient["x"].tolist() == [[-1, 1]]
    assert metrics(node)["loss"] == (2e4, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_match_finite_differences(kind):
    generator = np.random.default_rng(0)
    x, targets = generator.normal(size=(3, 4)), generator.uniform(size=(3, 4))
    found = answered(loss(kind, targets, 4).forward("x", rows([1, 2, 3], x=x), Mode.TRAIN))

    def total():
        node = loss(kind, targets, 4)
        node.forward("x", rows([1, 2, 3], x=x), Mode.EVALUATE)
        return metrics(node, Mode.EVALUATE)["loss"][0]

    by_row = [found[n]["x"] for n in range(3)]
    np.testing.assert_allclose(by_row, differences(total, x), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_measures_and_answers_null(kind):
    node = loss(kind, [[1.0, 0.0]])
    assert answered(node.forward("x", rows(1, x=[[1.0, 1.0]]), Mode.EVALUATE)) == {0: None}
    assert metrics(node) == {}
    assert metrics(node, Mode.EVALUATE)["loss"][0] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_may_have_the_target_of_its_own_element_and_scalars_fit_one_feature(kind):
    arena = structure({1: {"target": [0.0, 1.0, 0.5]}})
    node = make(kind, floats(1), arena=arena, index="step")
    answer = only(node.forward("x", rows(1, [2, 1], x=[[0.5], [1.0]]), Mode.TRAIN))
    expected = {
        "squared_error": [[0.0], [0.0]],
        "sigmoid_cross_entropy": [[1 / (1 + math.exp(-0.5)) - 0.5], [1 / (1 + math.exp(-1)) - 1]],
    }[kind]
    np.testing.assert_allclose(answer.gradient["x"], expected, rtol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused_by_name(kind):
    with pytest.raises(ShapeMismatchError, match="takes one array of float64"):
        make(kind, spec(("n", (), "int32")))
    with pytest.raises(ShapeMismatchError, match=r"no state column 'stepp'.*did you mean 'step'"):
        make(kind, floats(2), index="stepp")


@pytest.mark.parametrize("kind", KINDS)
def test_targets_of_whole_numbers_leave_the_gradient_in_the_dtype_of_the_rows(kind):
    arena = structure({1: {"target": [1]}})
    node = make(kind, spec(("x", (1,), "float32")), arena=arena, dtype="float32")
    arrived = rows(1, x=np.float32([[0.5]]))
    arrived.payload["x"] = arrived.payload["x"].astype(np.float32)
    gradient = only(node.forward("x", arrived, Mode.TRAIN)).gradient["x"]
    assert gradient.dtype == np.float32
    expected = {"squared_error": -1.0, "sigmoid_cross_entropy": 1 / (1 + math.exp(-0.5)) - 1}[kind]
    np.testing.assert_allclose(gradient, [[expected]], rtol=1e-6)


def test_a_probability_outside_0_to_1_is_refused():
    node = loss("sigmoid_cross_entropy", [[0.5, 1.5]])
    with pytest.raises(NodeError, match=r"'loss'.*target of 1\.5, outside 0 to 1"):
        node.forward("x", rows(1, x=f64([[0, 0]])), Mode.TRAIN)
