"""concat: rows of equal states side by side, whoever comes first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kinds import (
    OWN,
    SCHEMA,
    answered,
    claim_duplicate_and_unknown_slots_are_refused,
    differences,
    f64,
    floats,
    make,
    only,
    rows,
    slots,
    spec,
)

from amp_runtime.errors import (
    DuplicateStateError,
    KeyOverflowError,
    SchemaMismatchError,
    ShapeMismatchError,
)
from amp_runtime.rows.message import Mode
from amp_runtime.rows.spec import StateSchema

PORTS = {"a": floats(1, name="h"), "b": floats(2), "c": floats(1)}


def concat(ports=("a", "b"), **given):
    return make("concat", {p: PORTS[p] for p in ports}, inputs=ports, **given)


def both(node, instance=1, mode=Mode.TRAIN):
    node.forward("a", rows(instance, first_slot=0, h=[[1.0]]), mode)
    return only(node.forward("b", rows(instance, first_slot=10, x=[[2.0, 3.0]]), mode))


def test_a_row_leaves_when_all_ports_have_its_state():
    node = concat()
    assert node.forward("a", rows([1, 2], first_slot=0, h=[[1.0], [2.0]]), Mode.TRAIN) == ()
    assert node.waiting == 2
    emitted = only(
        node.forward("b", rows([2, 3], first_slot=10, x=[[20.0, 21.0], [30.0, 31.0]]), Mode.TRAIN)
    )
    assert emitted.payload["x"].tolist() == [[2, 20, 21]]
    assert emitted.state.tolist() == [[2, 0]]
    assert emitted.columns[:, 0].tolist() == [OWN]
    assert node.waiting == 2


def test_each_port_gets_its_part_of_the_gradient_under_its_own_name():
    node = concat()
    emitted = both(node)
    answers = node.backward("y", slots(emitted), {"x": f64([[100, 200, 300]])})
    assert answered(answers) == {0: {"h": [100]}, 10: {"x": [200, 300]}}
    node.accumulate()
    assert node.stash.used == 0
    node.assert_drained()


def test_rows_leave_in_the_order_in_which_the_last_port_brought_them():
    node = concat()
    node.forward("a", rows([1, 2, 3], h=[[1.0], [2.0], [3.0]]), Mode.TRAIN)
    emitted = only(node.forward("b", rows([3, 1, 2], x=np.ones((3, 2))), Mode.TRAIN))
    assert emitted.payload["x"][:, 0].tolist() == [3, 1, 2]


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_any_order_of_ports_gives_one_row_with_the_parts_in_order_of_ports(order):
    node = concat(("a", "b", "c"))
    parts = {"a": {"h": [[1.0]]}, "b": {"x": [[2.0, 3.0]]}, "c": {"x": [[4.0]]}}
    *early, late = order
    for port in early:
        assert node.forward(port, rows(**parts[port]), Mode.TRAIN) == ()
    emitted = only(node.forward(late, rows(**parts[late]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[1, 2, 3, 4]]


def test_gradients_match_finite_differences():
    generator = np.random.default_rng(1)
    h, x, c = (generator.normal(size=(3, n)) for n in (1, 2, 3))

    def emitted(node):
        node.forward("a", rows([1, 2, 3], first_slot=0, h=h), Mode.TRAIN)
        return only(node.forward("b", rows([1, 2, 3], first_slot=10, x=x), Mode.TRAIN))

    def loss():
        return float((c * emitted(concat()).payload["x"]).sum())

    node = concat()
    found = answered(node.backward("y", slots(emitted(node)), {"x": c}))
    np.testing.assert_allclose([found[n]["h"] for n in range(3)], differences(loss, h), rtol=1e-8)
    by_b = [found[10 + n]["x"] for n in range(3)]
    np.testing.assert_allclose(by_b, differences(loss, x), rtol=1e-8)


def test_swapped_answers_go_to_their_own_rows():
    node = concat()
    node.forward("a", rows([1, 2], first_slot=0, h=[[1.0], [2.0]]), Mode.TRAIN)
    emitted = only(node.forward("b", rows([1, 2], first_slot=10, x=np.ones((2, 2))), Mode.TRAIN))
    for n in (1, 0):
        gradient = {"x": f64([[n, 10 + n, 20 + n]])}
        found = answered(node.backward("y", slots(emitted)[n : n + 1], gradient))
        assert found == {n: {"h": [n]}, 10 + n: {"x": [10 + n, 20 + n]}}
        node.accumulate()
        assert node.stash.used == n


def test_null_rows_answer_null_on_every_port():
    node = concat()
    assert answered(node.backward("y", slots(both(node)), None)) == {0: None, 10: None}


def test_a_port_that_wants_no_gradient_gets_null():
    node = concat(wants=("b",))
    answers = node.backward("y", slots(both(node)), {"x": np.ones((1, 3))})
    assert answered(answers) == {0: None, 10: {"x": [1, 1]}}


def test_duplicate_answers_and_unknown_slots_are_refused():
    node, instances = concat(), itertools.count(1)
    claim_duplicate_and_unknown_slots_are_refused(node, lambda: both(node, next(instances)))


def test_a_second_row_with_one_state_on_one_port_is_refused_by_name():
    node = concat()
    node.forward("a", rows(1, step=4, h=[[1.0]]), Mode.TRAIN)
    with pytest.raises(DuplicateStateError, match="node 'concat-1', port 'a': a second row"):
        node.forward("a", rows(1, step=4, h=[[1.0]]), Mode.TRAIN)


def test_evaluation_keeps_addresses_only_and_answers_null():
    node = concat()
    emitted = both(node, mode=Mode.EVALUATE)
    assert emitted.payload["x"].tolist() == [[1, 2, 3]]
    assert answered(node.backward("y", slots(emitted), None)) == {0: None, 10: None}
    node.accumulate()
    node.assert_drained()


def test_evaluation_does_not_disturb_training_rows_that_wait():
    node = concat()
    node.forward("a", rows(1, h=[[1.0]]), Mode.TRAIN)
    both(node, instance=2, mode=Mode.EVALUATE)
    emitted = only(node.forward("b", rows(1, x=[[2.0, 3.0]]), Mode.TRAIN))
    assert emitted.state[:, 0].tolist() == [1]


def test_rows_do_not_depend_on_their_company():
    x, h = np.arange(8.0).reshape(4, 2), np.arange(4.0).reshape(4, 1)
    many, single = concat(), concat()
    assert many.forward("a", rows([], h=h[:0]), Mode.TRAIN) == ()
    many.forward("a", rows(range(4), h=h), Mode.TRAIN)
    together = only(many.forward("b", rows(range(4), x=x), Mode.TRAIN))
    for n in range(4):
        single.forward("a", rows(n, h=h[n : n + 1]), Mode.TRAIN)
        alone = only(single.forward("b", rows(n, x=x[n : n + 1]), Mode.TRAIN))
        assert alone.payload["x"][0].tolist() == together.payload["x"][n].tolist()


def test_verify_brings_the_emitted_state_back_to_each_port():
    node = concat(verify=True)
    a = rows(1, step=2, first_slot=0, verify=True, h=[[1.0]])
    b = rows(1, step=2, first_slot=10, verify=True, x=[[2.0, 3.0]])
    node.forward("a", a, Mode.TRAIN)
    emitted = only(node.forward("b", b, Mode.TRAIN))
    assert emitted.origin.tolist() == [[1, 2]]
    node.check_origin(slots(emitted), emitted.origin)
    to_a, to_b = node.backward("y", slots(emitted), None)
    assert to_a.return_to.tolist() == [[3, 0, 1, 2]]
    assert to_b.return_to.tolist() == [[3, 10, 1, 2]]


def test_a_state_outside_its_bits_is_refused_by_column():
    with pytest.raises(KeyOverflowError, match=r"column 'step' holds 256, outside its 8 bits"):
        concat().forward("a", rows(1, step=256, h=[[1.0]]), Mode.TRAIN)


def test_rows_that_wait_for_ever_are_named_when_nothing_is_in_flight():
    node = concat()
    node.forward("a", rows(1, h=[[1.0]]), Mode.TRAIN)
    with pytest.raises(Exception, match=r"node 'concat-1' .*1 rows are still.*1 keys wait"):
        node.assert_drained()


def test_inputs_of_other_shapes_or_states_are_refused_with_both():
    other = StateSchema((*SCHEMA.columns, ("visit", 3)))
    with pytest.raises(SchemaMismatchError, match=r"'a' has state .*step:8\), but port 'b' .*vis"):
        make("concat", {"a": floats(1), "b": floats(1, schema=other)}, inputs=("a", "b"))
    with pytest.raises(ShapeMismatchError, match=r"port 'b' takes one array float64\[rows, n\]"):
        make("concat", {"a": floats(1), "b": spec(("x", (), "int32"))}, inputs=("a", "b"))
