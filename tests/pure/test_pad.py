"""pad: zeros follow the features."""

from __future__ import annotations

import pytest
from kinds import answered, f64, floats, make, only, rows, slots, spec

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.rows.message import Mode
from workers.pad import Pad


def test_zeros_follow_the_features_and_the_gradient_is_cut_to_them():
    node = make("pad", floats(2, name="h"), features=4)
    out = only(node.forward("x", rows([1, 2], h=[[1.0, 2.0], [3.0, 4.0]]), Mode.TRAIN))
    assert out.payload["h"].tolist() == [[1, 2, 0, 0], [3, 4, 0, 0]]
    gradient = f64([[5, 6, 7, 8], [9, 10, 11, 12]])
    found = answered(node.backward("y", slots(out), {"h": gradient}))
    assert found == {0: {"h": [5, 6]}, 1: {"h": [9, 10]}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (floats(3), "rows of 3 features cannot be padded to 2; set features to 3 or more"),
        (floats(2, 2), "takes one array float64"),
        (spec(("x", (), "int32")), "takes one array float64"),
        (spec(("h", (1,), "float64"), ("c", (1,), "float64")), "takes one array"),
    ],
)
def test_what_it_cannot_widen_is_refused(given, message):
    with pytest.raises(ShapeMismatchError, match=message):
        Pad.infer(Pad.Options(2), {"x": given}, "float64")
