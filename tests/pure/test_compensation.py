"""`compensation` of a config: where it may stand, what is refused, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scripted import Delivery, ScriptedRun
from wirings import examples, recurrent

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Split
from amp_runtime.errors import AmpError
from amp_runtime.nodes.statistics import Histogram
from amp_runtime.nodes.updates import Schedule
from amp_runtime.prepare import prepare_file
from amp_runtime.reference import Reference
from amp_runtime.remedies import automatic
from workers.registry import Registry

LENGTHS = [1, 4, 2, 7, 3, 3, 5, 1, 2, 6, 2, 4]
ADAM = {"name": "adam", "lr": 0.01}
ALL = {
    "predict": "linear", "horizon": "measured", "step_size": "annealed", "anneal_over": 50,
    "drop_beyond": 6,
}  # fmt: skip


def trained(
    compensation: Any = None, *, synchronous: bool = False, keys: int = 6, optimizer: Any = ADAM
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return the parameters of the RNN after three epochs in one process, and the reports."""
    options = {} if compensation is None else {"compensation": compensation}
    wiring = recurrent(training={"optimizer": optimizer, "update_every": 2, **options})
    settings = ControllerSettings(
        update_every=2, max_epochs=3, seed=5, max_active_keys=keys, verify=True,
        schedule=Schedule.SYNCHRONOUS if synchronous else Schedule.ASYNCHRONOUS,
    )  # fmt: skip
    run = Reference(wiring, Registry(), examples(LENGTHS), examples(LENGTHS[:4], 1), settings)
    run.run()
    parameters = {
        f"{node.name}.{name}": array.copy()
        for node in run.host.parameterised()
        for name, array in node.parameters.items()
    }
    return parameters, run.host.report().nodes


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    assert a.keys() == b.keys()
    return all((a[name] == b[name]).all() for name in a)


PLAIN = trained("none")[0]
AHEAD = {"predict": "linear", "momentum": "raised"}


@pytest.mark.parametrize(
    "off",
    [
        "none",
        {"drop_beyond": 10_000},
        {"predict": "linear", "predict_after": 1_000_000},
        {"predict": "decaying", "predict_after": 1_000_000, "drop_beyond": 10_000},
    ],
    ids=str,
)
def test_a_remedy_that_is_off_is_the_plain_runtime_to_the_bit(off):
    assert same(trained(off)[0], PLAIN)


@pytest.mark.parametrize(
    "compensation", [ALL, "auto", {"predict": "decaying", "horizon": 4.0}], ids=str
)
def test_the_synchronous_schedule_is_left_alone_to_the_bit(compensation):
    plain, _ = trained("none", synchronous=True)
    assert same(trained(compensation, synchronous=True)[0], plain)


@pytest.mark.parametrize(
    "on",
    [
        "auto",
        {"predict": "linear"},
        {"predict": "decaying"},
        {"step_size": "by_row"},
        {"step_size": "by_node"},
        {"step_size": "annealed", "anneal_over": 50},
        {"drop_beyond": 0},
    ],
    ids=str,
)
def test_every_remedy_changes_an_asynchronous_run(on):
    parameters, reports = trained(on)
    assert not same(parameters, PLAIN)
    assert all(np.isfinite(array).all() for array in parameters.values())
    node = reports["linear-1"]
    if on == "auto" or "predict" in on:
        mean = node.staleness
        assert 0 < node.horizon < len(mean)
    assert (node.dropped or 0) > 0 if "drop_beyond" in on else node.dropped is None


def test_a_raised_momentum_changes_an_asynchronous_run():
    low = {"name": "adam", "lr": 0.01, "beta1": 0.5}
    raised, _ = trained({"momentum": "raised"}, optimizer=low)
    assert not same(raised, trained("none", optimizer=low)[0])


def test_auto_is_the_default():
    assert same(trained()[0], trained("auto")[0])


def test_auto_does_nothing_at_a_node_that_is_hardly_stale():
    at_rest, reports = trained("auto", keys=1)
    assert same(at_rest, trained("none", keys=1)[0])
    assert all(report.horizon is None for report in reports.values())


