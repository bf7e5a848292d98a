"""flatmap and ungroup: as many rows for each as its state tells, with states of their own."""

from __future__ import annotations

import pytest
from kinds import OWN, answered, f64, floats, make, rows, slots, spec, structure

from amp_runtime.errors import (
    BadOptionError,
    KeyOverflowError,
    SchemaMismatchError,
    ShapeMismatchError,
    UserFunctionError,
)
from amp_runtime.rows.message import Answer, Emission, Mode
from amp_runtime.rows.spec import StateSchema

N_CHILDREN = "state_functions:n_children"
CHILDREN = "state_functions:children"
EDGES = {"state": "state_functions:edges", "columns": {"edge": 5}}


def arena(*n_children, instance=1):
    return structure({instance: {"n_children": list(n_children)}})


def flatmap(*n_children, **options):
    options = {"count": N_CHILDREN, "state": CHILDREN, **options}
    return make("flatmap", floats(2), arena=arena(*n_children), **options)


def ungroup(**options):
    return make("ungroup", floats(3, 1), **{**EDGES, **options})


def forward(node, mode=Mode.TRAIN, steps=(0, 1, 2), **arrays):
    """Return what was answered at once, and the rows that left."""
    results = node.forward("x", rows(1, step=steps, first_slot=7, **arrays), mode)
    at_once = answered([r for r in results if isinstance(r, Answer)])
    emitted = [r.rows for r in results if isinstance(r, Emission)]
    return at_once, emitted[0] if emitted else None


THREE = {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]}


@pytest.mark.parametrize("mode", list(Mode))
def test_each_child_has_the_payload_of_its_row_and_a_state_and_slot_of_its_own(mode):
    at_once, left = forward(flatmap(2, 0, 1), mode, **THREE)
    assert left.state.tolist() == [[1, 0], [1, 1], [1, 20]]
    assert left.payload["x"].tolist() == [[1, 2], [1, 2], [5, 6]]
    assert left.columns[:, 0].tolist() == [OWN] * 3
    assert len(set(slots(left).tolist())) == 3
    assert at_once == {8: None}


def test_a_row_is_answered_with_the_sum_when_its_last_child_is():
    node = flatmap(2, 0, 1)
    _, left = forward(node, **THREE)
    mine = slots(left)
    assert answered(node.backward("y", mine[[2, 0]], {"x": f64([[7, 8], [1, 2]])})) == {
        9: {"x": [7, 8]}
    }
    assert answered(node.backward("y", mine[1:2], {"x": f64([[10, 20]])})) == {7: {"x": [11, 22]}}
    node.accumulate()
    node.assert_drained()


def test_without_any_child_all_is_answered_at_once_and_nothing_leaves():
    node = flatmap(0, 0, 0)
    at_once, left = forward(node, **THREE)
    assert (at_once, left) == ({7: None, 8: None, 9: None}, None)
    node.assert_drained()


def test_the_columns_that_leave_may_be_others():
    node = make("flatmap", floats(1), count=2, **EDGES)
    assert node.context.outputs["y"].schema == StateSchema((("instance", 24), ("edge", 5)))
    _, left = forward(node, steps=(0, 2), x=[[1.0], [2.0]])
    assert left.state.tolist() == [[1, 0], [1, 1], [1, 6], [1, 7]]
    assert left.columns.shape[1] == 4


def test_ungroup_cuts_the_first_axis_and_puts_gradients_back_in_place():
    node = ungroup()
    _, left = forward(node, steps=(1,), x=[[[1.0], [2.0], [3.0]]])
    assert left.state.tolist() == [[1, 3], [1, 4], [1, 5]]
    assert left.payload["x"].tolist() == [[1], [2], [3]]
    mine = slots(left)
    node.backward("y", mine[2:], {"x": f64([[30]])})
    node.backward("y", mine[:1], None)
    assert answered(node.backward("y", mine[1:2], {"x": f64([[20]])})) == {
        7: {"x": [[0], [20], [30]]}
    }
    node.accumulate()
    node.assert_drained()


def test_rows_that_ungroup_leaves_out_have_no_gradient():
    node = ungroup(count=N_CHILDREN, arena=arena(2, 0))
    at_once, left = forward(node, steps=(0, 1), x=[[[1.0], [2.0], [3.0]]] * 2)
    assert at_once == {8: None}
    assert left.payload["x"].tolist() == [[1], [2]]
    answers = node.backward("y", slots(left), {"x": f64([[10], [20]])})
    assert answered(answers) == {7: {"x": [[10], [20], [0]]}}


def test_answers_that_are_all_null_are_null():
    for node, arrays in ((flatmap(1, 2, 3), THREE), (ungroup(), {"x": f64([[[1], [2], [3]]] * 3)})):
        _, left = forward(node, **arrays)
        assert answered(node.backward("y", slots(left), None)) == {7: None, 8: None, 9: None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": "state_functions:negative"}, r"negative returned -5, less than 0"),
        ({"count": "state_functions:real_numbers"}, r"returned float64\[3\], not int\[3\]"),
        ({"state": "state_functions:one_number"}, "returned int, not a dict of columns"),
        ({"state": "state_functions:edges"}, "changes 'edge', which is no column it may change"),
        (
            {"state": "state_functions:nothing", "columns": {"edge": 5}},
            "does not return 'edge', a column that did not come",
        ),
    ],
)
def test_functions_that_do_not_tell_are_refused_by_name(options, said):
    with pytest.raises(UserFunctionError, match=rf"node 'flatmap-1' \(kind flatmap\).*{said}"):
        forward(flatmap(1, 1, 1, **options), **THREE)


def test_more_rows_than_came_are_refused_with_the_state():
    node = ungroup(count=N_CHILDREN, arena=arena(3, 4))
    with pytest.raises(UserFunctionError, match=r"step 1\): .* returned 4, more than the 3 rows"):
        forward(node, steps=(0, 1), x=[[[1.0], [2.0], [3.0]]] * 2)


def test_a_state_outside_its_bits_is_refused():
    with pytest.raises(KeyOverflowError, match=r"'edge' holds 38, outside its 5 bits"):
        forward(ungroup(), steps=(12,), x=[[[1.0], [2.0], [3.0]]])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"instance": 3}, "'instance' leaves as it came"),
        ({"edge": 32}, "'edge' has 32 bits, not 1 to 31"),
        ({"edge": 31, "node": 20}, "takes 75 bits, more than 63"),
    ],
)
def test_columns_that_cannot_leave_are_refused(columns, said):
    with pytest.raises(SchemaMismatchError, match=f"option 'columns': .*{said}"):
        make("ungroup", floats(3), state=CHILDREN, columns=columns)


def test_what_cannot_be_cut_is_refused():
    for given in (floats(), spec(("h", (2,), "float64"), ("c", (3,), "float64"))):
        with pytest.raises(ShapeMismatchError, match="of one size, but is given"):
            make("ungroup", given, state=CHILDREN)
    with pytest.raises(BadOptionError, match="count: 0 children, less than 1"):
        flatmap(1, count=0)
