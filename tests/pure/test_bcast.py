"""bcast: every output gets the row, and the sender the sum of the gradients, once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kinds import (
    OWN,
    answered,
    claim_duplicate_and_unknown_slots_are_refused,
    differences,
    f64,
    floats,
    make,
    rows,
    slots,
    spec,
)

from amp_runtime.rows.message import Mode

OUTPUTS = ("a", "b", "c")


def bcast(given=None, **options):
    return make("bcast", given or floats(2), outputs=OUTPUTS, **options)


def forward(node, mode=Mode.TRAIN, **arrays):
    emissions = node.forward("x", rows(first_slot=7, **arrays), mode)
    assert [e.port for e in emissions] == list(OUTPUTS)
    return {e.port: e.rows for e in emissions}


def back(node, port, emitted, gradient):
    answers = node.backward(port, slots(emitted), gradient)
    node.accumulate()
    return answered(answers)


def test_every_output_gets_the_row_with_a_slot_of_its_own():
    left = forward(bcast(), x=[[1.0, 2.0]])
    assert [left[p].payload["x"].tolist() for p in OUTPUTS] == [[[1, 2]]] * 3
    assert [left[p].columns[0, 0] for p in OUTPUTS] == [OWN, OWN + 1, OWN + 2]
    assert len({int(slots(left[p])[0]) for p in OUTPUTS}) == 3


@pytest.mark.parametrize("order", list(itertools.permutations(OUTPUTS)))
def test_the_sum_is_answered_with_the_last_answer_in_any_order(order):
    node = bcast()
    left = forward(node, x=[[1.0, 2.0]])
    gradient = {"a": f64([[1, 2]]), "b": f64([[10, 20]]), "c": f64([[100, 200]])}
    first, second, last = order
    assert back(node, first, left[first], {"x": gradient[first]}) == {}
    assert back(node, second, left[second], {"x": gradient[second]}) == {}
    assert back(node, last, left[last], {"x": gradient[last]}) == {7: {"x": [111, 222]}}
    node.assert_drained()


def test_null_and_gradient_is_gradient_and_only_nulls_are_null():
    node = bcast()
    left = forward(node, x=[[1.0, 2.0], [3.0, 4.0]])
    back(node, "a", left["a"], None)
    back(node, "b", left["b"].take(np.array([0])), {"x": f64([[5, 6]])})
    back(node, "b", left["b"].take(np.array([1])), None)
    assert back(node, "c", left["c"], None) == {7: {"x": [5, 6]}, 8: None}


def test_an_array_missing_from_an_answer_counts_as_zero():
    node = bcast(spec(("h", (1,), "float64"), ("c", (1,), "float64")))
    left = forward(node, h=[[1.0]], c=[[2.0]])
    back(node, "a", left["a"], {"h": f64([[3]])})
    back(node, "b", left["b"], {"c": f64([[4]]), "h": f64([[5]])})
    assert back(node, "c", left["c"], None) == {7: {"h": [8], "c": [4]}}


def test_whole_numbers_have_no_gradient():
    node = bcast(spec(("t", (), "int32"), ("x", (1,), "float64")))
    left = forward(node, t=[4], x=[[1.0]])
    for port in ("a", "b"):
        back(node, port, left[port], {"x": f64([[2]])})
    assert back(node, "c", left["c"], {"x": f64([[2]])}) == {7: {"x": [6]}}


def test_the_sum_is_null_where_nobody_before_wants_one():
    node = bcast(wants=())
    left = forward(node, x=[[1.0, 2.0]])
    for port in ("a", "b"):
        back(node, port, left[port], {"x": np.ones((1, 2))})
    assert back(node, "c", left["c"], {"x": np.ones((1, 2))}) == {7: None}


def test_gradients_match_finite_differences():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(3, 2))
    c = {port: generator.normal(size=(3, 2)) for port in OUTPUTS}
    node = bcast()
    left = forward(node, x=x)
    for port in ("c", "a"):
        back(node, port, left[port], {"x": c[port]})
    found = back(node, "b", left["b"], {"x": c["b"]})

    def loss():
        return sum(float((c[p] * r.payload["x"]).sum()) for p, r in forward(bcast(), x=x).items())

    expected = differences(loss, x)
    np.testing.assert_allclose([found[7 + n]["x"] for n in range(3)], expected, rtol=1e-7)


def test_swapped_answers_of_two_rows_keep_their_sums_apart():
    node = bcast()
    one, two = forward(node, x=[[1.0, 2.0]]), forward(node, x=[[3.0, 4.0]])
    for port in ("a", "b"):
        back(node, port, two[port], {"x": f64([[1, 1]])})
        back(node, port, one[port], {"x": f64([[5, 5]])})
    assert back(node, "c", two["c"], None) == {7: {"x": [2, 2]}}
    assert back(node, "c", one["c"], None) == {7: {"x": [10, 10]}}


def test_sums_start_at_zero_where_a_parent_position_is_used_again():
    node = bcast()
    for _ in range(300):
        left = forward(node, x=[[1.0, 2.0]])
        back(node, "a", left["a"], {"x": f64([[1, 2]])})
        back(node, "b", left["b"], None)
        assert back(node, "c", left["c"], None) == {7: {"x": [1, 2]}}


def test_duplicate_answers_and_unknown_slots_are_refused():
    node = bcast()
    claim_duplicate_and_unknown_slots_are_refused(
        node, lambda: forward(node, x=[[1.0, 2.0]])["a"], "a"
    )


def test_evaluation_keeps_addresses_only_and_answers_null():
    node = bcast()
    left = forward(node, Mode.EVALUATE, x=[[1.0, 2.0]])
    assert [left[p].payload["x"].tolist() for p in OUTPUTS] == [[[1, 2]]] * 3
    for port in ("a", "b"):
        assert back(node, port, left[port], None) == {}
    assert back(node, "c", left["c"], None) == {7: None}
    node.assert_drained()


def test_rows_that_are_owed_answers_are_named_when_nothing_is_in_flight():
    node = bcast()
    left = forward(node, x=[[1.0, 2.0]])
    for port in ("a", "b"):
        back(node, port, left[port], None)
    with pytest.raises(Exception, match=r"node 'bcast-1' .*1 rows are still in the stash and 1 "):
        node.assert_drained()


def test_rows_do_not_depend_on_their_company():
    x = np.arange(8.0).reshape(4, 2)
    together = forward(bcast(), x=x)
    assert len(forward(bcast(), x=x[:0])["a"]) == 0
    node = bcast()
    for n in range(4):
        assert forward(node, x=x[n : n + 1])["b"].payload["x"].tolist() == [x[n].tolist()]
    assert together["b"].payload["x"].tolist() == x.tolist()


def test_verify_brings_the_emitted_state_back():
    node = bcast(verify=True)
    sent = rows(1, step=[2, 3], first_slot=7, verify=True, x=[[1.0, 2.0], [3.0, 4.0]])
    left = {e.port: e.rows for e in node.forward("x", sent, Mode.TRAIN)}
    for port in OUTPUTS:
        assert left[port].origin.tolist() == [[1, 2], [1, 3]]
        node.check_origin(slots(left[port]), left[port].origin)
        answers = node.backward(port, slots(left[port]), None)
    assert answers[0].return_to.tolist() == [[3, 7, 1, 2], [3, 8, 1, 3]]
