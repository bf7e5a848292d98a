"""tanh and sigmoid: what is their own; `test_every_kind` holds the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kinds import answered, f64, floats, make, only, rows, slots, spec

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.rows.message import Mode

LN3 = math.log(3)
# tanh(ln 3) = (9 - 1) / (9 + 1); sigmoid(ln 3) = 3 / (1 + 3)
AT_LN3 = {"tanh": (0.8, 1 - 0.64), "sigmoid": (0.75, 0.75 * 0.25)}
LIMITS = {"tanh": [-1, 1], "sigmoid": [0, 1]}


@pytest.mark.parametrize("kind", AT_LN3)
def test_value_and_gradient_are_those_worked_by_hand(kind):
    node = make(kind, floats(1))
    emitted = only(node.forward("x", rows(x=[[LN3]]), Mode.TRAIN))
    value, slope = AT_LN3[kind]
    np.testing.assert_allclose(emitted.payload["x"], [[value]], rtol=1e-15)
    found = answered(node.backward("y", slots(emitted), {"x": f64([[10]])}))
    np.testing.assert_allclose(found[0]["x"], [10 * slope], rtol=1e-14)


@pytest.mark.parametrize("kind", AT_LN3)
def test_large_inputs_do_not_overflow(kind):
    emitted = only(make(kind, floats(2)).forward("x", rows(x=[[-1e4, 1e4]]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [LIMITS[kind]]


@pytest.mark.parametrize("kind", [*AT_LN3, "relu", "dropout"])
def test_whole_numbers_are_refused_with_what_they_are(kind):
    with pytest.raises(ShapeMismatchError, match=r"takes float64 arrays, but is given .*int32"):
        make(kind, spec(("x", (2,), "float64"), ("n", (), "int32")))
