"""One replica by itself: what it shares, and what it makes of what comes back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from kinds import f64, floats, make, only, rows, slots, spec

from amp_runtime.nodes.replica import AveragedReplica, SummedReplica
from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.optim.snapshot import Snapshot
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.rows.message import Mode

ADAM = {"name": "adam", "lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}


def linear(**context: Any) -> Any:
    given = {"optimizer": ADAM, "updates": UpdatePolicy(min_update_frequency=1), **context}
    node: Any = make("linear", floats(2), features=2, bias=False, **given)
    node.parameters["weight"][...] = [[1.0, 2.0], [3.0, 4.0]]
    return node


def forward(node: Any, x: Any) -> Any:
    return slots(only(node.forward("x", rows(x=x), Mode.TRAIN)))


def answer(node: Any, at: Any, dy: Any) -> np.ndarray:
    """Answer rows, let the node update, and return dL/dx."""
    (answered,) = node.backward("y", at, {"x": f64(dy)})
    node.accumulate()
    found: np.ndarray = answered.gradient["x"]
    return found


def update(node: Any, n: int = 1) -> None:
    for _ in range(n):
        answer(node, forward(node, [[1.0, -1.0]]), [[0.5, 2.0]])


def held(weight: Any, like: Snapshot, steps: int = 0) -> Snapshot:
    beside = {name: np.full_like(array, 7.0) for name, array in like.beside.items()}
    return Snapshot({"weight": f64(weight)}, beside, steps=steps)


ONES = [[1.0, 1.0], [1.0, 1.0]]


def test_a_replica_is_due_after_its_updates_and_not_while_it_waits():
    node = linear()
    replica = AveragedReplica(node, 2, "kept")
    update(node)
    assert not replica.due
    update(node)
    assert replica.due
    shared = replica.share(at_barrier=False)
    assert (shared.count, replica.pending, replica.due) == (2, True, False)
    update(node, 3)
    assert not replica.due  # it waits, and trains on
    replica.go_on(held(ONES, shared))
    assert replica.due  # 3 updates since it shared; to go on is none
    assert (replica.updates, node.version) == (5, 6)


def test_what_came_back_replaces_what_was_shared_and_keeps_what_came_after():
    node = linear()
    replica = AveragedReplica(node, math.inf, "kept")
    shared = replica.share(at_barrier=False)
    update(node)
    moved = node.parameters["weight"] - shared.arrays["weight"]
    assert moved.any()
    replica.go_on(held(ONES, shared))
    np.testing.assert_allclose(node.parameters["weight"], ONES + moved, rtol=1e-15)


def test_where_nothing_came_after_it_is_to_the_bit_what_came_back():
    node = linear()
    replica = AveragedReplica(node, math.inf, "kept")
    update(node)
    shared = replica.share(at_barrier=True)
    odd = np.random.default_rng(0).normal(size=(2, 2)) * 1e-9
    replica.go_on(held(odd, shared))
    assert (node.parameters["weight"] == odd).all()
    assert node.optimizer.parameters["weight"] is node.parameters["weight"]


@pytest.mark.parametrize(
    ("policy", "kept", "steps"),
    [("averaged", 7.0, 5 + 1), ("kept", None, 3 + 1), ("reset", 0.0, 0)],
)
def test_the_state_of_the_optimizer_is_averaged_kept_or_reset(policy, kept, steps):
    node = linear()
    replica = AveragedReplica(node, math.inf, policy)
    update(node, 3)
    shared = replica.share(at_barrier=False)
    assert set(shared.beside) == ({"mean@weight", "mean_square@weight"} if kept == 7 else set())
    update(node)
    before = node.optimizer.state["weight"]["mean"].copy()
    replica.go_on(held(ONES, shared, steps=5))
    now = node.optimizer.state["weight"]["mean"]
    assert (now == (before if kept is None else kept)).all()
    assert node.optimizer.steps == steps


@pytest.mark.parametrize("to", ["go on", "evaluate with", "resume"])
def test_a_gradient_uses_the_weights_that_a_replica_has_now(to):
    node = linear(updates=UpdatePolicy(min_update_frequency=100))
    replica = AveragedReplica(node, math.inf, "kept")
    for _ in range(3):  # often enough that what is made of the weights is kept
        assert answer(node, forward(node, [[0.0, 0.0]]), [[1.0, 0.0]]).tolist() == [[1.0, 3.0]]
    at = forward(node, [[0.0, 0.0]])
    shared = replica.share(at_barrier=True)
    match to:
        case "go on":
            replica.go_on(held([[5.0, 0.0], [6.0, 0.0]], shared))
        case _:
            replica.evaluate_with({"weight": f64([[5.0, 0.0], [6.0, 0.0]])})
    if to == "resume":
        assert answer(node, forward(node, [[0.0, 0.0]]), [[1.0, 0.0]]).tolist() == [[5.0, 6.0]]
        assert answer(node, forward(node, [[0.0, 0.0]]), [[1.0, 0.0]]).tolist() == [[5.0, 6.0]]
        replica.resume()
    wanted = [[1.0, 3.0]] if to == "resume" else [[5.0, 6.0]]
    assert answer(node, at, [[1.0, 0.0]]).tolist() == wanted


def test_stashed_weights_are_those_of_the_forward_though_replicas_met_since():
    node = linear(
        training={"backward_weights": BackwardWeights.STASHED},
        updates=UpdatePolicy(min_update_frequency=100),
    )
    replica = AveragedReplica(node, math.inf, "kept")
    at = forward(node, [[0.0, 0.0]])
    replica.go_on(held(ONES, replica.share(at_barrier=False)))
    later = forward(node, [[0.0, 0.0]])
    assert answer(node, at, [[1.0, 0.0]]).tolist() == [[1.0, 3.0]]
    assert answer(node, later, [[1.0, 0.0]]).tolist() == [[1.0, 1.0]]
    node.assert_drained()


def test_resume_without_anything_given_up_changes_nothing():
    node = linear()
    replica = AveragedReplica(node, math.inf, "kept")
    replica.resume()
    assert node.parameters["weight"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    replica.evaluate_with({"weight": f64(ONES)})
    assert node.parameters["weight"].tolist() == ONES
    replica.resume()
    assert node.parameters["weight"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_what_is_shared_does_not_change_with_the_replica():
    node = linear()
    replica = AveragedReplica(node, math.inf, "averaged")
    shared = replica.share(at_barrier=False)
    before = [array.copy() for array in (*shared.arrays.values(), *shared.beside.values())]
    update(node)
    after = [*shared.arrays.values(), *shared.beside.values()]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("lazy", ["lazy", "dense_equal"])
def test_gradients_by_rows_are_shared_by_rows_and_added_up(lazy):
    node: Any = make(
        "embedding",
        spec(("x", (), "int32")),
        entries=5,
        features=2,
        sparse=lazy,
        updates=UpdatePolicy(min_update_frequency=100),
    )
    replica = SummedReplica(node)
    at = slots(only(node.forward("x", rows(x=np.array([3, 1], np.int32)), Mode.TRAIN)))
    node.backward("y", at, {"x": f64([[1.0, 2.0], [3.0, 4.0]])})
    node.accumulate()
    shared = replica.share(at_barrier=True)
    assert shared.count == 2
    assert shared.beside["rows@table"].tolist() == [1, 3]
    assert shared.arrays["table"].tolist() == [[3.0, 4.0], [1.0, 2.0]]
    both = Snapshot(
        {"table": f64([[3, 4], [1, 2], [10, 10]])},
        {"rows@table": np.array([1, 3, 3], np.int32)},
        count=3,
    )
    replica.go_on(both)
    wanted = np.zeros((5, 2))
    wanted[1], wanted[3] = [3, 4], [11, 12]
    assert np.asarray(node.gradients["table"]).tolist() == wanted.tolist()
    assert node.updates.rows == 3
