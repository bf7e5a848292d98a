"""Remedies at one node: worked by hand, and the limits of step sizes that they are known for.

The node is y = weight * x of one number, so that dL/dweight = x * dL/dy.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kinds import floats, make, only, rows, slots

from amp_runtime.errors import StartError
from amp_runtime.nodes.updates import Schedule, UpdatePolicy
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.remedies.prediction import WHOLE_TABLE_ROWS
from amp_runtime.rows.message import Mode

EACH_ROW = UpdatePolicy(min_update_frequency=1)
MOMENTUM = {"name": "sgd", "lr": 0.5, "momentum": 0.5}
LIVE, STASHED, RECOMPUTE = BackwardWeights
OPTIONS = {
    "predict": "none", "horizon": "measured", "predict_after": 0, "momentum": "as_given",
    "step_size": "plain", "anneal_over": None, "drop_beyond": None,
}  # fmt: skip


def line(
    *, begin: float = 8.0, weights: BackwardWeights = LIVE, updates: UpdatePolicy = EACH_ROW,
    optimizer: dict[str, Any] = MOMENTUM, dtype: str = "float64", lr_schedule: Any = None,
    delay: Any = 0, **remedies: Any,
) -> Any:  # fmt: skip
    """Return the node with a weight of `begin`."""
    training: dict[str, Any] = {"backward_weights": weights, "delay": delay}
    if remedies:
        training["compensation"] = OPTIONS | remedies
    if lr_schedule:
        training["lr_schedule"] = lr_schedule
    node = make(
        "linear", floats(1), features=1, bias=False, name="line", updates=updates,
        optimizer={"weight_decay": 0.0, "nesterov": False, **optimizer}
        if optimizer["name"] == "sgd" else optimizer,
        training=training, dtype=dtype,
    )  # fmt: skip
    node.set_parameters({"weight": np.array([[begin]], dtype)})
    return node


def forward(node: Any, x: float = 1.0, instance: int = 1, mode: Mode = Mode.TRAIN) -> Any:
    return only(node.forward("x", rows(instance, x=[[x]]), mode))


def answer(node: Any, emitted: Any, *gradients: float) -> list[float]:
    """Answer rows with dL/dy; return dL/dx."""
    delta = {"x": np.array([[g] for g in gradients])}
    found = only(node.backward("y", slots(emitted), delta))
    node.accumulate()
    return [float(g) for g in found.gradient["x"][:, 0]]


def weight(node: Any) -> float:
    return float(node.parameters["weight"][0, 0])


def y(emitted: Any) -> float:
    return float(emitted.payload["x"][0, 0])


# ------------------------------------------------------------------------------ prediction


def test_linear_goes_along_the_velocity_for_the_horizon():
    node = line(predict="linear", horizon=2.5)
    first = forward(node)
    assert y(first) == 8.0  # nothing has moved yet
    answer(node, first, 4.0)  # v = 4; 8 - 0.5 * 4
    assert weight(node) == 6.0
    assert y(forward(node)) == 6.0 - 2.5 * 0.5 * 4
    assert weight(node) == 6.0


def test_decaying_halves_the_velocity_at_each_step_and_takes_a_part_of_the_last():
    node = line(predict="decaying", horizon=2.5)
    answer(node, forward(node), 4.0)
    assert y(forward(node)) == 6.0 - 0.5 * (2 + 1 + 0.5 * 0.5)


def test_the_last_update_is_applied_again():
    node = line(predict="last_update", horizon=3.0, optimizer={"name": "sgd", "lr": 0.5})
    answer(node, forward(node), 4.0)
    assert (weight(node), y(forward(node))) == (6.0, 6.0 - 3 * 2)
    answer(node, forward(node), -1.0)
    assert (weight(node), y(forward(node))) == (6.5, 6.5 + 3 * 0.5)
    node.set_parameters({"weight": np.array([[1.0]])})
    assert y(forward(node)) == 1.0  # that was no update


def test_evaluation_and_what_is_saved_are_the_weights_as_they_are():
    node = line(predict="linear", horizon=4.0)
    answer(node, forward(node), 4.0)
    assert y(forward(node)) != 6.0
    assert y(forward(node, mode=Mode.EVALUATE)) == 6.0
    assert weight(node) == 6.0


def test_the_synchronous_schedule_has_no_delay_and_no_remedy():
    policy = UpdatePolicy(Schedule.SYNCHRONOUS)
    node = line(predict="linear", horizon=4.0, updates=policy)
    answer(node, forward(node), 4.0)
    node.step_for(1)
    assert y(forward(node)) == weight(node) == 6.0


def test_it_begins_after_so_many_updates():
    node = line(predict="linear", horizon=1.0, predict_after=2)
    for n in range(3):
        emitted = forward(node)
        assert (y(emitted) == weight(node)) == (n < 2)
        answer(node, emitted, 4.0)


def test_a_version_is_predicted_once_at_its_first_forward(monkeypatch):
    node = line(predict="linear", horizon=1.0)
    asked = []
    ahead = node.optimizer.ahead
    monkeypatch.setattr(node.optimizer, "ahead", lambda *a, **k: (asked.append(1), ahead(*a, **k)))
    for _ in range(2):
        emitted = [forward(node) for _ in range(3)]
        for one in emitted:
            answer(node, one, 1.0)
    assert len(asked) == 2


def test_the_horizon_is_the_measured_staleness_of_the_node():
    node = line(predict="linear", horizon="measured", optimizer={**MOMENTUM, "lr": 0.01})
    waiting = deque(forward(node) for _ in range(3))
    for _ in range(200):
        waiting.append(forward(node))
        answer(node, waiting.popleft(), 1.0)
    forward(node)
    assert node.staleness.percentile(0.5) == 3
    assert node.remedies.horizon == pytest.approx(3.0, abs=1e-6)
    # A changed delay is followed within some ten updates, whatever all before were.
    while waiting:
        answer(node, waiting.popleft(), 1.0)
    for _ in range(60):
        answer(node, forward(node), 1.0)
    forward(node)
    assert node.remedies.horizon < 0.05 < node.staleness.mean


def test_learning_rates_to_come_are_those_of_the_schedule():
    policy = UpdatePolicy(update_every=2)
    schedule = {"name": "step", "every": 4, "factor": 0.5}
    node = line(predict="linear", horizon=3.0, updates=policy, lr_schedule=schedule)
    waiting = [forward(node, instance=i) for i in (1, 2)]
    for emitted in waiting:
        answer(node, emitted, 4.0)
    assert node.version == 0  # it does not know yet how many rows an example brings
    node.on_retired(np.array([1, 2]), np.array([1, 1]))
    assert weight(node) == 8 - 0.5 * 4
    # 2 examples have retired; the next steps come after 2, 4 and 6 of them.
    assert y(forward(node)) == 6.0 - 0.5 * 4 * (1 + 0.5 + 0.5)


@pytest.mark.parametrize(
    ("weights", "to_x"),
    [(LIVE, 2 * 3.0), (RECOMPUTE, 2 * 3.0), (STASHED, 2 * 2.0)],
)
def test_a_backward_uses_the_weights_of_now_or_those_that_were_predicted(weights, to_x):
    node = line(predict="linear", horizon=2.0, weights=weights)
    answer(node, forward(node), 4.0)
    emitted = forward(node)
    assert (weight(node), y(emitted)) == (6.0, 2.0)
    answer(node, forward(node), 4.0)  # v = 2 + 4 = 6
    assert weight(node) == 3.0
    assert answer(node, emitted, 2.0) == [to_x]
    assert node.staleness.counts.tolist() == [2, 1]
    node.assert_drained()


def test_a_prediction_costs_a_copy_of_the_weights_and_a_last_update_too():
    def held(form: str) -> float:
        options = {**OPTIONS, "predict": form}
        node = make(
            "linear", floats(30), features=20, training={"compensation": options},
            optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": False},
        )  # fmt: skip
        (remedy,) = node.remedies._remedies
        own = sum(array.nbytes for array in node.parameters.values())
        arrays = [
            array
            for value in vars(remedy).values()
            if isinstance(value, dict) and value is not node.parameters
            for array in value.values()
        ]
        return sum(array.nbytes for array in arrays) / own

    assert [held(form) for form in ("linear", "decaying", "last_update")] == [1, 1, 1]


# --------------------------------------------------------------------- tables by their rows


def table(sparse: str = "dense_equal", entries: int = 6, **remedies: Any) -> Any:
    tokens = floats()
    tokens = replace(tokens, arrays={"x": replace(tokens.arrays["x"], dtype="int32")})
    return make(
        "embedding", tokens, entries=entries, features=2, sparse=sparse, updates=EACH_ROW,
        optimizer={"name": "sgd", "lr": 0.5, "momentum": 0.5, "nesterov": False,
                   "weight_decay": 0.0},
        training={"compensation": OPTIONS | remedies},
    )  # fmt: skip


@pytest.mark.parametrize("entries", [WHOLE_TABLE_ROWS, WHOLE_TABLE_ROWS + 1])
def test_rows_of_a_table_are_predicted_and_those_of_a_large_one_when_they_are_read(entries):
    node = table(entries=entries, predict="linear", horizon=2.0)
    emitted = only(node.forward("x", rows(x=[3]), Mode.TRAIN))
    node.backward("y", slots(emitted), {"x": np.array([[4.0, -2.0]])})
    node.accumulate()
    now = node.parameters["table"].copy()
    ahead = only(node.forward("x", rows(x=[3, 1, 3]), Mode.TRAIN)).payload["x"]
    moved = now[3] - 2 * 0.5 * np.array([4.0, -2.0])
    assert ahead.tolist() == [moved.tolist(), now[1].tolist(), moved.tolist()]
    assert (node.parameters["table"] == now).all()
    (remedy,) = node.remedies._remedies
    assert bool(remedy._arrays) == (entries <= WHOLE_TABLE_ROWS)  # a copy of the table


@pytest.mark.parametrize(
    ("sparse", "form", "said"),
    [
        ("lazy", "linear", "moves in updates with a gradient of it alone"),
        ("lazy", "decaying", "moves in updates with a gradient of it alone"),
        ("lazy", "last_update", "would copy all of 'table' at each update"),
        ("dense_equal", "last_update", "would copy all of 'table' at each update"),
    ],
)
def test_a_table_that_cannot_be_predicted_by_rows_is_refused(sparse, form, said):
    with pytest.raises(StartError, match=rf"embedding-1.*{form}.*{said}.*compensation: none"):
        table(sparse, predict=form)


# ------------------------------------------------------- what becomes of stale contributions


def stale(n: int, node: Any) -> Any:
    """Return a row whose answer will be `n` updates stale."""
    emitted = forward(node, 3.0)
    for _ in range(n):
        answer(node, forward(node), 0.0)
    return emitted


PLAIN = {"name": "sgd", "lr": 1.0, "momentum": 0.0}


@pytest.mark.parametrize(("staleness", "divided"), [(0, 1), (1, 1), (2, 2), (5, 5)])
def test_by_row_divides_a_gradient_by_its_staleness_and_leaves_that_of_the_input(
    staleness, divided
):
    node = line(step_size="by_row", optimizer=PLAIN)
    emitted = stale(staleness, node)
    assert answer(node, emitted, 2.0) == [2 * 8.0]
    assert weight(node) == pytest.approx(8 - 3 * 2 / divided, rel=1e-15)


def test_rows_of_one_batch_are_divided_each_by_its_own():
    node = line(step_size="by_row", optimizer=PLAIN)
    old = stale(4, node)
    young = forward(node, 5.0)
    both = rows(x=[[0.0], [0.0]]).columns.copy()
    both[:, 1] = [slots(old)[0], slots(young)[0]]
    found = only(node.backward("y", both[:, 1], {"x": np.array([[2.0], [1.0]])}))
    node.accumulate()
    assert found.gradient["x"][:, 0].tolist() == [16.0, 8.0]
    # The paper's mean over rows, of which there are two.
    assert weight(node) == 8 - (3 * 2 / 4 + 5 * 1) / 2


@pytest.mark.parametrize("weights", BackwardWeights)
def test_beyond_the_threshold_a_row_is_counted_and_dropped_while_its_dx_flows(weights):
    every_two = UpdatePolicy(min_update_frequency=2)
    node = line(drop_beyond=1, optimizer=PLAIN, updates=every_two, weights=weights)
    old = forward(node, 3.0)
    for _ in range(2 * 2):
        answer(node, forward(node), 0.5)
    assert (node.version, weight(node)) == (2, 7.0)
    young = forward(node, 5.0)
    assert answer(node, young, 4.0) == [4 * 7.0]
    assert answer(node, old, 100.0) == [100 * (8.0 if weights is STASHED else 7.0)]
    # It brings no update nearer, and what waited to be summed is not lost with it.
    assert (node.version, node.updates.rows, node.remedies.dropped) == (2, 1, 1)
    answer(node, forward(node, 1.0), 0.0)
    assert (node.version, weight(node)) == (3, 7.0 - 5 * 4 / 2)
    assert node.staleness.counts.tolist() == [6, 0, 1]
    node.assert_drained()


def test_of_one_batch_some_rows_are_dropped_and_the_others_are_not():
    node = line(drop_beyond=2, optimizer=PLAIN)
    old = stale(3, node)
    young = forward(node, 5.0)
    both = np.array([slots(young)[0], slots(old)[0]], np.int32)
    found = only(node.backward("y", both, {"x": np.array([[1.0], [2.0]])}))
    node.accumulate()
    assert found.gradient["x"][:, 0].tolist() == [8.0, 16.0]
    assert (weight(node), node.remedies.dropped) == (8 - 5 * 1, 1)


def test_dropped_rows_are_part_of_what_an_example_brings():
    policy = UpdatePolicy(update_every=2)
    node = line(drop_beyond=0, updates=policy, optimizer=PLAIN)
    first = [forward(node, instance=i) for i in (1, 2, 3)]
    for emitted in first[:2]:
        answer(node, emitted, 0.0)
    node.on_retired(np.array([1, 2]), np.array([1, 1]))
    assert node.version == 1
    answer(node, first[2], 0.0)
    node.on_retired(np.array([3]), np.array([1]))
    assert (node.remedies.dropped, node.updates.rows_per_example) == (1, 1.0)


def test_a_table_drops_rows_too():
    node = table(drop_beyond=0)
    old = only(node.forward("x", rows(x=[3]), Mode.TRAIN))
    new = only(node.forward("x", rows(x=[1]), Mode.TRAIN))
    node.backward("y", slots(new), {"x": np.array([[0.0, 0.0]])})
    node.accumulate()
    before = node.parameters["table"].copy()
    node.backward("y", slots(old), {"x": np.array([[4.0, -2.0]])})
    node.accumulate()
    node.apply_left_over()
    assert (node.parameters["table"] == before).all()
    assert node.remedies.dropped == 1


# ------------------------------------------------------------------------------- step size


def test_annealing_begins_at_lr_over_the_staleness_and_ends_at_lr():
    node = line(step_size="annealed", anneal_over=400, optimizer={**PLAIN, "lr": 0.1})
    waiting = deque(forward(node) for _ in range(4))
    lrs = []
    for _ in range(450):
        waiting.append(forward(node))
        answer(node, waiting.popleft(), 0.0)
        lrs.append(node.optimizer.lr)
    assert lrs[0] == 0.1  # nothing is measured yet
    for k in (100, 200, 300):
        assert lrs[k] == pytest.approx(0.1 * 4 ** -(1 - k / 400), rel=1e-4)
    assert lrs[400:] == [0.1] * 50


def test_annealing_never_raises_the_learning_rate():
    node = line(step_size="annealed", anneal_over=100, optimizer=PLAIN)
    for _ in range(20):
        answer(node, forward(node), 0.0)
        assert node.optimizer.lr == 1.0


def test_by_node_divides_the_learning_rate_by_the_root_of_one_more_than_the_staleness():
    node = line(step_size="by_node", optimizer=PLAIN)
    waiting = deque(forward(node) for _ in range(3))
    for _ in range(200):
        waiting.append(forward(node))
        answer(node, waiting.popleft(), 0.0)
    assert node.optimizer.lr == pytest.approx(PLAIN["lr"] * (1 + 3) ** -0.5, rel=1e-6)


# --------------------------------------------------------------------------------- momentum


def momenta(delay: int, updates: int, **optimizer: Any) -> list[float]:
    """Return the momentum of each update of a node whose gradients come `delay` updates late."""
    node = line(momentum="raised", optimizer={"name": "sgd", "lr": 0.001, **optimizer})
    waiting = deque(forward(node) for _ in range(delay))
    found = []
    for _ in range(updates):
        waiting.append(forward(node))
        answer(node, waiting.popleft(), 0.0)
        found.append(node.optimizer.momentum)
    return found


def test_momentum_is_raised_by_staleness_and_never_lowered():
    assert momenta(8, 400, momentum=0.9)[-1] == pytest.approx(1 - 1 / 33, rel=1e-6)
    assert momenta(1, 400, momentum=0.5)[-1] == pytest.approx(1 - 1 / 5, rel=1e-6)
    assert set(momenta(8, 100, momentum=0.99)) == {0.99}
    assert set(momenta(0, 100, momentum=0.1)) == {0.1}


def test_momentum_averages_no_more_than_a_third_of_the_updates_made():
    found = momenta(8, 100, momentum=0.5)
    for made, momentum in enumerate(found):
        assert momentum <= max(0.5, 1 - 3 / max(made, 1)) + 1e-12
    assert found[5] == 0.5
    assert found[60] == pytest.approx(1 - 3 / 60)


# -------------------------------------------------------------------------- limits of steps

LIMITS = {  # of lr * curvature, momentum 0.9: plain, predicted by the velocity
    0: (3.80, 3.80),
    2: (0.0512, 0.1210),
    4: (0.0265, 0.0494),
    8: (0.0139, 0.0194),
}


def radius(delay: int, lr: float, momentum: float = 0.9, **remedies: Any) -> float:
    """Return by what the error of a square loss, curvature 1, grows from update to update.

    The weights follow a linear recurrence of delay + 2 terms, which is found from what the
    node did; its roots are the factors.
    """
    optimizer = {"name": "sgd", "lr": lr, "momentum": momentum}
    node = line(begin=1.0, optimizer=optimizer, delay=delay, **remedies)
    seen = []
    n = delay + 2
    for _ in range(8 * n):
        emitted = forward(node)
        answer(node, emitted, y(emitted))  # L = y^2 / 2
        seen.append(weight(node))
    assert node.staleness.counts[delay] == 8 * n - delay  # the first came before any update
    path = np.array(seen[delay:])
    windows = np.lib.stride_tricks.sliding_window_view(path[:-1], n)
    terms, *_ = np.linalg.lstsq(windows, path[n:], rcond=None)
    return float(np.abs(np.roots([1, *-terms[::-1]])).max())


@pytest.mark.parametrize("delay", LIMITS)
@pytest.mark.parametrize("form", ["none", "linear", "last_update"])
def test_a_step_size_is_stable_up_to_the_known_limit(delay, form):
    limit = LIMITS[delay][form != "none"]
    remedies = {} if form == "none" or not delay else {"predict": form, "horizon": float(delay)}
    assert radius(delay, 0.99 * limit, **remedies) < 1 < radius(delay, 1.01 * limit, **remedies)


@pytest.mark.parametrize(
    ("delay", "momentum", "limit"),  # of lr / (1 - momentum) * curvature
    [(4, 0.9, 0.494), (4, 0.95, 0.718), (4, 0.98, 1.178), (8, 0.9, 0.194), (8, 0.98, 0.444)],
)
def test_the_more_momentum_the_larger_the_stable_steps_of_what_is_predicted_along_it(
    delay, momentum, limit
):
    ahead = {"predict": "linear", "horizon": float(delay)}
    lr = limit * (1 - momentum)
    assert radius(delay, 0.99 * lr, momentum, **ahead) < 1
    assert radius(delay, 1.01 * lr, momentum, **ahead) > 1
    # Without a prediction it helps little or not at all.
    assert radius(delay, 0.75 * lr, momentum) > 1
