"""join: one payload of the arrays of several ports."""

from __future__ import annotations

import pytest
from kinds import SCHEMA, answered, f64, floats, make, only, rows, slots, spec

from amp_runtime.errors import SchemaMismatchError, ShapeMismatchError
from amp_runtime.rows.message import Mode
from amp_runtime.rows.spec import StateSchema

STATE = spec(("h", (2,), "float64"), ("c", (2,), "float64"))


def joined(**given):
    ports = {"x": floats(1, name="embedded"), "state": STATE}
    return make("join", ports, inputs=("x", "state"), **given)


def emitted(node):
    assert not node.forward("state", rows(first_slot=7, h=[[2.0, 3.0]], c=[[4.0, 5.0]]), Mode.TRAIN)
    return only(node.forward("x", rows(embedded=[[1.0]]), Mode.TRAIN))


def test_a_single_array_is_named_as_its_port_and_several_keep_their_names():
    left = emitted(joined())
    assert {name: a.tolist() for name, a in left.payload.items()} == {
        "x": [[1]], "h": [[2, 3]], "c": [[4, 5]],
    }  # fmt: skip


def test_each_port_gets_its_gradients_under_its_own_names():
    node = joined()
    gradient = {"h": f64([[20, 30]]), "x": f64([[10]]), "c": f64([[40, 50]])}
    found = answered(node.backward("y", slots(emitted(node)), gradient))
    assert found == {0: {"embedded": [10]}, 7: {"h": [20, 30], "c": [40, 50]}}


def test_a_port_of_whose_arrays_none_has_a_gradient_is_answered_null():
    node = joined()
    found = answered(node.backward("y", slots(emitted(node)), {"c": f64([[40, 50]])}))
    assert found == {0: None, 7: {"c": [40, 50]}}


def test_two_arrays_of_one_name_are_refused_with_both_ports():
    with pytest.raises(ShapeMismatchError, match=r"'h' comes on port 'h' and on port 'state'"):
        make("join", {"h": floats(1), "state": STATE}, inputs=("h", "state"))
    with pytest.raises(ShapeMismatchError, match=r"'h' comes on port 'a' and on port 'b'.*take"):
        make("join", {"a": STATE, "b": STATE}, inputs=("a", "b"))


def test_other_states_are_refused_with_both():
    other = StateSchema((*SCHEMA.columns, ("visit", 3)))
    with pytest.raises(SchemaMismatchError, match=r"'a' has state .*but port 'b' .*visit"):
        make("join", {"a": floats(1), "b": floats(1, schema=other)}, inputs=("a", "b"))
