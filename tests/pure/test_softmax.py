"""softmax: what is its own; `test_every_kind` holds the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kinds import answered, f64, floats, make, only, rows, slots, spec

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.rows.message import Mode


def test_value_and_gradient_are_those_worked_by_hand():
    node = make("softmax", floats(2))
    emitted = only(node.forward("x", rows(x=[[math.log(3), 0.0], [0.0, 0.0]]), Mode.TRAIN))
    np.testing.assert_allclose(emitted.payload["x"], [[0.75, 0.25], [0.5, 0.5]], rtol=1e-14)
    found = answered(node.backward("y", slots(emitted), {"x": f64([[16, 0], [5, 5]])}))
    # y * (g - sum(g * y)): sum = 12; 0.75 * 4 and 0.25 * -12. Equal gradients cancel.
    np.testing.assert_allclose(found[0]["x"], [3, -3], rtol=1e-13)
    np.testing.assert_allclose(found[1]["x"], [0, 0], atol=1e-15)


def test_large_inputs_do_not_overflow_and_shift_nothing():
    node = make("softmax", floats(2))
    emitted = only(node.forward("x", rows(x=[[1e4, -1e4], [1e4, 1e4]]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[1, 0], [0.5, 0.5]]


def test_it_goes_over_the_last_axis_of_every_array():
    node = make("softmax", spec(("a", (2, 4), "float64"), ("b", (5,), "float64")))
    emitted = only(node.forward("x", rows(a=np.zeros((1, 2, 4)), b=np.zeros((1, 5))), Mode.TRAIN))
    assert emitted.payload["a"].tolist() == [[[0.25] * 4] * 2]
    assert emitted.payload["b"].tolist() == [[0.2] * 5]


@pytest.mark.parametrize("given", [floats(), spec(("x", (2,), "int32"))])
def test_other_inputs_are_refused_with_what_they_are(given):
    with pytest.raises(ShapeMismatchError, match=r"float64\[rows, ..., n\], but is given"):
        make("softmax", given)
