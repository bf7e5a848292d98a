"""Replicas of a node: who serves which instance, and how they stay, or become, one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from kinds import floats, make
from scripted import Delivery, ScriptedRun
from wirings import chain, examples, recurrent

from amp_runtime.checking.rules import ConfigProblemsError
from amp_runtime.config.schema import load_config
from amp_runtime.control.actions import Finished
from amp_runtime.control.parameters import NodeParameters
from amp_runtime.control.replicas import Replicas
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.errors import InvariantError, LifecycleError, WireError
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.replica import AveragedReplica
from amp_runtime.nodes.updates import Schedule
from amp_runtime.prepare import prepare
from amp_runtime.reference import Reference
from amp_runtime.rows.message import dealt
from amp_runtime.wire.protocol import AskShare, GoOn, Share
from workers.registry import Registry

LENGTHS = [1, 4, 2, 7, 3, 3, 5, 1, 2, 6, 2, 4]
SCHEMES: list[dict[str, Any]] = [
    {"name": "mean"},
    {"name": "mean", "optimizer_state": "kept"},
    {"name": "mean", "optimizer_state": "reset"},
    {"name": "elastic"},
    {"name": "block_momentum"},
    {"name": "block_momentum", "nesterov": True},
]
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "adam": {"name": "adam", "lr": 0.01},
}


def scheme_id(options: Mapping[str, Any]) -> str:
    return "-".join(str(value) for value in options.values())


def graph(
    r: int, *, batch: int = 1, lazy: bool = False, each: int | None = None, **training: Any
) -> Wiring:
    """Return the RNN with `r` replicas of its recurrent node and of its embedding.

    Args:
        each: `update_every` of these nodes; None: that of all.
    """
    replicas = {"replicas": r, **({} if each is None else {"update_every": each})}
    sparse = {"sparse": "lazy"} if lazy else {}
    return recurrent(
        batch=batch,
        training={"optimizer": OPTIMIZERS["adam"], "update_every": 2, **training},
        overrides={"linear-1": replicas, "embedding": {**replicas, **sparse}},
    )


def settings(**given: Any) -> ControllerSettings:
    defaults = {"update_every": 4, "max_epochs": 3, "seed": 5, "max_active_keys": 4, "verify": True}
    return ControllerSettings(**{**defaults, **given})


def run(
    wiring: Wiring, lengths: Sequence[int] = LENGTHS, **given: Any
) -> tuple[Reference, Finished]:
    valid = examples([2, 3, 1], seed=1)
    made = Reference(wiring, Registry(), examples(lengths), valid, settings(**given))
    return made, made.run()


def close(ours: NodeParameters, theirs: NodeParameters, tolerance: float = 1e-12) -> None:
    assert ours.keys() == theirs.keys()
    for node, arrays in theirs.items():
        for name, array in arrays.items():
            scale = np.abs(array).max()
            assert np.abs(ours[node][name] - array).max() <= tolerance * scale, (node, name)


def replicas(made: Reference, ir_name: str) -> list[Any]:
    return [n for n in made.host.parameterised() if n.name.partition(".")[0] == ir_name]


# ----------------------------------------------------------------------------- the graph


def test_replicas_stand_in_the_graph_one_behind_the_other_and_begin_equal():
    wiring = graph(3)
    names = [node.name for node in wiring.nodes]
    at = names.index("linear-1.0")
    assert names[at : at + 3] == ["linear-1.0", "linear-1.1", "linear-1.2"]
    assert [n.ir_name for n in wiring.nodes[at : at + 3]] == ["linear-1"] * 3
    made = Reference(wiring, Registry(), examples([1]), examples([]), settings())
    first, *others = replicas(made, "linear-1")
    single = Reference(graph(1), Registry(), examples([1]), examples([]), settings())
    (only,) = replicas(single, "linear-1")
    for node in (*others, only):
        assert (node.parameters["weight"] == first.parameters["weight"]).all()


def test_an_output_leads_to_all_replicas_in_order_and_all_lead_on_to_one():
    wiring = graph(2)
    embedding = [wiring.number[f"embedding.{n}"] for n in range(2)]
    assert [wiring.input_ports[p][0] for p in wiring.targets[-1, "tokens"]] == embedding
    joined = {wiring.targets[node, "y"] for node in embedding}
    assert len(joined) == 1
    assert Wiring.from_plain(wiring.to_plain()) == wiring


@pytest.mark.parametrize("n", [2, 3])
def test_all_rows_of_an_instance_are_for_one_replica(n):
    instances = np.array([5, 7, 5, 9, 8, 7, 6])
    found = {replica: instances[rows].tolist() for replica, rows in dealt(instances, n)}
    assert (
        found
        == {
            2: {0: [8, 6], 1: [5, 7, 5, 9, 7]},
            3: {0: [9, 6], 1: [7, 7], 2: [5, 5, 8]},
        }[n]
    )
    assert list(dealt(np.array([4, 10, 4]), 6)) == [(4, None)]


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "two", 257])
def test_replicas_must_be_a_number_of_processes(given):
    with pytest.raises(ConfigProblemsError, match=r"nodes.linear-1.replicas: must be"):
        recurrent(overrides={"linear-1": {"replicas": given}})


def test_only_a_node_with_parameters_has_replicas():
    with pytest.raises(ConfigProblemsError, match=r"nodes.more.replicas.*kind cond has none"):
        recurrent(overrides={"more": {"replicas": 2}})


def test_the_settings_that_the_docs_show_are_those_of_a_config(tmp_path):
    root = Path(__file__).parents[2]
    shown = (root / "docs" / "replicas.md").read_text()
    settings = re.findall(r"```yaml\n(.*?)```", shown, re.DOTALL)
    assert len(settings) == 1
    (tmp_path / "x.yaml").write_text((root / "configs" / "list_reduction.yaml").read_text())
    given = yaml.safe_load(settings[0])
    words = [
        f"{section}.{name}={json.dumps(value)}"
        for section, keys in given.items()
        for name, value in keys.items()
    ]
    config = load_config(tmp_path / "x.yaml", [*words, "data.train=200", "data.valid=0"])
    wiring = prepare(config, Registry()).wiring
    (first, second) = (wiring.nodes[n].training for n in wiring.named("linear-1"))
    assert first == second
    assert (first["replicas"], first["update_every"], first["average_every"]) == (2, 100, 20)


# ----------------------------------------------------------------------- the synchronous


@pytest.mark.parametrize(
    ("optimizer", "lazy", "weights"),
    [
        ("sgd", False, "live"),
        ("adam", False, "live"),
        ("adam", True, "live"),
        ("adam", False, "stashed"),
        ("sgd", True, "recompute"),
    ],
)
def test_synchronous_any_number_of_replicas_equals_one(optimizer, lazy, weights):
    how = {"optimizer": OPTIMIZERS[optimizer], "lazy": lazy, "backward_weights": weights}
    single, wanted = run(graph(1, **how), schedule=Schedule.SYNCHRONOUS)
    for r in (2, 3, 20):  # 20: more than instances
        made, finished = run(graph(r, **how), schedule=Schedule.SYNCHRONOUS)
        close(finished.parameters, wanted.parameters)
        updates = {node.name: report.updates for node, report in node_reports(made)}
        assert set(updates.values()) == {9}
        for ours, theirs in zip(made.results, single.results, strict=True):
            assert ours.metrics == pytest.approx(theirs.metrics, rel=1e-12)


def node_reports(made: Reference) -> list[tuple[Any, Any]]:
    reports = made.controller.reports[1].nodes
    return [(node, reports[node.name]) for node in made.host.parameterised()]


@pytest.mark.parametrize("batch", [2, 3])
def test_synchronous_steps_are_divided_by_all_examples_whatever_an_instance_holds(batch):
    _, wanted = run(graph(1), schedule=Schedule.SYNCHRONOUS, update_every=6)
    _, found = run(graph(2, batch=batch), schedule=Schedule.SYNCHRONOUS, update_every=6)
    close(found.parameters, wanted.parameters)


def test_synchronous_replicas_ignore_how_they_would_be_averaged():
    _, wanted = run(graph(2), schedule=Schedule.SYNCHRONOUS)
    other = graph(2, averaging={"name": "block_momentum"}, average_every=1)
    _, found = run(other, schedule=Schedule.SYNCHRONOUS)
    close(found.parameters, wanted.parameters, tolerance=0.0)


# ---------------------------------------------------------------------- the asynchronous


@pytest.mark.parametrize("every", ["epoch", 1, 2])
@pytest.mark.parametrize("scheme", SCHEMES, ids=scheme_id)
@pytest.mark.parametrize("r", [2, 3])
def test_averaging_leaves_replicas_equal_to_the_bit_and_saves_what_was_evaluated(scheme, every, r):
    made, finished = run(graph(r, averaging=scheme, average_every=every))
    for ir_name in ("linear-1", "embedding"):
        nodes = replicas(made, ir_name)
        centre = finished.parameters[ir_name]
        for node in nodes:
            assert node.version
            for name, array in node.parameters.items():
                apart = scheme["name"] == "elastic" or "nesterov" in scheme
                assert ((array == centre[name]).all()) != apart
    # What was saved is what was evaluated last: evaluating it again gives the same numbers.
    again = Reference(
        graph(1),
        Registry(),
        examples([1]),
        examples([2, 3, 1], seed=1),
        settings(evaluate="valid"),
        parameters=finished.parameters,
    )
    again.run()
    assert again.results[0].metrics == made.results[-1].metrics


@pytest.mark.parametrize("scheme", SCHEMES, ids=scheme_id)
def test_a_replica_shares_every_so_many_updates_and_at_the_end_of_an_epoch(scheme):
    made, _ = run(graph(2, averaging=scheme, average_every="epoch"))
    seldom = {node.name: report.averagings for node, report in node_reports(made)}
    assert {seldom[f"linear-1.{n}"] for n in range(2)} == {3}  # epochs
    assert seldom["linear-2"] is None
    made, _ = run(graph(2, averaging=scheme, average_every=1))
    often = {node.name: report for node, report in node_reports(made)}
    assert all(often[f"linear-1.{n}"].averagings >= often[f"linear-1.{n}"].updates for n in (0, 1))


def test_replicas_share_the_rows_and_the_examples_of_one():
    single, _ = run(graph(1))
    made, _ = run(graph(3))
    rows = {node.name: report for node, report in node_reports(made)}
    alone = {node.name: report for node, report in node_reports(single)}
    for ir_name in ("linear-1", "embedding"):
        some = [rows[f"{ir_name}.{n}"] for n in range(3)]
        assert all(report.rows_forward for report in some)
        for counted in ("rows_forward", "rows_backward"):
            total = sum(getattr(report, counted) for report in some)
            assert total == getattr(alone[ir_name], counted)
    assert [r.examples for r in made.results] == [12, 3] * 3


def test_each_replica_updates_after_update_every_examples_of_its_own():
    # Two replicas, instances of one example by turns: 12 examples are 6 for each.
    made, _ = run(graph(2, update_every=3), [2] * 12, max_active_keys=1, max_epochs=1)
    updates = {node.name: report.updates for node, report in node_reports(made)}
    assert updates == {
        "embedding.0": 2,
        "embedding.1": 2,
        "linear-1.0": 2,
        "linear-1.1": 2,
        "linear-2": 4,
    }


def test_plain_averaging_of_sgd_is_the_mean_of_what_each_learns_alone():
    # One update each, from one start: the mean of both is the update of the mean gradient.
    sgd = {"optimizer": {"name": "sgd", "lr": 0.5}}
    all_in_one = {"max_epochs": 1, "update_every": 12}
    _, both = run(graph(2, each=6, update_every=12, **sgd), **all_in_one)
    _, single = run(graph(1, **sgd), schedule=Schedule.SYNCHRONOUS, **all_in_one)
    close(both.parameters, single.parameters)


@pytest.mark.parametrize("scheme", SCHEMES, ids=scheme_id)
@pytest.mark.parametrize("every", ["epoch", 1])
def test_more_replicas_than_instances_train(scheme, every):
    made, finished = run(
        graph(5, averaging=scheme, average_every=every), lengths=[2, 3], max_epochs=4
    )
    single, _ = run(graph(1), lengths=[2, 3], max_epochs=4)
    assert [r.examples for r in made.results] == [r.examples for r in single.results]
    began = Reference(graph(1), Registry(), examples([1]), examples([]), settings())
    (start,) = replicas(began, "linear-1")
    assert (finished.parameters["linear-1"]["weight"] != start.parameters["weight"]).any()


@pytest.mark.parametrize("lengths", [[], [3]])
def test_no_example_or_one_is_no_error(lengths):
    _, finished = run(graph(3), lengths=lengths)
    assert set(finished.parameters) == {"embedding", "linear-1", "linear-2"}


def test_training_may_begin_with_given_parameters_in_every_replica():
    given = {"embedding": {"table": np.full((10, 2), 0.25)}}
    made = Reference(
        graph(2), Registry(), examples([]), examples([]), settings(max_epochs=0), parameters=given
    )
    finished = made.run()
    assert (finished.parameters["embedding"]["table"] == 0.25).all()
    for node in replicas(made, "embedding"):
        assert (node.parameters["table"] == 0.25).all()


# --------------------------------------------------------------------- delivery in any order


def peers(wiring: Wiring) -> list[int]:
    """A worker for each node."""
    return [number + 1 for number in range(len(wiring.nodes))]


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("schedule", list(Schedule))
def test_replicas_in_workers_of_their_own_in_any_order_of_delivery(delivery, schedule):
    wanted = run(graph(1), schedule=schedule)[1].parameters
    for seed in range(2):
        scheme = SCHEMES[(seed + len(delivery)) % len(SCHEMES)]
        wiring = graph(2 + seed % 2, averaging=scheme, average_every=1 + seed)
        made = ScriptedRun.of(
            wiring,
            examples(LENGTHS),
            examples([2, 3, 1], seed=1),
            settings(schedule=schedule),
            peers(wiring),
            seed=seed,
            delivery=delivery,
        )
        made.row_by_row = seed == 1
        finished = made.run()
        assert [r.examples for r in made.results] == [12, 3] * 3
        if schedule is Schedule.SYNCHRONOUS:
            close(finished.parameters, wanted, tolerance=1e-9)


# ----------------------------------------------------------------------- what may not come


def share(node: str, worker: int, barrier: int = 0, **arrays: np.ndarray) -> Share:
    return Share(worker, node, barrier, 1, 1, arrays, {})


def test_a_share_that_nobody_asked_for_is_refused_by_name():
    wiring = chain(overrides={"linear": {"replicas": 2}})
    made = Replicas(wiring, peers(wiring), Schedule.ASYNCHRONOUS)
    with pytest.raises(LifecycleError, match=r"worker 2 shared 'loss' unasked"):
        made.on_share(share("loss", 2), 0)
    with pytest.raises(LifecycleError, match=r"worker 1 shared 'linear.0' unasked"):
        made.on_share(share("linear.0", 1), 0)
    with pytest.raises(LifecycleError, match=r"worker 0 shared 'linear.0' unasked"):
        made.on_share(share("linear.0", 0, barrier=7), 3)
    with pytest.raises(LifecycleError, match=r"'linear.0' shared before it began"):
        made.on_share(share("linear.0", 0), 0)
    ones = np.ones((2, 2))
    made.on_share(share("linear.0", 0, 3, weight=ones), 3)
    with pytest.raises(WireError, match=r"'linear.1' shared \['weight'\]"):
        made.on_share(share("linear.1", 1, 3, weight=np.ones((2, 3))), 3)
    made.on_share(share("linear.1", 1, 3, weight=ones), 3)
    made.begin()
    (asked,) = made.on_share(share("linear.0", 0, weight=ones), 0)
    assert (asked.peer, asked.record) == (2, AskShare("linear.1"))
    with pytest.raises(LifecycleError, match=r"'linear.0' shared twice"):
        made.on_share(share("linear.0", 0, weight=ones), 0)
    told = made.on_share(share("linear.1", 1, weight=3 * ones), 0)
    assert [(t.peer, t.record.node) for t in told] == [(1, "linear.0"), (2, "linear.1")]
    for t in told:
        assert isinstance(t.record, GoOn)
        assert t.record.arrays["weight"].tolist() == (2 * ones).tolist()


def test_what_was_shared_before_a_barrier_no_longer_counts_there():
    wiring = chain(overrides={"linear": {"replicas": 2}})
    made = Replicas(wiring, peers(wiring), Schedule.ASYNCHRONOUS)
    for n in (0, 1):
        made.on_share(share(f"linear.{n}", n, 1, weight=np.zeros((2, 2))), 1)
    made.begin()
    made.on_share(share("linear.0", 0, weight=np.full((2, 2), 9.0)), 0)
    made.abandon()
    assert made.on_share(share("linear.1", 1, weight=np.full((2, 2), 9.0)), 2) == []
    for n in (0, 1):
        made.on_share(share(f"linear.{n}", n, 2, weight=np.full((2, 2), float(n))), 2)
    told = [t.record for t in made.meet(evaluate=True)]
    assert [record.arrays["weight"].tolist() for record in told] == [[[0.5] * 2] * 2] * 2


def test_what_was_shared_and_not_answered_before_a_barrier_is_news_there():
    node = make("linear", floats(1), features=1)
    replica = AveragedReplica(node, 2, "kept")
    node.version += 2  # updates
    assert replica.due
    assert replica.share(at_barrier=False).count == 2
    held = replica.share(at_barrier=True)
    assert held.count == 2
    replica.go_on(held)
    assert not replica.due
    node.version += 1
    assert replica.share(at_barrier=True).count == 1


def test_replicas_that_ought_to_be_equal_and_are_not_end_the_run_by_name():
    wiring = chain(overrides={"linear": {"replicas": 2}})
    made = Replicas(wiring, peers(wiring), Schedule.SYNCHRONOUS)
    found = {f"linear.{n}": {"weight": np.full((2, 2), float(n))} for n in (0, 1)}
    with pytest.raises(InvariantError, match=r"'weight' of replicas 'linear.0' and 'linear.1'"):
        made.merged(found)
