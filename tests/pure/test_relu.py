"""relu: y = max(x, 0) over every array of a payload."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import answered, f64, floats, make, only, rows, slots, spec

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.rows.message import Mode

X = [[2.0, -3.0], [-5.0, 7.0], [-1.0, 0.5]]
TWO_ARRAYS = spec(("h", (2,), "float64"), ("c", (2, 2), "float64"))


def relu(**given):
    return make("relu", floats(2), **given)


def test_negative_values_become_zero_and_pass_no_gradient():
    node = relu()
    emitted = only(node.forward("x", rows(x=[[2.0, -3.0], [0.0, 7.0]]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[2, 0], [0, 7]]
    answers = node.backward("y", slots(emitted), {"x": f64([[10, 20], [30, 40]])})
    assert answered(answers) == {0: {"x": [10, 0]}, 1: {"x": [0, 40]}}


def test_an_array_without_a_gradient_has_none_before_either():
    node = make("relu", TWO_ARRAYS)
    c = np.arange(-2.0, 2.0).reshape(1, 2, 2)
    emitted = only(node.forward("x", rows(h=[[1.0, -1.0]], c=c), Mode.TRAIN))
    assert emitted.payload["c"].tolist() == [[[0, 0], [0, 1]]]
    answers = node.backward("y", slots(emitted), {"c": np.ones((1, 2, 2))})
    assert answered(answers) == {0: {"c": [[0, 0], [0, 1]]}}


def test_the_answer_holds_no_gradient_where_nobody_before_wants_one():
    node = relu(wants=())
    emitted = only(node.forward("x", rows(x=X), Mode.TRAIN))
    answers = node.backward("y", slots(emitted), {"x": np.ones((3, 2))})
    assert answered(answers) == {0: None, 1: None, 2: None}


def test_other_dtypes_are_refused_with_what_they_are():
    with pytest.raises(ShapeMismatchError, match=r"takes float64 arrays, but is given .*int32"):
        make("relu", spec(("x", (2,), "float64"), ("n", (), "int32")))
