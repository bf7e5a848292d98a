"""split: the features of one array by output port, and their gradients side by side again."""

from __future__ import annotations

import pytest
from kinds import OWN, answered, f64, floats, make, rows, slots, spec

from amp_runtime.errors import BadOptionError, ShapeMismatchError
from amp_runtime.rows.message import Mode

SIZES = {"b": 1, "a": 2}


def split(**given):
    return make("split", floats(3, name="h"), outputs=SIZES, **given)


def forward(node):
    emissions = node.forward("x", rows(first_slot=7, h=[[1.0, 2.0, 3.0]]), Mode.TRAIN)
    return {e.port: e.rows for e in emissions}


def test_each_output_gets_its_features_in_the_order_of_the_option_under_the_name_they_had():
    left = forward(split())
    assert {port: r.payload["h"].tolist() for port, r in left.items()} == {
        "b": [[1]],
        "a": [[2, 3]],
    }
    assert [left[p].columns[0, 0] for p in SIZES] == [OWN, OWN + 1]


@pytest.mark.parametrize(
    ("of_b", "of_a", "expected"),
    [
        ({"h": f64([[10]])}, {"h": f64([[20, 30]])}, {"h": [10, 20, 30]}),
        (None, {"h": f64([[20, 30]])}, {"h": [0, 20, 30]}),
        ({"h": f64([[10]])}, None, {"h": [10, 0, 0]}),
        (None, None, None),
    ],
)
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_gradients_are_joined_a_null_output_gives_zeros_and_only_nulls_give_null(
    of_b, of_a, expected, order
):
    node, given = split(), {"a": of_a, "b": of_b}
    left = forward(node)
    assert node.backward(order[0], slots(left[order[0]]), given[order[0]]) == ()
    last = node.backward(order[1], slots(left[order[1]]), given[order[1]])
    assert answered(last) == {7: expected}
    node.accumulate()
    node.assert_drained()


def test_sizes_that_do_not_add_up_are_refused_with_what_came():
    with pytest.raises(ShapeMismatchError, match=r"float64\[rows, 3\].*'b': 1, 'a': 2.*rows, 4"):
        make("split", floats(4), outputs=SIZES)
    with pytest.raises(ShapeMismatchError, match="takes one array"):
        make("split", spec(("h", (3,), "int32")), outputs=SIZES)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [({"a": 3}, "cuts nothing; name 2 or more"), ({"a": 0, "b": 3}, "'a' takes 0 features")],
)
def test_sizes_that_cut_nothing_are_refused(sizes, said):
    with pytest.raises(BadOptionError, match=said):
        make("split", floats(3), outputs=sizes)
