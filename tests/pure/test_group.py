"""group: rows of one key become one row when as many have come as it expects."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kinds import OWN, answered, f64, floats, make, only, rows, slots, spec, structure

from amp_runtime.errors import (
    BadOptionError,
    DuplicateStateError,
    GroupSizeError,
    InvariantError,
    KeyOverflowError,
    SchemaMismatchError,
    ShapeMismatchError,
    UserFunctionError,
)
from amp_runtime.rows.message import Mode, Rows
from amp_runtime.rows.spec import StateSchema

BY_FOUR = "state_functions:by_four"
PLACE = "state_functions:place_of_four"
N_CHILDREN = "state_functions:n_children"
NODES = StateSchema((("instance", 24), ("node", 3)))


def group(reduce="sum", count=3, given=None, *, n_children=(), **options):
    """A group of rows of step // 4, placed by step % 4."""
    arena = structure({1: {"n_children": list(n_children)}}) if n_children else None
    options = {"key": BY_FOUR, "position": PLACE, **options}
    return make("group", given or floats(2), reduce=reduce, count=count, arena=arena, **options)


def announced(reduce="sum", n_children=(2, 0), **options):
    arrays = (("x", (1,), "float64"), ("t", (), "int32"))
    return make(
        "group",
        {"x": floats(2), "key": spec(*arrays, schema=NODES)},
        reduce=reduce,
        key="state_functions:to_node",
        count="state_functions:n_children_of_node",
        announced=True,
        passes={"x": "h"},
        arena=structure({1: {"n_children": list(n_children)}}),
        **options,
    )


def keys(*nodes, first_slot=50):
    given = rows(1, nodes, first_slot=first_slot, x=[[10.0 * n] for n in nodes])
    return Rows(given.columns, {**given.payload, "t": np.zeros(len(nodes), np.int32)}, 2)


THREE = {0: [1.0, 20.0], 1: [2.0, -5.0], 2: [3.0, 30.0]}
"""Rows of one group, by position."""


def send(node, *steps, instance=1, mode=Mode.TRAIN):
    """Send rows of THREE, slots = steps."""
    given = rows(instance, steps, x=[THREE.get(s % 4, [0.0, 0.0]) for s in steps])
    columns = given.columns.copy()
    columns[:, 1] = steps
    return node.forward("x", Rows(columns, given.payload, 2), mode)


EXPECTED = {
    "stack": [[1, 20], [2, -5], [3, 30]],
    "sum": [6, 45],
    "mean": [2, 15],
    "max": [3, 30],
}
GRADIENTS = {  # of (10, 100) for each feature that leaves
    "sum": {0: [10, 100], 1: [10, 100], 2: [10, 100]},
    "mean": {0: [10 / 3, 100 / 3], 1: [10 / 3, 100 / 3], 2: [10 / 3, 100 / 3]},
    "max": {0: [0, 0], 1: [0, 0], 2: [10, 100]},
}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("reduce", list(EXPECTED))
def test_the_row_leaves_with_the_last_member_whatever_the_order(reduce, order):
    node = group(reduce)
    assert send(node, order[0]) == send(node, order[1]) == ()
    assert node.waiting == 1
    emitted = only(send(node, order[2]))
    assert emitted.payload["x"].tolist() == [EXPECTED[reduce]]
    assert emitted.state.tolist() == [[1, 0]]
    assert emitted.columns[:, 0].tolist() == [OWN]
    assert node.waiting == 0


@pytest.mark.parametrize("reduce", list(GRADIENTS))
def test_members_get_their_gradients(reduce):
    node = group(reduce)
    emitted = only(send(node, 2, 0, 1))
    found = answered(node.backward("y", slots(emitted), {"x": f64([[10, 100]])}))
    assert found == {slot: {"x": g} for slot, g in GRADIENTS[reduce].items()}
    node.accumulate()
    node.assert_drained()


