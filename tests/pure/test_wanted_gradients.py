"""A kind that gives no gradient where parameters wait for one is named, not taken for null."""

from __future__ import annotations

import re

import pytest
from kinds import answered, floats, make, only, rows, slots, spec, structure

from amp_runtime.errors import NodeError
from amp_runtime.rows.message import Mode
from workers.add import Add
from workers.relu import Relu
from workers.squared_error import SquaredError


class ForgetfulRelu(Relu):
    def backpropagate(self, saved, gradient, wants_input):
        super().backpropagate(saved, gradient, wants_input)  # and no return


class HalfAnAdd(Add):
    def divide(self, positions, gradient):
        return [gradient, None]


class ForgetfulError(SquaredError):
    def measure(self, rows, wants_gradient):
        return super().measure(rows, False)


def answers_of(kind: type, wants: list[str] | None = None):
    """Return what a node of `kind` answers to one row of ones on each port."""
    ports = ("a", "b") if kind is HalfAnAdd else ("x",)
    options = {"inputs": ports} if kind is HalfAnAdd else {}
    node = make(
        f"{__name__}:{kind.__name__}",
        dict.fromkeys(ports, floats(2)),
        name="suspect",
        wants=wants,
        arena=structure({1: {"target": [[0.0, 0.0]]}}),
        **options,
    )
    for first_slot, port in enumerate(ports):
        given = rows(first_slot=first_slot, x=[[1.0, 1.0]])
        results = node.forward(port, given, Mode.TRAIN)
    if kind is ForgetfulError:
        return results
    return node.backward("y", slots(only(results)), {"x": only(results).payload["x"]})


@pytest.mark.parametrize(
    ("kind", "method", "port"),
    [
        (ForgetfulRelu, "backpropagate", "x"),
        (HalfAnAdd, "divide", "b"),
        (ForgetfulError, "measure", "x"),
    ],
)
def test_none_where_a_gradient_is_used_names_node_kind_method_and_port(kind, method, port):
    said = (
        rf"node 'suspect' \(kind {re.escape(__name__)}:{kind.__name__}\): {method} returned None "
        rf"for port '{port}', but parameters before it need"
    )
    with pytest.raises(NodeError, match=said):
        answers_of(kind)


def test_none_where_nobody_uses_a_gradient_is_null():
    assert answered(answers_of(ForgetfulRelu, wants=[])) == {0: None}
    assert answered(answers_of(ForgetfulError, wants=[])) == {0: None}
    assert answered(answers_of(HalfAnAdd, wants=["a"])) == {0: {"x": [2.0, 2.0]}, 1: None}


def test_whole_numbers_have_no_gradient_to_give():
    node = make("embedding", spec(("x", (), "int32")), entries=3, features=2)
    emitted = only(node.forward("x", rows(x=[1]), Mode.TRAIN))
    assert answered(node.backward("y", slots(emitted), {"x": emitted.payload["x"]})) == {0: None}
