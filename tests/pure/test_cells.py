"""lstm and gru: steps worked by hand; `tests/peers` holds them against PyTorch's cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kinds import answered, f64, floats, make, only, rows, slots, spec

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.rows.message import Mode

LN3 = math.log(3)
"""sigmoid(ln 3) = 3/4 and sigmoid(-ln 3) = 1/4; tanh(ln 3) = 4/5."""


def vectors(**widths):
    return spec(*((name, (width,), "float64") for name, width in widths.items()))


def lstm(n_in=1, n=1, **options):
    return make("lstm", vectors(x=n_in, h=n, c=n), **options)


def gru(n_in=1, n=1):
    return make("gru", vectors(x=n_in, h=n))


def test_an_lstm_step_is_that_worked_by_hand():
    node = lstm()
    # x = 1 alone drives the gates i, f, g, o to 3/4, 1/4, 4/5 and 3/4.
    node.parameters["weight"][...] = [[LN3, -LN3, LN3, LN3], [0, 0, 0, 0]]
    node.parameters["bias"][...] = 0
    left = only(node.forward("x", rows(x=[[1.0]], h=[[7.0]], c=[[2.0]]), Mode.TRAIN))
    c = 0.25 * 2 + 0.75 * 0.8
    np.testing.assert_allclose(left.payload["c"], [[c]], rtol=1e-14)
    np.testing.assert_allclose(left.payload["h"], [[0.75 * math.tanh(c)]], rtol=1e-14)
    found = answered(node.backward("y", slots(left), {"c": f64([[1]])}))[0]
    np.testing.assert_allclose(found["c"], [0.25], rtol=1e-14)  # the forget gate
    # through i, f and g: 0.8 * 3/16 * ln 3, 2 * 3/16 * -ln 3, 0.75 * (1 - 0.64) * ln 3
    np.testing.assert_allclose(found["x"], [(0.15 - 0.375 + 0.27) * LN3], rtol=1e-13)
    assert found["h"] == [0]
    node.accumulate()
    expected = [0.15, 0.375, 0.27, 0]
    np.testing.assert_allclose(node.gradients["bias"], expected, rtol=1e-13)
    np.testing.assert_allclose(node.gradients["weight"], [expected, np.multiply(7, expected)])


def test_a_gru_step_is_that_worked_by_hand():
    node = gru()
    # r = 1/4, z = 3/4, n = tanh(0 + r * (h * 2 + 4)) = tanh(ln 3) for h = 2 ln 3 - 2
    node.parameters["weight"][...] = [[-LN3, LN3, 0], [0, 0, 2]]
    node.parameters["bias"][...] = 0
    node.parameters["bias_h"][...] = 4
    h = 2 * LN3 - 2
    left = only(node.forward("x", rows(x=[[1.0]], h=[[h]]), Mode.TRAIN))
    np.testing.assert_allclose(left.payload["h"], [[0.25 * 0.8 + 0.75 * h]], rtol=1e-14)
    answer = only(node.backward("y", slots(left), {"h": f64([[1]])}))
    # z * 1, and through the candidate: (1 - z) * (1 - 0.64) * r * 2
    np.testing.assert_allclose(answer.gradient["h"], [[0.75 + 0.25 * 0.36 * 0.25 * 2]], rtol=1e-14)
    node.accumulate()
    np.testing.assert_allclose(node.gradients["bias_h"], [0.25 * 0.36 * 0.25], rtol=1e-13)


def test_parameters_begin_within_their_bounds_and_the_forget_gate_open():
    parameters = lstm(3, 4).parameters
    assert {n: p.shape for n, p in parameters.items()} == {"weight": (7, 16), "bias": (16,)}
    assert 0.4 < np.abs(parameters["weight"]).max() <= 0.5  # 1 / sqrt(4)
    assert parameters["bias"].tolist() == [0] * 4 + [1] * 4 + [0] * 8
    assert lstm(3, 4, forget_bias=2.5).parameters["bias"][4:8].tolist() == [2.5] * 4
    parameters = gru(3, 4).parameters
    shapes = {n: p.shape for n, p in parameters.items()}
    assert shapes == {"weight": (7, 12), "bias": (12,), "bias_h": (4,)}
    assert all(0 < np.abs(p).max() <= 0.5 for p in parameters.values())


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_large_inputs_do_not_overflow(kind):
    node = lstm() if kind == "lstm" else gru()
    given = {"h": [[-1e4]]} | ({"c": [[1.0]]} if kind == "lstm" else {})
    left = only(node.forward("x", rows(x=[[1e4]], **given), Mode.TRAIN))
    assert all(np.isfinite(array).all() for array in left.payload.values())


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("lstm", floats(2)),
        ("lstm", vectors(x=2, h=3)),
        ("lstm", vectors(x=2, h=3, c=3, more=1)),
        ("lstm", spec(("x", (), "int32"), ("h", (3,), "float64"), ("c", (3,), "float64"))),
        ("gru", vectors(x=2, state=3)),
        ("gru", spec(("x", (2, 2), "float64"), ("h", (3,), "float64"))),
    ],
)
def test_other_inputs_are_refused_with_what_they_are_and_what_to_do(kind, given):
    wanted = r"takes \{x: float64\[rows, n\], h: float64\[rows, n\].*but is given \{.*a join"
    with pytest.raises(ShapeMismatchError, match=wanted):
        make(kind, given)


def test_an_lstm_whose_h_and_c_differ_in_width_is_refused():
    with pytest.raises(ShapeMismatchError, match=r"h and c are of one width, .*rows, 3.*rows, 4"):
        make("lstm", vectors(x=2, h=3, c=4))