def test_a_stack_gives_each_member_its_row_of_the_gradient():
    node = group("stack")
    emitted = only(send(node, 1, 2, 0))
    gradient = {"x": f64([[[1, 2], [3, 4], [5, 6]]])}
    found = answered(node.backward("y", slots(emitted), gradient))
    assert found == {0: {"x": [1, 2]}, 1: {"x": [3, 4]}, 2: {"x": [5, 6]}}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("position", [PLACE, None])
def test_of_equal_maxima_the_first_gets_the_gradient(order, position):
    node = group("max", given=floats(1), position=position)
    for step in order:
        results = node.forward("x", rows(1, step, first_slot=step, x=[[7.0]]), Mode.TRAIN)
    found = answered(node.backward("y", slots(only(results)), {"x": f64([[5]])}))
    assert found == {0: {"x": [5]}, 1: {"x": [0]}, 2: {"x": [0]}}


def test_without_a_position_members_are_in_the_order_of_their_states():
    node = group("stack", position=None)
    send(node, 2)
    emitted = only(send(node, 1, 0))
    assert emitted.payload["x"].tolist() == [EXPECTED["stack"]]


def test_groups_do_not_mix_and_leave_each_when_it_is_complete():
    node = group("sum", N_CHILDREN, n_children=(2, 1, 3))
    emitted = only(send(node, 0, 4, 8, 9))
    assert emitted.state.tolist() == [[1, 1]]
    emitted = only(send(node, 10, 1))
    left = dict(zip(emitted.state[:, 1].tolist(), emitted.payload["x"].tolist(), strict=True))
    assert left == {0: [3, 15], 2: [6, 45]}


# ------------------------------------------------------------------------ the port `key`


def test_a_group_waits_for_its_announcement_and_a_group_of_none_leaves_with_it():
    node = announced()
    assert send(node, 0, 1) == ()
    emitted = only(node.forward("key", keys(1), Mode.TRAIN))
    assert emitted.state.tolist() == [[1, 1]]
    assert emitted.payload["x"].tolist() == [[0, 0]]
    emitted = only(node.forward("key", keys(0), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[3, 15]]
    assert node.context.outputs["y"].schema == NODES


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_the_announcing_row_passes_along_and_gets_its_gradient(reduce):
    node = announced(reduce)
    first = only(node.forward("key", keys(0, 1), Mode.TRAIN))
    second = only(send(node, 0, 1))
    assert first.payload["h"].tolist() == [[10]]
    assert second.payload["h"].tolist() == [[0]]
    gradient = {"h": f64([[7]]), "x": f64([[1, 1]])}
    assert answered(node.backward("y", slots(first), gradient)) == {51: {"x": [7]}}
    found = answered(node.backward("y", slots(second), {"h": f64([[8]])}))
    assert found == {0: None, 1: None, 50: {"x": [8]}}
    node.accumulate()
    node.assert_drained()


def test_the_announcing_row_gets_null_where_its_arrays_are_not_named():
    node = announced(n_children=(2, 0))
    emitted = only(node.forward("key", keys(1), Mode.TRAIN))
    assert answered(node.backward("y", slots(emitted), {"x": f64([[1, 1]])})) == {50: None}


def test_without_an_announcement_an_expected_count_of_zero_is_an_error_by_name():
    node = group("sum", N_CHILDREN, n_children=(0,))
    with pytest.raises(UserFunctionError, match=r"'group-1' .*step 0\): .*returned 0, less than 1"):
        send(node, 0)


# ------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("batches", [[(0, 1, 2)], [(0,), (1,), (2,)], [(2, 1), (0,)]])
def test_a_member_too_many_is_refused_until_the_group_was_answered(batches):
    node = group("sum", 2, position=None)
    for steps in batches[:-1]:
        send(node, *steps)
    with pytest.raises(GroupSizeError, match=r"'x', row with state .*: a member more than the 2 "):
        send(node, *batches[-1])


def test_a_member_of_an_announced_group_of_none_is_refused():
    node = announced()
    with pytest.raises(GroupSizeError, match="a member more than the 0 that its group expects"):
        send(node, 4)


def test_two_members_at_one_position_are_refused():
    node = group("sum", position="state_functions:thirds")
    for send_both in (lambda: send(node, 0, 3), lambda: (send(node, 4), send(node, 7))):
        with pytest.raises(DuplicateStateError, match=r"a second member at position [01] of its"):
            send_both()


def test_two_members_of_one_state_are_refused():
    node = group("sum", position=None)
    send(node, 0, 1)
    with pytest.raises(DuplicateStateError, match=r"step 0\): two members of one group have the"):
        send(node, 1)


def test_a_group_announced_twice_is_refused():
    node = announced()
    node.forward("key", keys(0), Mode.TRAIN)
    with pytest.raises(DuplicateStateError, match=r"port 'key', .*node 0\): a second row that ann"):
        node.forward("key", keys(0), Mode.TRAIN)
    with pytest.raises(DuplicateStateError, match="a second row that announces"):
        announced().forward("key", keys(1, 1), Mode.TRAIN)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"position": "state_functions:negative"}, "negative returned -5, less than 0"),
        ({"count": 1}, "place_of_four returned 1 in a group of 1 rows"),
        ({"count": "state_functions:real_numbers"}, r"returned float64\[1\], not int\[1\]"),
        ({"key": "state_functions:one_number"}, "returned int, not a dict of columns"),
        ({"key": "state_functions:raises"}, "raised KeyError"),
    ],
)
def test_functions_that_do_not_tell_are_refused_by_name(options, said):
    with pytest.raises(UserFunctionError, match=rf"node 'group-1' \(kind group\).*{said}"):
        send(group(**options), 0, 1)


