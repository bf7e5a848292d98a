"""Random graphs under random and adversarial delivery: nothing is lost, nothing differs.

The recipe, the seeds and the delivery are hypothesis' and printed when a test fails.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import random_graphs
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from random_graphs import STEPS, build
from random_runs import EVERYTHING, N_TRAIN, data, quick, recipes, run_settings, scripted
from scripted import Delivery, ScriptedRun

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.nodes.updates import Schedule
from amp_runtime.optim.averaging import AVERAGING
from amp_runtime.reference import Reference
from amp_runtime.remedies.backward_weights import BackwardWeights
from workers.registry import Registry


def reference(wiring: Wiring, given: ControllerSettings, seed: int = 0) -> Reference:
    """Return a reference that has run to its end."""
    run = Reference(wiring, Registry(), *data(seed), given)
    run.run()
    return run


def same_parameters(one: Any, two: Any, tolerance: float) -> None:
    assert one.keys() == two.keys()
    for node, arrays in one.items():
        for name, array in arrays.items():
            np.testing.assert_allclose(
                array, two[node][name], rtol=0, atol=tolerance * max(1.0, np.abs(array).max()),
                err_msg=f"{node}.{name}",
            )  # fmt: skip


def same_metrics(run: ScriptedRun, expected: Reference) -> None:
    for one, two in zip(run.results, expected.results, strict=True):
        assert (one.split, one.epoch, one.examples) == (two.split, two.epoch, two.examples)
        assert one.metrics == pytest.approx(dict(two.metrics), rel=1e-9, abs=1e-12)


@quick
@given(
    recipe=recipes,
    seed=st.integers(0, 2**16),
    delivery=st.sampled_from(Delivery),
    keys=st.integers(1, 8),
    rows=st.none() | st.integers(1, 20),
    batch=st.integers(1, 3),
    verify=st.booleans(),
)
def test_synchronous_parameters_equal_those_of_the_reference_under_any_delivery(
    recipe, seed, delivery, keys, rows, batch, verify
):
    wiring = build(recipe, batch=batch)
    event(f"{len(wiring.nodes) // 5 * 5} nodes or more")
    expected = reference(wiring, run_settings(max_active_keys=1))
    given = run_settings(max_active_keys=keys, max_active_rows=rows, verify=verify)
    run = scripted(wiring, given, seed, delivery)
    versions = [n.version for h in run.hosts.values() for n in h.parameterised()]
    assert max(versions) == 2  # 3 and 3 examples, or 4 and 2
    assert run.finished is not None
    same_parameters(run.finished.parameters, expected._finished.parameters, 1e-9)
    same_metrics(run, expected)


@quick
@given(
    recipe=recipes,
    seed=st.integers(0, 2**16),
    delivery=st.sampled_from(Delivery),
    keys=st.integers(1, 8),
    batch=st.integers(1, 3),
    verify=st.booleans(),
    weights=st.sampled_from(BackwardWeights),
)
def test_an_asynchronous_run_retires_everything_under_any_delivery(
    recipe, seed, delivery, keys, batch, verify, weights
):
    wiring = build(recipe, batch=batch, backward_weights=weights)
    given = run_settings(Schedule.ASYNCHRONOUS, max_active_keys=keys, max_epochs=2, verify=verify)
    run = scripted(wiring, given, seed, delivery)
    for host in run.hosts.values():
        for node in host.parameterised():
            assert node.updates.rows == 0  # left-overs are applied at the end of an epoch
            assert not any(np.any(g) for g in node.gradients.values())


@settings(quick, max_examples=10)
@given(
    recipe=recipes,
    seed=st.integers(0, 2**16),
    delivery=st.sampled_from(Delivery),
    schedule=st.sampled_from(Schedule),
    replicas=st.integers(2, 3),
    scheme=st.sampled_from(list(AVERAGING)),
    every=st.sampled_from(["epoch", 1, 2]),
    weights=st.sampled_from(BackwardWeights),
)
def test_replicas_of_every_node_are_one_or_become_one_under_any_delivery(
    recipe, seed, delivery, schedule, replicas, scheme, every, weights
):
    averaging = {"averaging": {"name": scheme}, "average_every": every}
    wiring = build(recipe, backward_weights=weights, replicas=replicas, **averaging)
    run = scripted(wiring, run_settings(schedule), seed, delivery)
    assert run.finished is not None
    if schedule is Schedule.SYNCHRONOUS:
        expected = reference(build(recipe), run_settings(max_active_keys=1))
        same_parameters(run.finished.parameters, expected._finished.parameters, 1e-9)
        same_metrics(run, expected)
    elif scheme != "elastic":
        for host in run.hosts.values():
            for node in host.parameterised():
                centre = run.finished.parameters[node.context.ir_name]
                assert all((a == centre[name]).all() for name, a in node.parameters.items())


@settings(quick, max_examples=8)
@given(recipe=recipes, seed=st.integers(0, 2**16))
@example(recipe=EVERYTHING, seed=0)
@example(recipe=[(what, 0, 1, 3) for what in range(len(STEPS))], seed=1)
def test_gradients_match_finite_differences_of_the_whole_graphs_loss(recipe, seed):
    wiring = build(recipe, lr=1.0)
    one_step = run_settings(max_active_keys=4, update_every=N_TRAIN)

    def run(node: str = "", name: str = "", at: Any = (), change: float = 0.0) -> Reference:
        made = Reference(
            wiring,
            Registry(),
            random_graphs.examples(N_TRAIN, seed, longest=3),
            random_graphs.examples(0, 0),
            one_step,
        )
        if node:
            parameters(made)[node].parameters[name][at] += change
        made.run()
        return made

    def parameters(made: Reference) -> dict[str, Parameterised]:
        return {n.name: n for n in made.host.parameterised()}

    fresh = Reference(
        wiring, Registry(), random_graphs.examples(1, 0), random_graphs.examples(0, 0), one_step
    )
    before, after = parameters(fresh), parameters(run())
    generator = random.Random(seed)
    eps = 1e-5
    for node, old in before.items():
        name = generator.choice(sorted(old.parameters))
        at = tuple(generator.randrange(n) for n in old.parameters[name].shape)
        # One plain step with lr 1: the gradient of the mean loss is what was subtracted.
        gradient = old.parameters[name][at] - after[node].parameters[name][at]
        up, down = (
            run(node, name, at, change).results[0].metrics.get("loss", 0.0)
            for change in (eps, -eps)
        )
        assert gradient == pytest.approx((up - down) / (2 * eps), rel=1e-5, abs=1e-7)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(quick, max_examples=120)
@given(
    recipe=recipes,
    seed=st.integers(0, 2**32),
    delivery=st.sampled_from(Delivery),
    keys=st.integers(1, 8),
    batch=st.integers(1, 3),
)
def test_many_more_graphs(recipe, seed, delivery, keys, batch):
    wiring = build(recipe, batch=batch)
    expected = reference(wiring, run_settings(max_active_keys=1))
    run = scripted(wiring, run_settings(max_active_keys=keys), seed, delivery)
    assert run.finished is not None
    same_parameters(run.finished.parameters, expected._finished.parameters, 1e-9)
    same_metrics(run, expected)
