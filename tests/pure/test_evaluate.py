"""Evaluation: a run's parameters give a run's numbers, forward only, and others are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kinds import floats, make
from scripted import Delivery, ScriptedRun
from wirings import chain, examples, recurrent

from amp_runtime.commands.evaluate import _sorted_out
from amp_runtime.control.controller import Controller
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Split
from amp_runtime.errors import ParametersError, UsageError, WireError
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import NodeHost
from amp_runtime.nodes.updates import Schedule
from amp_runtime.reference import Reference
from amp_runtime.wire.protocol import SetParameters
from workers.registry import Registry

TRAIN, VALID = examples([1, 4, 2, 7, 3, 3, 5]), examples([2, 3, 1], seed=1)
SETTINGS = ControllerSettings(update_every=3, max_epochs=3, seed=5)


def trained(wiring: Any, settings: ControllerSettings = SETTINGS) -> tuple[Reference, Any]:
    made = Reference(wiring, Registry(), TRAIN, VALID, settings)
    return made, made.run().parameters


def evaluated(wiring: Any, parameters: Any, split: Split = Split.VALID, **given: Any) -> Reference:
    settings = replace(SETTINGS, evaluate=split, **{"seed": 99, **given})
    made = Reference(wiring, Registry(), TRAIN, VALID, settings, parameters=parameters)
    assert made.run().why == "evaluated"
    return made


@pytest.mark.parametrize("keys", [1, 50])
@pytest.mark.parametrize("wiring", [chain, recurrent])
def test_evaluating_gives_the_numbers_of_the_last_validation(wiring, keys):
    run, parameters = trained(wiring())
    (result,) = evaluated(wiring(), parameters, max_active_keys=keys).results
    assert (result.split, result.examples, result.complete) == ("valid", 3, True)
    assert result.metrics == pytest.approx(dict(run.results[-1].metrics), rel=1e-12)
    assert result.staleness is None


def test_evaluating_the_training_examples_is_their_loss_with_parameters_that_stand_still():
    _, parameters = trained(chain())
    made = evaluated(chain(), parameters, Split.TRAIN)
    (result,) = made.results
    weight, bias = (parameters["linear"][name] for name in ("weight", "bias"))
    logits = TRAIN.field("vector").values @ weight + bias
    label = TRAIN.field("label").values
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(label)), label]
    assert result.metrics["loss"] == pytest.approx(losses.mean(), rel=1e-12)
    (node,) = made.host.parameterised()
    assert node.version == 0
    assert (node.parameters["weight"] == weight).all()


def test_the_synchronous_schedule_evaluates_too():
    run, parameters = trained(recurrent(), replace(SETTINGS, schedule=Schedule.SYNCHRONOUS))
    made = evaluated(recurrent(), parameters, schedule=Schedule.SYNCHRONOUS)
    assert made.results[0].metrics == pytest.approx(dict(run.results[-1].metrics), rel=1e-12)


@pytest.mark.parametrize("delivery", list(Delivery))
def test_over_several_workers_rows_never_overtake_the_parameters(delivery):
    run, parameters = trained(recurrent())
    wiring = recurrent()
    settings = replace(SETTINGS, evaluate=Split.VALID, seed=99)
    peers = [1 + i % 3 for i in range(len(wiring.nodes))]
    for seed in range(5):
        made = ScriptedRun.of(
            wiring, TRAIN, VALID, settings, peers,
            seed=seed, delivery=delivery, parameters=parameters,
        )  # fmt: skip
        made.run()
        (result,) = made.results
        assert result.metrics == pytest.approx(dict(run.results[-1].metrics), rel=1e-12)


def test_limits_of_training_do_not_cut_an_evaluation_short():
    _, parameters = trained(chain())
    limits = {"max_examples": 1, "max_minutes": 1e-9, "max_age": 1}
    (result,) = evaluated(chain(), parameters, Split.TRAIN, **limits).results
    assert (result.examples, result.complete) == (len(TRAIN), True)


def test_no_examples_is_said():
    _, parameters = trained(chain())
    settings = replace(SETTINGS, evaluate=Split.VALID)
    made = Reference(chain(), Registry(), TRAIN, examples([]), settings, parameters=parameters)
    assert made.run().why == "no examples to evaluate"
    assert made.results == []


def test_a_run_may_begin_with_given_parameters():
    wiring, settings = chain(), replace(SETTINGS, schedule=Schedule.SYNCHRONOUS, max_epochs=1)
    weight = np.array([[1.0, 2.0], [3.0, 4.0]])
    given = {"linear": {"weight": weight, "bias": np.zeros(2)}}
    made = Reference(wiring, Registry(), examples([1]), VALID, settings, parameters=given)
    made.run()
    (node,) = made.host.parameterised()
    assert node.version == 1
    assert np.abs(node.parameters["weight"] - weight).max() < 0.2  # one step of lr 0.1 away
    assert weight.tolist() == [[1, 2], [3, 4]]  # a copy was taken


# -------------------------------------------------------------------------- what is refused


def test_nodes_that_do_not_fit_are_all_named():
    settings = replace(SETTINGS, evaluate=Split.TRAIN)
    with pytest.raises(
        ParametersError,
        match=r"no parameters for node 'linear'; parameters for 'linaer', which is no node \(did "
        r"you mean 'linear'\?\); the model must be",
    ):
        Controller(chain(), TRAIN, VALID, settings, [1, 1], parameters={"linaer": {}})


def test_who_trains_may_give_the_parameters_of_some_nodes():
    wiring, settings = recurrent(), replace(SETTINGS, max_epochs=0)
    table = np.arange(20.0).reshape(10, 2)
    made = Reference(
        wiring, Registry(), TRAIN, VALID, settings, parameters={"embedding": {"table": table}}
    )
    drawn = Reference(wiring, Registry(), TRAIN, VALID, settings)
    given, fresh = made.run().parameters, drawn.run().parameters
    assert (given["embedding"]["table"] == table).all()
    assert (given["linear-1"]["weight"] == fresh["linear-1"]["weight"]).all()
    with pytest.raises(ParametersError, match=r"parameters for 'linaer', which is no node"):
        Controller(wiring, TRAIN, VALID, settings, [1] * 8, parameters={"linaer": {}})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weight": np.zeros((2, 3))}, "is given no 'bias'"),
        (
            {"weight": np.zeros((3, 2)), "bias": np.zeros(3)},
            r"node 'n' \(kind linear\): is given 'weight' as float64\[3, 2\], but has "
            r"float64\[2, 3\]; the model must be",
        ),
        ({"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(3)}, r"as float32\[2, 3\]"),
        ({"weight": np.zeros((2, 3)), "bias": np.zeros(3), "x": np.ones(1)}, "has no array 'x'"),
    ],
)
def test_parameters_that_do_not_fit_are_named_and_none_is_taken(arrays, message):
    node = make("linear", floats(2), name="n", features=3)
    before = {name: array.copy() for name, array in node.parameters.items()}
    with pytest.raises(ParametersError, match=message):
        node.set_parameters(arrays)
    for name, array in node.parameters.items():
        assert (array == before[name]).all()


def test_a_worker_refuses_parameters_of_a_node_that_is_not_there():
    host = NodeHost(chain(), Registry(), HostSettings([1, 2]), 1)
    with pytest.raises(WireError, match="parameters for 'loss', which is no parameterised node"):
        host.on_record(SetParameters("loss", {}))


# ------------------------------------------------------------------------- the command line


def test_the_words_of_the_command_line_come_in_any_order():
    assert _sorted_out([]) == ("last", "valid", "", [])
    assert _sorted_out(["split=train"]) == ("last", "train", "", [])
    assert _sorted_out(["data.path=x", "runs/a", "checkpoint=best", "split=train", "seed=1"]) == (
        "runs/a", "train", "best", ["data.path=x", "seed=1"],
    )  # fmt: skip
    with pytest.raises(UsageError, match="no split 'test'; split=valid or split=train"):
        _sorted_out(["split=test"])
    with pytest.raises(UsageError, match="two runs are named, a and b"):
        _sorted_out(["a", "b"])