def test_a_key_outside_its_bits_is_refused():
    with pytest.raises(KeyOverflowError, match=r"'node' holds 8, outside its 3 bits"):
        send(announced(), 32)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": 0}, "count: a group of 0 rows never leaves"),
        ({"reduce": "stack", "count": N_CHILDREN}, "count: a stack is of a fixed number"),
        ({"passes": {"x": "h"}}, "passes: needs announced"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, said):
    with pytest.raises(BadOptionError, match=said):
        group(**options)


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(ShapeMismatchError, match="takes float64 arrays"):
        group(given=spec(("t", (), "int32")))
    with pytest.raises(SchemaMismatchError, match=r"groups have state .*but port 'key' .*node:3"):
        announced(columns={"node": 4})
    for passes in ({"y": "h"}, {"x": "x"}):
        with pytest.raises(ShapeMismatchError, match=r"option 'passes': '[xy]' cannot leave as"):
            make(
                "group",
                {"x": floats(2), "key": floats(1)},
                reduce="sum",
                key=BY_FOUR,
                count=1,
                announced=True,
                passes=passes,
            )


def test_groups_that_wait_for_ever_are_counted_when_nothing_is_in_flight():
    node = group("sum")
    send(node, 0, 4)
    with pytest.raises(InvariantError, match=r"node 'group-1' .*2 rows are still.*2 keys wait"):
        node.assert_drained()


def test_evaluation_does_not_disturb_training_rows_that_wait():
    node = group("sum")
    send(node, 0, 1)
    evaluated = only(send(node, 0, 1, 2, instance=2, mode=Mode.EVALUATE))
    assert answered(node.backward("y", slots(evaluated), None)) == dict.fromkeys(range(3))
    node.accumulate()
    assert only(send(node, 2)).payload["x"].tolist() == [[6, 45]]


def test_a_group_of_nan_goes_on_with_nan():
    node = group("max", 1, given=floats(1))
    emitted = only(node.forward("x", rows(1, 0, x=[[np.nan]]), Mode.TRAIN))
    assert np.isnan(emitted.payload["x"]).all()
    assert answered(node.backward("y", slots(emitted), {"x": f64([[1]])})) == {0: {"x": [1]}}
