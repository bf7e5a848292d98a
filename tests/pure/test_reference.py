"""The whole runtime in one process: equal to the bit, whatever is in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from wirings import PerExample, chain, examples, new_graph, recurrent

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.errors import InvariantError
from amp_runtime.nodes.updates import Schedule
from amp_runtime.reference import Reference
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from workers.registry import Registry
from workers.sink import Sink

LENGTHS = [1, 4, 2, 7, 3, 3, 5, 1, 2, 6]


def run(wiring, lengths=LENGTHS, valid=(2, 3, 1), **given: Any) -> Reference:
    settings = ControllerSettings(**{"update_every": 4, "max_epochs": 2, "seed": 5, **given})
    made = Reference(wiring, Registry(), examples(lengths), examples(valid, seed=1), settings)
    made.run()
    return made


def parameters(made: Reference) -> dict[str, np.ndarray]:
    return {
        f"{node.name}.{name}": array
        for node in made.host.parameterised()
        for name, array in node.parameters.items()
    }


def same(one: Reference, two: Reference, tolerance: float) -> None:
    expected = parameters(two)
    for name, array in parameters(one).items():
        scale = np.abs(expected[name]).max()
        assert np.abs(array - expected[name]).max() <= tolerance * scale, name


def metrics(made: Reference) -> list[dict[str, float]]:
    return [dict(result.metrics) for result in made.results]


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("batch", [1, 3])
def test_two_runs_are_equal_to_the_bit(schedule, batch):
    one, two = (run(recurrent(batch=batch), schedule=schedule) for _ in range(2))
    same(one, two, 0.0)
    assert metrics(one) == metrics(two)
    assert [r.seconds for r in one.results] == [r.seconds for r in two.results]


def test_another_seed_gives_other_numbers():
    one, two = run(recurrent()), run(recurrent(), seed=6)
    assert any(
        (a != b).any()
        for a, b in zip(parameters(one).values(), parameters(two).values(), strict=True)
    )


@pytest.mark.parametrize("keys", [2, 3, 100])
def test_synchronous_parameters_do_not_depend_on_what_is_in_flight(keys):
    one = run(recurrent(), schedule=Schedule.SYNCHRONOUS, max_active_keys=1)
    two = run(recurrent(), schedule=Schedule.SYNCHRONOUS, max_active_keys=keys)
    same(two, one, 1e-8)
    for a, b in zip(metrics(one), metrics(two), strict=True):
        assert a == pytest.approx(b, rel=1e-10)


@pytest.mark.parametrize("batch", [2, 4])
def test_synchronous_parameters_do_not_depend_on_the_batch(batch):
    one = run(recurrent(), schedule=Schedule.SYNCHRONOUS)
    two = run(recurrent(batch=batch), schedule=Schedule.SYNCHRONOUS)
    same(two, one, 1e-8)


@pytest.mark.parametrize("schedule", list(Schedule))
def test_verify_gives_the_same_numbers(schedule):
    one, two = (run(recurrent(), schedule=schedule, verify=v) for v in (False, True))
    same(one, two, 0.0)
    assert metrics(one) == metrics(two)


def test_one_synchronous_step_is_the_mean_gradient_worked_by_hand():
    # x w = 0 for w = 0: p = [1/2, 1/2], dL/dw = x^T (p - onehot(label)), mean over examples
    wiring = chain(training={"optimizer": {"name": "sgd", "lr": 1.0}})
    data = examples([1] * 3)
    settings = ControllerSettings(schedule=Schedule.SYNCHRONOUS, update_every=3)
    made = Reference(wiring, Registry(), data, examples([]), settings)
    (linear,) = made.host.parameterised()
    for array in linear.parameters.values():
        array[...] = 0
    finished = made.run()
    vector, label = data.field("vector").values, data.field("label").values
    error = 0.5 - np.eye(2)[label]
    np.testing.assert_allclose(
        finished.parameters["linear"]["weight"], -vector.T @ error / 3, rtol=1e-13
    )
    np.testing.assert_allclose(finished.parameters["linear"]["bias"], -error.sum(0) / 3, atol=1e-15)
    assert made.results[0].metrics["loss"] == pytest.approx(np.log(2))
    assert linear.version == 1


def test_a_step_is_taken_for_every_update_every_examples_and_what_remains():
    made = run(chain(), schedule=Schedule.SYNCHRONOUS, max_epochs=2)  # 10 examples: 4, 4, 2
    assert [n.version for n in made.host.parameterised()] == [6]
    made = run(chain(training={"update_every": 4}), max_active_keys=1)
    assert [n.version for n in made.host.parameterised()] == [6]


def test_one_in_flight_is_never_stale_and_more_may_be():
    made = run(chain(training={"update_every": 4}), max_active_keys=1)
    assert [r.staleness for r in made.results] == [0.0, None, 0.0, None]
    eager = chain(training={"min_update_frequency": 1})
    made = run(eager, max_active_keys=10, update_every=10)
    assert [n.version for n in made.host.parameterised()] != [0]


def test_training_lowers_the_loss():
    adam = {"optimizer": {"name": "adam", "lr": 0.05}}
    made = run(recurrent(training=adam), max_epochs=30, max_active_keys=4)
    losses = [r.metrics["loss"] for r in made.results if r.split == "train"]
    assert losses[-1] < 0.7 * losses[0]


def test_results_come_as_they_are_made():
    seen: list[Any] = []
    settings = ControllerSettings(max_epochs=2)
    made = Reference(
        chain(), Registry(), examples([1] * 2), examples([1]), settings, on_stage=seen.append
    )
    finished = made.run()
    assert seen == made.results
    assert [(r.split, r.examples) for r in seen] == [("train", 2), ("valid", 1)] * 2
    assert finished.why == "2 epochs done"


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_handful_of_examples_is_enough(n):
    made = run(recurrent(), lengths=[2] * n, valid=(), max_active_keys=50)
    assert [r.examples for r in made.results] == [n] * (2 if n else 0)


class Swallow(Sink):
    """A kind that breaks the contract: it answers nothing."""

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        return ()


def test_a_kind_that_answers_nothing_ends_the_run_with_words():
    graph = new_graph()
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    graph.add(f"{__name__}:Swallow", "end", vector)
    with pytest.raises(InvariantError, match="nothing is left to do, but 4 instances are in fli"):
        run(graph.build(), lengths=[1] * 5)
