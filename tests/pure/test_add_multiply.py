"""add and multiply: rows of equal states, element by element, whoever comes first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kinds import (
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

from amp_runtime.errors import DuplicateStateError, SchemaMismatchError, ShapeMismatchError
from amp_runtime.rows.message import Mode
from amp_runtime.rows.spec import StateSchema

KINDS = ("add", "multiply")
PARTS = {"a": [[2.0, 3.0]], "b": [[5.0, 0.0]], "c": [[-1.0, 4.0]]}
TOGETHER = {"add": [[6, 7]], "multiply": [[-10, 0]]}
# of 10 * y0 + 100 * y1: ones; the product of the other factors, also where one is zero
GRADIENTS = {
    "add": {"a": [10, 100], "b": [10, 100], "c": [10, 100]},
    "multiply": {"a": [-50, 0], "b": [-20, 1200], "c": [100, 0]},
}


def joining(kind, ports="abc", **given):
    return make(kind, dict.fromkeys(ports, floats(2)), inputs=tuple(ports), **given)


def send_all(node, order, mode=Mode.TRAIN, parts=PARTS, instance=1):
    """Return what left after a row on each port of `order`; the last port's is the only one."""
    for at, port in enumerate(order):
        results = node.forward(
            port, rows(instance, first_slot=10 * "abc".index(port), x=parts[port]), mode
        )
        assert bool(results) == (at == len(order) - 1)
    return only(results)


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_does_not_depend_on_who_comes_first(kind, order):
    node = joining(kind)
    emitted = send_all(node, order)
    assert emitted.payload["x"].tolist() == TOGETHER[kind]
    found = answered(node.backward("y", slots(emitted), {"x": f64([[10, 100]])}))
    assert found == {10 * n: {"x": GRADIENTS[kind][p]} for n, p in enumerate("abc")}
    node.accumulate()
    node.assert_drained()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_match_finite_differences(kind):
    generator = np.random.default_rng(1)
    a, b, c = (generator.normal(size=(3, 2)) for _ in range(3))

    def emitted(node):
        node.forward("a", rows([1, 2, 3], first_slot=0, x=a), Mode.TRAIN)
        return only(node.forward("b", rows([1, 2, 3], first_slot=10, x=b), Mode.TRAIN))

    def loss():
        return float((c * emitted(joining(kind, "ab")).payload["x"]).sum())

    node = joining(kind, "ab")
    found = answered(node.backward("y", slots(emitted(node)), {"x": c}))
    for first, x in ((0, a), (10, b)):
        by_row = [found[first + n]["x"] for n in range(3)]
        np.testing.assert_allclose(by_row, differences(loss, x), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_swapped_answers_use_their_own_rows(kind):
    node = joining(kind, "ab")
    first = send_all(node, "ab", instance=1, parts={"a": [[2.0, 3.0]], "b": [[5.0, 7.0]]})
    second = send_all(node, "ba", instance=2, parts={"a": [[0.5, 1.0]], "b": [[4.0, 8.0]]})
    ones = {"x": f64([[1, 1]])}
    expected = {"add": ([1, 1], [1, 1]), "multiply": ([4, 8], [5, 7])}[kind]
    for emitted, gradient in zip((second, first), expected, strict=True):
        assert answered(node.backward("y", slots(emitted), ones))[0] == {"x": gradient}
        node.accumulate()
    node.assert_drained()


@pytest.mark.parametrize("kind", KINDS)
def test_null_rows_answer_null_on_every_port_and_unwanted_ports_always(kind):
    node = joining(kind, "ab", wants=("b",))
    emitted = send_all(node, "ab")
    found = answered(node.backward("y", slots(emitted), {"x": f64([[1, 1]])}))
    assert found[0] is None
    assert found[10] is not None
    node.accumulate()
    emitted = send_all(node, "ba")
    assert answered(node.backward("y", slots(emitted), None)) == {0: None, 10: None}


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_equal_their_rows_one_by_one(kind):
    generator = np.random.default_rng(3)
    a, b = generator.normal(size=(2, 50, 2))
    node = joining(kind, "ab")
    node.forward("a", rows(range(50), x=a), Mode.TRAIN)
    together = only(node.forward("b", rows(range(50), x=b), Mode.TRAIN)).payload["x"]
    single = joining(kind, "ab")
    for n in range(50):
        parts = {"a": a[n : n + 1], "b": b[n : n + 1]}
        assert send_all(single, "ab", parts=parts, instance=n).payload["x"].tolist() == [
            together[n].tolist()
        ]
    assert node.forward("a", rows([], x=np.zeros((0, 2))), Mode.TRAIN) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_second_rows_unknown_slots_and_other_inputs_are_refused(kind):
    node = joining(kind, "ab")
    node.forward("a", rows(1, x=[[1.0, 1.0]]), Mode.TRAIN)
    with pytest.raises(DuplicateStateError, match=f"{kind}-1.*port 'a'"):
        node.forward("a", rows(1, x=[[1.0, 1.0]]), Mode.TRAIN)
    node = joining(kind, "ab")
    claim_duplicate_and_unknown_slots_are_refused(node, lambda: send_all(node, "ab"))
    with pytest.raises(ShapeMismatchError, match=r"rows, 2.*rows, 3"):
        make(kind, {"a": floats(2), "b": floats(3)}, inputs=("a", "b"))
    with pytest.raises(ShapeMismatchError, match=r"its ports take float64 arrays"):
        make(kind, dict.fromkeys("ab", spec(("x", (), "int32"))), inputs=("a", "b"))
    other = floats(2, schema=StateSchema((("instance", 24),)))
    with pytest.raises(SchemaMismatchError):
        make(kind, {"a": floats(2), "b": other}, inputs=("a", "b"))


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_answers_null_and_keeps_nothing(kind):
    node = joining(kind, "ab", verify=False)
    emitted = send_all(node, "ab", Mode.EVALUATE)
    assert answered(node.backward("y", slots(emitted), None)) == {0: None, 10: None}
    node.accumulate()
    node.assert_drained()
