"""embedding: y = table[x], and the sums of gradients by token."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import answered, f64, floats, make, only, rows, slots, spec

from amp_runtime.errors import BadOptionError, NodeError, ShapeMismatchError
from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.rows.message import Mode

TOKENS = spec(("x", (), "int32"))


def embedding(**given):
    return make("embedding", TOKENS, entries=4, features=2, wants=(), **given)


def test_output_is_the_row_of_the_token():
    node = embedding()
    node.parameters["table"][...] = [[0, 1], [10, 11], [20, 21], [30, 31]]
    emitted = only(node.forward("x", rows(x=[3, 0, 3]), Mode.TRAIN))
    assert emitted.payload["x"].tolist() == [[30, 31], [0, 1], [30, 31]]


def test_gradients_of_one_token_add_up_and_the_answer_is_null():
    node = embedding()
    emitted = only(node.forward("x", rows(x=[3, 0, 3]), Mode.TRAIN))
    gradient = {"x": f64([[1, 2], [3, 4], [10, 20]])}
    assert answered(node.backward("y", slots(emitted), gradient)) == {0: None, 1: None, 2: None}
    node.accumulate()
    assert np.asarray(node.gradients["table"]).tolist() == [[3, 4], [0, 0], [0, 0], [11, 22]]


@pytest.mark.parametrize(("token", "shown"), [(4, "4"), (-1, "-1")])
def test_a_token_outside_the_table_is_refused_by_value_and_node(token, shown):
    with pytest.raises(
        NodeError, match=rf"node 'embedding-1' .kind embedding.: token {shown} is outside 0 to 3"
    ):
        embedding().forward("x", rows(x=[0, token]), Mode.TRAIN)


@pytest.mark.parametrize(
    "given", [floats(), spec(("x", (1,), "int32")), spec(("x", (), "int32"), ("y", (), "int32"))]
)
def test_other_inputs_are_refused_with_what_they_are(given):
    with pytest.raises(ShapeMismatchError, match=r"takes one array int32\[rows\], but is given"):
        make("embedding", given, entries=4, features=2)


def test_the_table_has_the_standard_deviation_asked_for():
    node = make("embedding", TOKENS, entries=2000, features=5, std=0.1)
    assert np.std(node.parameters["table"]) == pytest.approx(0.1, rel=0.05)


def test_entries_that_training_never_sees_may_begin_as_zeros():
    plain = make("embedding", TOKENS, entries=4, features=2).parameters["table"]
    table = make("embedding", TOKENS, entries=4, features=2, zero=(0, 2)).parameters["table"]
    assert table[[0, 2]].tolist() == [[0, 0], [0, 0]]
    assert table[[1, 3]].tolist() == plain[[1, 3]].tolist()
    with pytest.raises(BadOptionError, match="zero: 4 is no entry; entries are 0 to 3"):
        make("embedding", TOKENS, entries=4, features=2, zero=(4,))


@pytest.mark.parametrize(("sparse", "rest"), [("dense_equal", 1.0), ("lazy", 0.0)])
def test_lazy_leaves_rows_without_a_gradient_where_momentum_would_move_them(sparse, rest):
    node = embedding(
        sparse=sparse,
        updates=UpdatePolicy(min_update_frequency=1),
        optimizer={"name": "sgd", "lr": 1.0, "momentum": 0.5},
    )
    start = node.parameters["table"].copy()
    for token in (2, 1):
        emitted = only(node.forward("x", rows(x=[token]), Mode.TRAIN))
        node.backward("y", slots(emitted), {"x": f64([[2.0, 4.0]])})
        node.accumulate()
    moved = start - node.parameters["table"]
    # row 2 in the first step, and by half of that in the second: or not
    expected = [[0, 0], [2, 4], [2 + rest, 4 + 2 * rest], [0, 0]]
    np.testing.assert_allclose(moved, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_lazy_and_weight_decay_do_not_go_together(name):
    cls = type(embedding())
    options = cls.Options(entries=4, features=2, sparse="lazy")
    plain = {"optimizer": {"name": name, "weight_decay": 0.0}, "compensation": "none"}
    training = {**plain, "optimizer": {"name": name, "weight_decay": 0.01}}
    with pytest.raises(BadOptionError, match=rf"'sparse': lazy .* weight_decay 0.01 of .* {name}"):
        cls.check_training(options, training)
    cls.check_training(options, plain)
    cls.check_training(cls.Options(entries=4, features=2), training)
