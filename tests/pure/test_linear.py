"""linear: y = activation(x @ weight + bias), and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import answered, f64, floats, make, only, rows, slots, spec

from amp_runtime.errors import BadOptionError, ShapeMismatchError, UnmatchedBackwardError
from amp_runtime.nodes.updates import Schedule, UpdatePolicy
from amp_runtime.rows.message import Mode

X = [[2.0, 3.0], [5.0, 7.0], [-1.0, 0.5]]


def linear(weight=((1.0,), (10.0,)), bias=None, **options):
    node = make("linear", floats(2), features=len(weight[0]), bias=bias is not None, **options)
    node.parameters["weight"][...] = weight
    if bias is not None:
        node.parameters["bias"][...] = bias
    return node


def test_output_is_input_times_weight_plus_bias():
    node = linear(weight=[[1.0, -1.0], [10.0, 0.5]], bias=[100.0, 200.0])
    emitted = only(node.forward("x", rows(x=[[2.0, 3.0]]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[132.0, 199.5]]  # 2 + 30 + 100, -2 + 1.5 + 200


def test_gradient_uses_its_own_input_when_answers_swap_order():
    node = linear()
    node.forward("x", rows(instance=1, x=[[2.0, 3.0]]), Mode.TRAIN)
    second = only(node.forward("x", rows(instance=2, first_slot=9, x=[[5.0, 7.0]]), Mode.TRAIN))
    answers = node.backward("y", slots(second), {"x": f64([[4.0]])})
    node.accumulate()
    assert node.gradients["weight"].tolist() == [[20.0], [28.0]]  # [5, 7]^T * 4
    assert answered(answers) == {9: {"x": [4.0, 40.0]}}  # 4 * [1, 10]
    assert node.stash.used == 1
    with pytest.raises(UnmatchedBackwardError, match=r"linear-1.*slot"):
        node.backward("y", slots(second), {"x": f64([[4.0]])})


@pytest.mark.parametrize(
    ("activation", "outputs", "gradients"),
    [
        (None, [-2.0, 0.0, 2.0], [1, 1, 1]),
        ("relu", [0.0, 0.0, 2.0], [0, 0, 1]),
        ("tanh", np.tanh([-2.0, 0.0, 2.0]), 1 / np.cosh([-2.0, 0.0, 2.0]) ** 2),
        (
            "sigmoid",
            1 / (1 + np.exp([2.0, 0.0, -2.0])),
            [np.exp(2) / (1 + np.exp(2)) ** 2, 0.25, np.exp(2) / (1 + np.exp(2)) ** 2],
        ),
    ],
)
def test_an_activation_is_fused_behind_the_product(activation, outputs, gradients):
    node = make("linear", floats(1), features=1, bias=False, activation=activation)
    node.parameters["weight"][...] = 1
    emitted = only(node.forward("x", rows(x=[[-2.0], [0.0], [2.0]]), Mode.TRAIN))
    np.testing.assert_allclose(emitted.payload["x"][:, 0], outputs, rtol=1e-14)
    answer = only(node.backward("y", slots(emitted), {"x": np.ones((3, 1))}))
    np.testing.assert_allclose(answer.gradient["x"][:, 0], gradients, rtol=1e-13)


def test_a_sigmoid_of_a_large_input_does_not_overflow():
    node = make("linear", floats(1), features=1, bias=False, activation="sigmoid")
    node.parameters["weight"][...] = 1
    emitted = only(node.forward("x", rows(x=[[-1e4], [1e4]]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[0.0], [1.0]]


def test_answers_use_the_weights_of_now_and_the_inputs_of_then():
    node = linear(updates=UpdatePolicy(min_update_frequency=1))
    first, second = (
        only(node.forward("x", rows(instance=i, first_slot=i, x=[x]), Mode.TRAIN))
        for i, x in ((1, [2.0, 3.0]), (2, [5.0, 7.0]))
    )
    node.backward("y", slots(first), {"x": f64([[1.0]])})
    node.accumulate()
    assert node.parameters["weight"].tolist() == [[0.8], [9.7]]  # [1, 10] - 0.1 * [2, 3]
    answers = node.backward("y", slots(second), {"x": f64([[10.0]])})
    assert answered(answers) == {2: {"x": [8.0, 97.0]}}
    node.accumulate()
    np.testing.assert_allclose(node.parameters["weight"], [[-4.2], [2.7]])  # - 0.1 * 10 * [5, 7]
    assert (node.version, node.staleness.counts.tolist()) == (2, [1, 1])


def test_staleness_counts_the_updates_since_the_rows_own_forward():
    node = linear(updates=UpdatePolicy(min_update_frequency=1))
    emitted = []
    for n in range(3):  # forward a row, then answer the one before it
        emitted.append(only(node.forward("x", rows(n, first_slot=n, x=X[:1]), Mode.TRAIN)))
        if n:
            node.backward("y", slots(emitted[n - 1]), {"x": f64([[1.0]])})
            node.accumulate()
    # Row 0 met no update, row 1 the one of row 0.
    assert node.staleness.counts.tolist() == [1, 1]
    node.backward("y", slots(emitted[2]), {"x": f64([[1.0]])})
    node.accumulate()
    assert node.staleness.counts.tolist() == [1, 2]


def test_the_answer_holds_no_gradient_where_nobody_before_wants_one():
    node = make("linear", floats(2), features=1, wants=())
    emitted = only(node.forward("x", rows(x=X), Mode.TRAIN))
    assert answered(node.backward("y", slots(emitted), {"x": np.ones((3, 1))})) == {
        0: None, 1: None, 2: None,
    }  # fmt: skip
    node.accumulate()
    assert node.gradients["weight"].tolist() == [[6.0], [10.5]]
    assert node.updates.rows == 3


def test_gradients_of_several_answers_add_up_before_one_accumulate():
    node = linear()
    emitted = only(node.forward("x", rows(x=X), Mode.TRAIN))
    for n in range(3):
        node.backward("y", slots(emitted)[n : n + 1], {"x": f64([[1.0]])})
    node.accumulate()
    assert node.gradients["weight"].tolist() == [[6.0], [10.5]]


def test_an_array_of_any_name_comes_in_and_its_gradient_bears_it():
    node = make("linear", floats(2, name="h"), features=1)
    emitted = only(node.forward("x", rows(h=X), Mode.TRAIN))
    answer = only(node.backward("y", slots(emitted), {"x": np.ones((3, 1))}))
    assert list(answer.gradient) == ["h"]


def test_parameters_depend_on_seed_and_name_alone():
    def weight(**given):
        node = make("linear", floats(4), features=2, **given)
        assert (np.abs(node.parameters["weight"]) <= 0.5).all()  # 1 / sqrt(4)
        return node.parameters["weight"].tolist()

    assert weight() == weight() == weight(verify=True)
    assert weight(seed=1) != weight()
    assert weight(name="other") != weight()


def test_a_synchronous_step_divides_by_the_examples_it_is_told():
    node = linear(updates=UpdatePolicy(Schedule.SYNCHRONOUS, update_every=1))
    node.step_for(4)
    assert node.version == 0  # without a gradient row there is no step
    emitted = only(node.forward("x", rows(x=X), Mode.TRAIN))
    node.backward("y", slots(emitted), {"x": np.ones((3, 1))})
    node.accumulate()
    assert node.version == 0
    node.step_for(4)
    np.testing.assert_allclose(node.parameters["weight"][:, 0], [1 - 0.15, 10 - 0.2625])
    assert (node.version, node.updates.rows) == (1, 0)


def test_the_features_of_several_axes_are_one_vector_the_last_counting_fastest():
    node = make("linear", floats(2, 2), features=1, bias=False)
    node.parameters["weight"][...] = [[1.0], [10.0], [100.0], [1000.0]]
    emitted = only(node.forward("x", rows(x=[[[1.0, 2.0], [3.0, 4.0]]]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[4321]]
    answers = node.backward("y", slots(emitted), {"x": f64([[2]])})
    assert answered(answers) == {0: {"x": [[2, 20], [200, 2000]]}}


@pytest.mark.parametrize(
    "given",
    [
        floats(),
        spec(("x", (2,), "int32")),
        spec(("x", (2,), "float32")),
        spec(("x", (2,), "float64"), ("y", (2,), "float64")),
    ],
)
def test_other_inputs_are_refused_with_what_they_are(given):
    with pytest.raises(ShapeMismatchError, match=r"one array float64\[rows, in, \.\.\.\], but is"):
        make("linear", given, features=1)


def test_a_width_of_zero_is_refused():
    with pytest.raises(BadOptionError, match=r"features: must be a whole number .above 0., not 0"):
        make("linear", floats(2), features=0)