@pytest.mark.parametrize(
    ("optimizer", "meant"),
    [
        (ADAM, AHEAD),
        ({"name": "adamw", "lr": 0.01}, AHEAD),
        ({"name": "sgd", "lr": 0.05, "momentum": 0.9}, AHEAD),
        ({"name": "rmsprop", "lr": 0.01, "momentum": 0.5}, AHEAD),
        ({"name": "sgd", "lr": 0.05}, {"step_size": "by_node"}),
        ({"name": "rmsprop", "lr": 0.01}, {"step_size": "by_node"}),
        ({"name": "adagrad", "lr": 0.05}, {"step_size": "by_node"}),
    ],
    ids=str,
)
def test_auto_is_by_optimizer_what_it_says(optimizer, meant, monkeypatch):
    monkeypatch.setattr(automatic, "ONSET", 0.0)  # from the first update with a stale row
    found, _ = trained("auto", optimizer=optimizer)
    assert same(found, trained(meant, optimizer=optimizer)[0])
    assert not same(found, trained("none", optimizer=optimizer)[0])


def test_auto_takes_smaller_steps_of_a_table_whose_rows_move_seldom():
    graph = recurrent(
        training={"optimizer": ADAM, "update_every": 2}, overrides={"embedding": {"sparse": "lazy"}}
    )
    settings = ControllerSettings(update_every=2, max_epochs=3, seed=5, max_active_keys=6)
    run = Reference(graph, Registry(), examples(LENGTHS), examples(LENGTHS[:4], 1), settings)
    run.run()
    nodes = {node.name: node for node in run.host.parameterised()}
    assert nodes["linear-1"].remedies.horizon > 0
    table = nodes["embedding"]
    assert table.remedies.horizon is None
    mean = table.remedies.staleness.mean
    assert mean > automatic.ONSET
    assert table.remedies.lr_factor() == pytest.approx((1 + mean) ** -0.5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weights", ["live", "stashed", "recompute"])
@pytest.mark.parametrize("form", ["linear", "decaying"])
def test_replicas_with_all_remedies_train_under_any_delivery_and_validate_as_saved(
    form, weights, seed
):
    compensation = {**ALL, "predict": form, "drop_beyond": 2}
    training = {
        "optimizer": ADAM, "update_every": 2, "backward_weights": weights,
        "compensation": compensation, "average_every": 2,
    }  # fmt: skip
    two = {"replicas": 2}
    wiring = recurrent(training=training, overrides={"linear-1": two, "embedding": two})
    settings = ControllerSettings(
        update_every=2, max_epochs=2, seed=5, max_active_keys=6, verify=True
    )
    train, valid = examples(LENGTHS), examples(LENGTHS[:4], 1)
    run = ScriptedRun.of(
        wiring, train, valid, settings, list(range(1, len(wiring.nodes) + 1)), seed=seed,
        delivery=Delivery.ANY,
    )  # fmt: skip
    finished = run.run()
    for host in run.hosts.values():
        host.assert_invariants()
    nodes = [node for host in run.hosts.values() for node in host.parameterised()]
    assert sum(node.remedies.dropped for node in nodes) > 0
    assert max(node.remedies.horizon for node in nodes) > 0
    plain = replace(settings, max_epochs=1, evaluate=Split.VALID)
    alone = Reference(
        recurrent(), Registry(), train, valid, plain, parameters=finished.parameters
    )  # fmt: skip
    alone.run()
    assert run.results[-1].split is alone.results[-1].split is Split.VALID
    for name, value in alone.results[-1].metrics.items():
        assert run.results[-1].metrics[name] == pytest.approx(value, rel=1e-12)


def test_in_warm_up_gradients_are_hardly_stale():
    def mean_staleness(warm_up: int) -> float:
        wiring = recurrent(training={"optimizer": ADAM, "update_every": 4})
        settings = ControllerSettings(
            update_every=4, max_epochs=3, seed=5, max_active_keys=12, warm_up_examples=warm_up
        )
        data = examples(LENGTHS * 4)
        run = Reference(wiring, Registry(), data, data, settings)
        run.run()
        return Histogram(run.host.report().nodes["linear-1"].staleness).mean

    assert mean_staleness(1_000_000) < 0.3 * mean_staleness(0)


# ------------------------------------------------------------------------------------ YAML


def written(tmp_path: Path, training: dict[str, Any], **nodes: Any) -> Path:
    """Return the path of a config of the RNN on list reduction."""
    path = tmp_path / "config.yaml"
    config = {
        "name": "short",
        "model": {"builder": "rnn", "hidden": 8, "embedding": 8},
        "data": {"source": "list_reduction", "train": 40, "valid": 10},
        "training": training,
        "nodes": nodes,
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def prepared(path: Path, *overrides: str) -> Any:
    return prepare_file(path, overrides, Registry())


def test_a_node_has_its_own_instead_of_that_of_all(tmp_path):
    path = written(
        tmp_path,
        {"optimizer": ADAM, "compensation": {"predict": "linear", "drop_beyond": 9}},
        **{"embedding": {"compensation": "none"}, "linear-1": {"compensation": {"drop_beyond": 3}}},
    )
    found = {node.name: node.training.get("compensation") for node in prepared(path).wiring.nodes}
    defaults = {
        "predict": "none", "horizon": "measured", "predict_after": 0, "momentum": "as_given",
        "step_size": "plain", "anneal_over": None, "drop_beyond": None,
    }  # fmt: skip
    assert found["embedding"] == "none"
    assert found["linear-1"] == {**defaults, "drop_beyond": 3}
    assert found["linear-2"] == {**defaults, "predict": "linear", "drop_beyond": 9}


@pytest.mark.parametrize(
    ("training", "nodes", "place", "said"),
    [
        (
            {"optimizer": {"name": "adagrad", "lr": 0.1}, "compensation": {"predict": "linear"}},
            {},
            r"config.yaml:1[0-9]",
            "training.compensation: predict: linear .* adagrad keeps none; use predict: last_upd",
        ),
        (
            {"optimizer": ADAM, "compensation": {"predict": "linear"}},
            {"linear-1": {"optimizer": {"name": "sgd", "lr": 0.1}}},
            r"config.yaml:17",
            "nodes.linear-1.compensation: .* sgd without momentum keeps none; give it a momentum",
        ),
        (
            {"optimizer": ADAM, "compensation": {"predict": "linear"}},
            {"embedding": {"sparse": "lazy"}},
            r"config.yaml:17",
            "node 'embedding'.*option 'compensation': .*sparse: lazy.*compensation: none",
        ),
        (
            {"optimizer": ADAM, "compensation": {"predict": "last_update"}},
            {},
            r"config.yaml:\d+",
            "node 'embedding'.*would copy all of 'table'.*compensation: none",
        ),
        ({"optimizer": ADAM, "compensation": "best"}, {}, r"yaml:1[0-9]", "training.compensation"),
    ],
)
def test_what_does_not_go_together_is_refused_at_its_line(tmp_path, training, nodes, place, said):
    with pytest.raises(AmpError, match=f"(?s){place}.*{said}") as raised:
        prepared(written(tmp_path, training, **nodes))
    assert raised.value.exit_code == 78


def test_a_synchronous_run_is_told_that_nothing_is_compensated(tmp_path):
    path = written(tmp_path, {"optimizer": ADAM, "compensation": {"predict": "linear"}})
    note = "training.schedule is synchronous, without delay: compensation does nothing"
    warm_up = "training.warm_up_examples=1000", note.replace("compensation", "warm_up_examples")
    assert warm_up[1] not in prepared(path, warm_up[0]).notes
    assert warm_up[1] in prepared(path, warm_up[0], "training.schedule=synchronous").notes
    assert note not in prepared(path).notes
    assert note in prepared(path, "training.schedule=synchronous").notes


def test_the_example_of_the_docs_is_accepted(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "compensation.md"
    given = yaml.safe_load(page.read_text().split("```yaml")[1].split("```")[0])
    path = written(tmp_path, given["training"], **given["nodes"])
    found = {node.name: node.training.get("compensation") for node in prepared(path).wiring.nodes}
    assert found["embedding"] == "none"
    assert (found["linear-1"]["predict"], found["linear-2"]["anneal_over"]) == ("linear", 2000)
