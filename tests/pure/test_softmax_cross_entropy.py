"""softmax_cross_entropy: sums over rows of -log softmax(x)[label]."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kinds import answered, differences, f64, floats, make, only, rows, spec, structure

from amp_runtime.errors import (
    BadOptionError,
    InvariantError,
    MissingStructureError,
    NodeError,
    ShapeMismatchError,
    UserFunctionError,
)
from amp_runtime.rows.message import Mode

LN = {n: math.log(n) for n in (2, 3, 4)}
X = f64([[0.0, 0.0], [LN[3], 0.0], [0.0, LN[3]]])


def loss(labels=None, classes=2, name="x", **given):
    arena = structure({n: {"label": [v]} for n, v in enumerate(labels or [0, 0, 0], start=1)})
    return make(
        "softmax_cross_entropy", floats(classes, name=name), name="loss", arena=arena, **given
    )


def metrics(node, mode=Mode.TRAIN):
    return {name: (m.total, m.count) for name, m in node.take_metrics(mode).items()}


def test_loss_accuracy_and_gradient_are_those_worked_by_hand():
    node = loss([0, 0, 0])
    answers = node.forward("x", rows([1, 2, 3], x=X), Mode.TRAIN)
    # p = [1/2, 1/2], [3/4, 1/4], [1/4, 3/4]; all labels are 0
    found = answered(answers)
    np.testing.assert_allclose(
        [found[n]["x"] for n in range(3)], [[-0.5, 0.5], [-0.25, 0.25], [-0.75, 0.75]], rtol=1e-14
    )
    sums = metrics(node)
    assert sums["loss"] == (pytest.approx(LN[2] + (LN[4] - LN[3]) + LN[4]), 0)
    assert sums["accuracy"] == (2, 3)


def test_the_gradient_bears_the_inputs_name():
    answer = only(loss([1], name="h").forward("x", rows(1, h=[[0.0, 0.0]]), Mode.TRAIN))
    assert {n: g.tolist() for n, g in answer.gradient.items()} == {"h": [[0.5, -0.5]]}


def test_gradients_match_finite_differences():
    x = np.random.default_rng(0).normal(size=(3, 4))
    node = loss([3, 0, 2], classes=4)
    found = answered(node.forward("x", rows([1, 2, 3], x=x), Mode.TRAIN))

    def total():
        fresh = loss([3, 0, 2], classes=4)
        fresh.forward("x", rows([1, 2, 3], x=x), Mode.EVALUATE)
        return metrics(fresh, Mode.EVALUATE)["loss"][0]

    expected = differences(total, x)
    np.testing.assert_allclose([found[n]["x"] for n in range(3)], expected, rtol=1e-7, atol=1e-9)


def test_large_inputs_do_not_overflow():
    node = loss([0, 1])
    answer = only(node.forward("x", rows([1, 2], x=[[1e4, 0.0], [1e4, 0.0]]), Mode.TRAIN))
    assert answer.gradient["x"].tolist() == [[0, 0], [1, -1]]
    assert metrics(node)["loss"] == (1e4, 0)


def test_a_row_may_have_the_label_of_its_own_element():
    arena = structure({1: {"label": [0, 1, 1]}})
    node = make("softmax_cross_entropy", floats(2), arena=arena, index="step")
    node.forward("x", rows(1, step=[2, 0], x=[[1.0, 0.0], [1.0, 0.0]]), Mode.TRAIN)
    assert metrics(node)["accuracy"] == (1, 2)  # labels 1 and 0


def test_evaluation_answers_null_and_keeps_metrics_of_its_own():
    node = loss()
    node.forward("x", rows([1], x=X[:1]), Mode.TRAIN)
    answers = node.forward("x", rows([2, 3], first_slot=5, x=X[1:]), Mode.EVALUATE)
    assert answered(answers) == {5: None, 6: None}
    assert metrics(node, Mode.TRAIN)["accuracy"] == (1, 1)
    assert metrics(node, Mode.EVALUATE)["accuracy"] == (1, 2)


def test_metrics_add_up_until_they_are_reset():
    node = loss()
    for _ in range(3):
        node.forward("x", rows([1, 2], x=X[:2]), Mode.TRAIN)
    before = metrics(node)
    assert before["accuracy"] == (6, 6)
    taken = node.take_metrics(Mode.TRAIN)
    node.reset_metrics()
    assert metrics(node) == {}
    assert taken["accuracy"].total == 6


def test_further_accuracies_are_over_chosen_rows_and_merged_classes():
    given = {
        "odd": {"rows": "state_functions:is_odd"},
        "binary": {"merge": [[0, 1], [3, 4]]},
        "odd_binary": {"rows": "state_functions:is_odd", "merge": [[0, 1], [3, 4]]},
    }
    node = loss([0, 2, 4, 3], classes=5, accuracies=given)
    x = f64(
        [
            [2, 1, 0, 2.2, 0],  # wrong by itself, right as 0 or 1: e^2 + e^1 > e^2.2 + e^0
            [0, 0, 9, 0, 0],  # right; in no group
            [0, 0, 9, 0, 1],  # wrong; right as 3 or 4, since 2 is in no group
            [9, 0, 0, 0, 0],  # wrong
        ]
    )
    node.forward("x", rows([1, 2, 3, 4], step=[1, 1, 2, 3], x=x), Mode.EVALUATE)
    sums = metrics(node, Mode.EVALUATE)
    assert sums["accuracy"] == (1, 4)
    assert sums["odd"] == (1, 3)
    assert sums["binary"] == (2, 3)
    assert sums["odd_binary"] == (1, 2)
    assert node.metric_names(node.options) == ("loss", "accuracy", "odd", "binary", "odd_binary")
    assert node.state_functions(node.options) == ["state_functions:is_odd"] * 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": {}}, "'loss' is no name"),
        ({"a": {"row": "x:y"}}, "accuracies.a: unknown key 'row' .did you mean 'rows'"),
        ({"a": {"rows": 3}}, "accuracies.a.rows: not a package.module:function"),
        ({"a": {"merge": [0, 1]}}, "accuracies.a.merge: .* is no list of lists"),
        ({"a": {"merge": [[0, 1], [1]]}}, "accuracies.a.merge: a class is in two groups"),
    ],
)
def test_further_accuracies_that_make_no_sense_are_refused(given, said):
    with pytest.raises(BadOptionError, match=said):
        loss(accuracies=given)


def test_a_merged_class_that_does_not_exist_is_refused():
    with pytest.raises(ShapeMismatchError, match=r"accuracies.a.merge': no class 2 of 2"):
        loss(accuracies={"a": {"merge": [[0], [2]]}})


def test_a_function_that_chooses_rows_returns_truth_values():
    node = loss(accuracies={"a": {"rows": "state_functions:real_numbers"}})
    with pytest.raises(UserFunctionError, match=r"real_numbers must return a truth value for"):
        node.forward("x", rows([1], x=X[:1]), Mode.TRAIN)


def test_rows_do_not_depend_on_their_company():
    labels = [1, 0, 1]
    node, single = loss(labels), loss(labels)
    together = answered(node.forward("x", rows([1, 2, 3], x=X), Mode.TRAIN))
    for n in range(3):
        alone = answered(single.forward("x", rows(n + 1, x=X[n : n + 1]), Mode.TRAIN))
        assert alone[0] == together[n]
    assert metrics(single)["loss"][0] == pytest.approx(metrics(node)["loss"][0], rel=1e-14)
    assert answered(node.forward("x", rows([], x=X[:0]), Mode.TRAIN)) == {}


def test_rows_that_want_no_gradient_are_answered_null():
    assert answered(loss(wants=()).forward("x", rows(1, x=X[:1]), Mode.TRAIN)) == {0: None}


def test_the_answer_brings_the_emitted_state_back_under_verify():
    sent = rows(2, step=6, first_slot=5, verify=True, x=X[:1])
    answer = only(loss(verify=True).forward("x", sent, Mode.TRAIN))
    assert answer.return_to.tolist() == [[3, 5, 2, 6]]


def test_nothing_is_kept_so_an_answer_is_a_bug():
    with pytest.raises(InvariantError, match="'loss' stamps no rows, but was answered"):
        loss().backward("y", rows(x=[1.0]).columns[:, 1], None)


@pytest.mark.parametrize("label", [2, -1])
def test_a_label_outside_the_classes_is_refused_with_its_instance(label):
    with pytest.raises(
        NodeError, match=rf"node 'loss' .*, instance 2: label {label} is outside 0 to 1"
    ):
        loss([0, label]).forward("x", rows([1, 2], x=X[:2]), Mode.TRAIN)


def test_a_row_without_structure_is_refused_with_its_state():
    with pytest.raises(MissingStructureError, match=r"instance 9, step 0.: no structure here"):
        loss().forward("x", rows(9, x=X[:1]), Mode.TRAIN)


def test_other_inputs_are_refused_with_what_they_are():
    for given in (floats(2, 2), floats(), spec(("x", (2,), "int32"))):
        with pytest.raises(ShapeMismatchError, match=r"takes one array float64\[rows, classes\]"):
            make("softmax_cross_entropy", given)
    with pytest.raises(ShapeMismatchError, match=r"no state column 'stop' in .instance:24, step:8"):
        make("softmax_cross_entropy", floats(2), index="stop")
