"""A run that goes on from a checkpoint does what the one without a stop does, to the bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from wirings import PerExample, chain, examples, new_graph, recurrent

from amp_runtime.control.checkpoints import CheckpointRule
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.errors import CheckpointError, ParametersError
from amp_runtime.nodes.updates import Schedule
from amp_runtime.reference import Checkpoint, Reference
from amp_runtime.rows.saved import Saved
from workers.registry import Registry

LENGTHS = [1, 4, 2, 7, 3, 3, 5, 1, 2, 6, 2, 4, 3, 1]
VALID = (2, 3, 1)
EVERY_3 = CheckpointRule(epochs=1, examples=3)
ADAM = {"name": "adam", "lr": 0.05}
BOTH = pytest.mark.parametrize("schedule", list(Schedule))


def settings(**given: Any) -> ControllerSettings:
    plain = {"update_every": 4, "max_epochs": 2, "seed": 5, "max_active_keys": 3}
    return ControllerSettings(**{**plain, "checkpoints": EVERY_3, **given})


def through_text(saved: Saved) -> Saved:
    """Return what is read of what is written."""
    return Saved(json.loads(json.dumps(saved.numbers)), saved.copy().arrays)


def run(
    wiring: Any,
    given: ControllerSettings,
    resume: Checkpoint | None = None,
    *,
    lengths: Sequence[int] = LENGTHS,
    valid: Sequence[int] = VALID,
) -> tuple[Reference, list[Checkpoint], dict[str, Any]]:
    """Return a run, its checkpoints, and the parameters it ended with."""
    made: list[Checkpoint] = []
    if resume is not None:
        nodes = {name: through_text(saved) for name, saved in resume.nodes.items()}
        resume = Checkpoint(nodes, through_text(resume.run))
    reference = Reference(
        wiring, Registry(), examples(lengths), examples(valid, seed=1), given,
        on_checkpoint=made.append, resume=resume,
    )  # fmt: skip
    parameters = reference.run().parameters
    return reference, made, {n: dict(arrays) for n, arrays in parameters.items()}


def told(saved: Saved) -> Any:
    """Return all of it but the seconds, as what compares."""
    numbers = json.loads(json.dumps(saved.numbers))
    for clock in ("seconds", "stage_seconds"):
        numbers.get("place", {}).pop(clock, None)
    return numbers, {name: (a.dtype, a.shape, a.tobytes()) for name, a in saved.arrays.items()}


def stages(reference: Reference) -> list[Any]:
    return [
        (r.split, r.epoch, r.examples, dict(r.metrics), r.staleness, r.complete)
        for r in reference.results
    ]


def claim_goes_on_to_the_bit(wiring: Any, given: ControllerSettings, **data: Any) -> None:
    """Assert that from each checkpoint of a run the rest of it is the same."""
    whole, checkpoints, parameters = run(wiring, given, **data)
    assert len(checkpoints) >= 3
    for number in {0, 2, len(checkpoints) // 2, len(checkpoints) - 2}:
        checkpoint = checkpoints[number]
        again, later, ended_with = run(wiring, given, checkpoint, **data)
        place = checkpoint.run.numbers["place"]
        assert stages(again) == stages(whole)[place["stages"] :], place
        for one, other in zip(later, checkpoints[number + 1 :], strict=True):
            assert told(one.run) == told(other.run), place
            for node, saved in one.nodes.items():
                assert told(saved) == told(other.nodes[node]), (place, node)
        for node, arrays in ended_with.items():
            for name, array in arrays.items():
                assert array.tobytes() == parameters[node][name].tobytes(), (place, node, name)


@BOTH
@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"name": "adagrad", "lr": 0.1},
        {"name": "rmsprop", "lr": 0.01, "momentum": 0.9},
        ADAM,
        {"name": "adamw", "lr": 0.05},
    ],
    ids=lambda o: o["name"],
)
def test_with_every_optimizer(optimizer, schedule):
    training = {"optimizer": optimizer, "lr_schedule": {"name": "cosine", "over": 40}}
    training["update_every"] = 4
    claim_goes_on_to_the_bit(recurrent(training=training), settings(schedule=schedule))


@BOTH
@pytest.mark.parametrize("batch", [1, 3])
def test_with_instances_of_several_examples(batch, schedule):
    wiring = recurrent(batch=batch, training={"optimizer": ADAM, "update_every": 4})
    claim_goes_on_to_the_bit(wiring, settings(schedule=schedule))


@pytest.mark.parametrize(
    "training",
    [
        {"backward_weights": "stashed"},
        {"backward_weights": "recompute", "min_update_frequency": 5},
        {"clip": {"norm": 0.1}},
        {"compensation": {"predict": "linear", "drop_beyond": 1, "momentum": "raised"}},
        {"compensation": {"predict": "decaying", "predict_after": 3, "step_size": "by_row"}},
    ],
    ids=str,
)
def test_with_what_is_done_about_delay(training):
    wiring = recurrent(training={"optimizer": ADAM, "update_every": 2, **training})
    given = settings(max_active_keys=6, update_every=2, warm_up_examples=4, max_age=6)
    claim_goes_on_to_the_bit(wiring, given)


@BOTH
@pytest.mark.parametrize("delay", [2, {"name": "random", "low": 0, "high": 4}], ids=str)
def test_with_a_delay_that_is_injected(delay, schedule):
    training = {
        "optimizer": ADAM, "delay": delay, "backward_weights": "stashed", "update_every": 2,
        "lr_schedule": {"name": "linear", "over": 30},
    }  # fmt: skip
    given = settings(schedule=schedule, update_every=2)
    claim_goes_on_to_the_bit(recurrent(training=training), given)


@pytest.mark.parametrize("optimizer", [ADAM, {"name": "adagrad", "lr": 0.1}], ids=str)
def test_with_remedies_that_are_chosen_on_the_way(optimizer):
    training = {"optimizer": optimizer, "compensation": "auto", "min_update_frequency": 1}
    claim_goes_on_to_the_bit(recurrent(training=training), settings(max_active_keys=9))


def test_with_the_last_update_predicted_again_and_annealed_steps():
    compensation = {"predict": "last_update", "step_size": "annealed", "anneal_over": 6}
    wiring = recurrent(
        training={"optimizer": ADAM, "update_every": 2, "compensation": compensation},
        overrides={"embedding": {"compensation": "none"}},
    )
    claim_goes_on_to_the_bit(wiring, settings(max_active_keys=6, update_every=2))


@pytest.mark.parametrize("sparse", ["dense_equal", "lazy"])
def test_with_gradients_by_rows_short_of_an_update(sparse):
    wiring = recurrent(
        training={"optimizer": ADAM, "update_every": 5},
        overrides={"embedding": {"sparse": sparse}},
    )
    claim_goes_on_to_the_bit(wiring, settings(update_every=5))


@pytest.mark.parametrize(
    "averaging",
    [
        {"name": "mean"},
        {"name": "mean", "optimizer_state": "reset"},
        {"name": "elastic"},
        {"name": "block_momentum", "nesterov": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("every", [2, "epoch"])
def test_with_replicas_that_are_averaged(averaging, every):
    training = {"optimizer": ADAM, "update_every": 2}
    replicas = {"replicas": 2, "averaging": averaging, "average_every": every}
    wiring = recurrent(training=training, overrides={"linear-1": replicas, "embedding": replicas})
    claim_goes_on_to_the_bit(wiring, settings(update_every=2, max_active_keys=4))


def test_with_replicas_that_step_together():
    wiring = recurrent(
        training={"optimizer": ADAM},
        overrides={"linear-1": {"replicas": 2}, "embedding": {"replicas": 3}},
    )
    claim_goes_on_to_the_bit(wiring, settings(schedule=Schedule.SYNCHRONOUS))


@BOTH
def test_with_dropout(schedule):
    graph = new_graph(training={"optimizer": ADAM, "update_every": 4})
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    hidden = graph.add("dropout", "drop", graph.add("linear", "wide", vector, features=8))
    graph.add("softmax_cross_entropy", "loss", graph.add("linear", "readout", hidden, features=2))
    claim_goes_on_to_the_bit(graph.build(), settings(schedule=schedule))


def test_without_validation_and_with_limits():
    wiring = recurrent(training={"optimizer": ADAM, "update_every": 4})
    claim_goes_on_to_the_bit(wiring, settings(max_examples=23), valid=())


def test_in_the_middle_of_what_is_prepared_at_once():
    lengths = [1 + n % 3 for n in range(1100)]  # blocks of 512
    given = settings(
        max_epochs=1, update_every=50, checkpoints=CheckpointRule(examples=301), max_active_keys=40
    )
    wiring = chain(training={"optimizer": ADAM, "update_every": 50})
    claim_goes_on_to_the_bit(wiring, given, lengths=lengths)


def stop_after(reference: Reference, n_examples: int) -> None:
    """Have a run told to stop as soon as so many examples have retired."""
    controller = reference.controller
    answers = controller.on_answers

    def stop_then(message: Any, now: float) -> Any:
        actions = answers(message, now)
        progress = controller.progress(now)
        if progress is not None and progress.examples >= n_examples:
            actions += controller.request_stop("enough", now)
        return actions

    controller.on_answers = stop_then  # type: ignore[method-assign]


def test_a_stopped_run_leaves_a_checkpoint_before_gradients_short_of_an_update_are_applied():
    wiring = recurrent(training={"optimizer": ADAM, "update_every": 4})
    given = settings(checkpoints=CheckpointRule(), schedule=Schedule.SYNCHRONOUS)
    _, _, parameters = run(wiring, given)
    for after in range(1, len(LENGTHS)):
        made: list[Checkpoint] = []
        stopped = Reference(
            wiring, Registry(), examples(LENGTHS), examples(VALID, seed=1), given,
            on_checkpoint=made.append,
        )  # fmt: skip
        stop_after(stopped, after)
        assert stopped.run().why == "enough"
        (checkpoint,) = made
        place = checkpoint.run.numbers["place"]
        assert (place["epoch"], place["split"], place["stages"]) == (1, "train", 0)
        assert place["taken"] >= after
        _, _, ended_with = run(wiring, given, checkpoint)
        for node, arrays in ended_with.items():
            for name, array in arrays.items():  # a step's gradient may be summed in other parts
                np.testing.assert_allclose(array, parameters[node][name], rtol=1e-9, atol=1e-12)


def test_a_run_stopped_in_its_validation_validates_anew():
    wiring = recurrent(training={"optimizer": ADAM, "update_every": 4})
    given = settings(checkpoints=CheckpointRule(), max_active_keys=1)
    whole, _, parameters = run(wiring, given)
    made: list[Checkpoint] = []
    stopped = Reference(
        wiring, Registry(), examples(LENGTHS), examples(VALID, seed=1), given,
        on_checkpoint=made.append,
        on_stage=lambda result: stopped.controller.request_stop("enough", 1.0) and None,
    )  # fmt: skip
    stopped.run()
    assert [r.complete for r in stopped.results] == [True, False]
    (checkpoint,) = made
    place = checkpoint.run.numbers["place"]
    assert (place["epoch"], place["split"], place["stages"]) == (1, "valid", 1)
    again, later, ended_with = run(wiring, given, checkpoint)
    places = [c.run.numbers["place"] for c in later]
    assert [(place["epoch"], place["taken"]) for place in places] == [(2, 0), (3, 0)]
    assert [(s[0], s[1], s[3]) for s in stages(again)] == [
        (s[0], s[1], s[3]) for s in stages(whole)[1:]
    ]
    for node, arrays in ended_with.items():
        for name, array in arrays.items():
            assert array.tobytes() == parameters[node][name].tobytes()


def test_a_run_that_is_over_goes_on_with_more_epochs_and_ends_at_once_with_as_many():
    wiring = recurrent(training={"optimizer": ADAM, "update_every": 4})
    longer, _, parameters = run(wiring, settings(max_epochs=3))
    _, short, before = run(wiring, settings(max_epochs=2))
    again, _, ended_with = run(wiring, settings(max_epochs=3), short[-1])
    assert stages(again) == stages(longer)[4:]
    assert ended_with["linear-1"]["weight"].tobytes() == parameters["linear-1"]["weight"].tobytes()
    over, none, kept = run(wiring, settings(max_epochs=2), short[-1])
    assert (over.results, none) == ([], [])
    assert kept["linear-1"]["weight"].tobytes() == before["linear-1"]["weight"].tobytes()


def test_more_in_flight_go_on_from_it_too():
    wiring = recurrent(training={"optimizer": ADAM})
    given = settings(schedule=Schedule.SYNCHRONOUS)
    _, checkpoints, parameters = run(wiring, given)
    _, _, ended_with = run(
        wiring, settings(schedule=Schedule.SYNCHRONOUS, max_active_keys=9), checkpoints[1]
    )
    for node, arrays in ended_with.items():
        for name, array in arrays.items():
            np.testing.assert_allclose(array, parameters[node][name], rtol=1e-8, atol=1e-12)


def test_when_they_are_made():
    wiring = recurrent(training={"optimizer": ADAM, "update_every": 4})

    def places(rule: CheckpointRule | None, **given: Any) -> list[tuple[int, int]]:
        _, made, _ = run(wiring, settings(checkpoints=rule, max_epochs=4, **given))
        found = (c.run.numbers["place"] for c in made)
        return [(place["epoch"], place["taken"]) for place in found]

    assert places(None) == []
    assert places(CheckpointRule()) == [(2, 0), (3, 0), (4, 0), (5, 0)]
    assert places(CheckpointRule(epochs=3)) == [(4, 0), (5, 0)]  # the end is one too
    keys_1 = {"max_active_keys": 1}
    found = places(CheckpointRule(epochs=None, examples=10), **keys_1)
    assert found == [(1, 10), (2, 6), (3, 2), (3, 12), (4, 8), (5, 0)]
    assert places(CheckpointRule(epochs=None, seconds=1e9)) == [(5, 0)]
    assert len(places(CheckpointRule(epochs=None, seconds=1e-9), **keys_1)) == 4 * len(LENGTHS)


def test_an_epoch_among_the_best_makes_one():
    wiring = recurrent(training={"optimizer": {"name": "sgd", "lr": 2.0}, "update_every": 4})
    for metric, highest in (("loss", False), ("accuracy", True)):
        rule = CheckpointRule(epochs=None, metric=metric, highest=highest, keep_best=2)
        whole, made, _ = run(wiring, settings(checkpoints=rule, max_epochs=8))
        values = [r.metrics[metric] for r in whole.results if r.split == "valid"]
        best: list[float] = []
        expected = []
        for epoch, value in enumerate(values, 1):
            best = sorted([*best, value if highest else -value], reverse=True)[:2]
            if (value if highest else -value) in best or epoch == 8:
                expected.append(epoch + 1)
        assert [c.run.numbers["place"]["epoch"] for c in made] == expected
        assert len(expected) < 8


def test_a_parameter_that_is_not_finite_is_no_checkpoint():
    wiring = chain(training={"optimizer": ADAM, "update_every": 4})
    made: list[Checkpoint] = []

    def spoil(result: Any) -> None:
        if result.epoch == 2 and result.split == "valid":
            linear.optimizer.state["weight"]["mean"][0, 0] = np.nan

    reference = Reference(
        wiring, Registry(), examples(LENGTHS), examples(VALID),
        settings(checkpoints=CheckpointRule(), max_epochs=4),
        on_checkpoint=made.append, on_stage=spoil,
    )  # fmt: skip
    (linear,) = reference.host.parameterised()
    reference.run()
    # What is spoilt at the end of epoch 2 is no part of a checkpoint then, nor later.
    assert [c.run.numbers["place"]["epoch"] for c in made] == [2]


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_gradient_that_is_not_finite_is_the_next_updates_to_judge():
    wiring = chain(training={"optimizer": ADAM, "update_every": 100})
    made: list[Checkpoint] = []
    reference = Reference(
        wiring, Registry(), examples(LENGTHS), examples(VALID), settings(max_epochs=1),
        on_checkpoint=made.append,
    )  # fmt: skip
    (linear,) = reference.host.parameterised()
    linear._gradients["weight"][0, 0] = np.inf
    reference.run()
    assert np.isinf(made[0].nodes["linear"].arrays["node/gradients/weight"]).any()


def test_what_is_of_another_node_is_refused_by_name():
    wiring = chain(training={"optimizer": ADAM, "update_every": 4})
    _, (checkpoint, *_), _ = run(wiring, settings())
    other = chain(training={"optimizer": {"name": "rmsprop"}, "update_every": 4})
    with pytest.raises(ParametersError, match=r"'linear'.*no array 'mean@bias'"):
        run(other, settings(), checkpoint)
    nodes, rest = checkpoint.nodes, checkpoint.run
    lacking = Checkpoint({"linear": nodes["linear"]}, rest)
    with pytest.raises(ParametersError, match="nothing is saved of node 'loss'"):
        run(wiring, settings(), lacking)
    empty = Checkpoint({**nodes, "linear": Saved()}, rest)
    with pytest.raises(ParametersError, match=r"'linear'.*lacks 'retired_examples'"):
        run(wiring, settings(), empty)
    nowhere = Checkpoint(nodes, Saved({"place": {"epoch": 1}}))
    with pytest.raises(CheckpointError, match="no place in a run"):
        run(wiring, settings(), nowhere)
