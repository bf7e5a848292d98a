"""layer_norm: each row to mean 0 and variance 1, then gain and bias."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import floats, make, only, rows, spec

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.rows.message import Mode


def norm(**given):
    node = make("layer_norm", floats(3), **given)
    node.parameters["gain"][...] = [1.0, 2.0, -0.5]
    node.parameters["bias"][...] = [0.0, 1.0, 3.0]
    return node


def test_a_row_is_shifted_and_scaled_by_its_own_mean_and_variance():
    node = make("layer_norm", floats(2), eps=5.0)
    # mean 3, variance 4, and 4 + 5 = 3^2
    emitted = only(node.forward("x", rows(x=[[1.0, 5.0]]), Mode.TRAIN))
    np.testing.assert_allclose(emitted.payload["x"], [[-2 / 3, 2 / 3]], rtol=1e-15)
    node.parameters["gain"][...] = [3.0, 6.0]
    node.parameters["bias"][...] = [1.0, -1.0]
    emitted = only(node.forward("x", rows(x=[[1.0, 5.0]]), Mode.EVALUATE))
    np.testing.assert_allclose(emitted.payload["x"], [[-1, 3]], rtol=1e-15)


def test_it_begins_with_gain_one_and_bias_zero():
    parameters = make("layer_norm", floats(2)).parameters
    assert {n: p.tolist() for n, p in parameters.items()} == {"gain": [1, 1], "bias": [0, 0]}


def test_a_constant_row_becomes_the_bias_and_stays_finite():
    emitted = only(norm().forward("x", rows(x=[[4.0, 4.0, 4.0]]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[0, 1, 3]]


def test_other_inputs_are_refused_with_what_they_are():
    with pytest.raises(ShapeMismatchError, match=r"float64\[rows, n\], but is given .*int32"):
        make("layer_norm", spec(("n", (), "int32")))
