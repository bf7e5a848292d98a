"""`delay`: which past weights rows are computed with, what is counted, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from kinds import f64, floats, make, only, rows, slots
from scripted import RUN, ScriptedRun
from wirings import PerExample, examples, new_graph, recurrent

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.delay.draws import Recorded, make_delays, quantiles
from amp_runtime.errors import AmpError, StartError
from amp_runtime.nodes.generators import node_key
from amp_runtime.nodes.statistics import Histogram
from amp_runtime.nodes.updates import Schedule, UpdatePolicy
from amp_runtime.prepare import prepare_file
from amp_runtime.reference import Reference
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.remedies.options import Compensation
from amp_runtime.rows.message import Mode
from amp_runtime.trace.events import Updated, pack_updated, unpack
from amp_runtime.trace.file import TraceReader, TraceWriter
from amp_runtime.trace.recorder import Recorder
from amp_runtime.trace.staleness import updates_of, windows
from workers.registry import Registry

EACH_ROW = UpdatePolicy(min_update_frequency=1)
SGD = {"name": "sgd", "lr": 1.0, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
ADAM = {"name": "adam", "lr": 0.05}
KEY = node_key(3, "cell")
LIVE, STASHED, RECOMPUTE = BackwardWeights
LENGTHS = [1, 4, 2, 7, 3, 3, 5, 1, 2, 6, 2, 4]


def line(delay: Any, **given: Any) -> Any:
    """Return y = weight * x of one number, weight 8, that updates with each row."""
    training = {"delay": delay, **given.pop("training", {})}
    node = make(
        "linear", floats(1), features=1, bias=False, name="line", training=training,
        **{"updates": EACH_ROW, "optimizer": SGD, **given},
    )  # fmt: skip
    node.set_parameters({"weight": f64([[8.0]])})
    return node


def forward(node: Any, x: float = 1.0, instance: int = 1, mode: Mode = Mode.TRAIN) -> Any:
    return only(node.forward("x", rows(instance, x=[[x]]), mode))


def answer(node: Any, emitted: Any, gradient: float) -> float:
    """Answer a row with dL/dy; return dL/dx."""
    found = only(node.backward("y", slots(emitted), {"x": f64([[gradient]])}))
    node.accumulate()
    return float(found.gradient["x"][0, 0])


def weight(node: Any) -> float:
    return float(node.parameters["weight"][0, 0])


def y(emitted: Any) -> float:
    return float(emitted.payload["x"][0, 0])


# ------------------------------------------------------------------------------- one node


def test_a_row_is_computed_with_the_weights_of_so_many_updates_ago_or_the_first():
    node = line(2)
    seen = []
    for _ in range(5):
        emitted = forward(node)
        seen.append(y(emitted))
        answer(node, emitted, 1.0)  # the weight falls by 1
    assert seen == [8.0, 8.0, 8.0, 7.0, 6.0]
    assert weight(node) == 3.0
    assert node.staleness.counts.tolist() == [1, 1, 3]


@pytest.mark.parametrize(("weights", "to_x"), [(LIVE, 6.0), (STASHED, 8.0), (RECOMPUTE, 6.0)])
def test_its_backward_uses_the_weights_that_backward_weights_says(weights, to_x):
    node = line(2, training={"backward_weights": weights})
    for _ in range(2):
        answer(node, forward(node), 1.0)
    emitted = forward(node)
    assert (weight(node), y(emitted)) == (6.0, 8.0)
    assert answer(node, emitted, 1.0) == to_x
    node.assert_drained()


def test_past_weights_that_a_row_in_flight_needs_outlive_those_that_are_injected():
    node = line(1, training={"backward_weights": STASHED})
    answer(node, forward(node), 1.0)
    old = forward(node)  # of version 0, at version 1
    for _ in range(4):
        answer(node, forward(node), 1.0)
    assert list(node.delay.past) == [4]
    assert answer(node, old, 1.0) == 8.0
    assert node.staleness.counts.tolist() == [1, 4, 0, 0, 0, 1]
    node.assert_drained()


def test_injected_delay_and_that_of_the_run_add_up():
    node = line(3)
    for _ in range(3):
        answer(node, forward(node), 0.0)
    waiting = forward(node)
    for _ in range(2):
        answer(node, forward(node), 0.0)
    answer(node, waiting, 0.0)
    assert node.staleness.counts.tolist() == [1, 1, 1, 2, 0, 1]


def test_a_prediction_starts_from_the_past_weights_along_the_momentum_of_then():
    momentum = {**SGD, "momentum": 0.5}
    options = asdict(Compensation(predict="linear", horizon=2.0))
    node = line(2, optimizer=momentum, training={"compensation": options})
    weights, velocities = [8.0], [0.0]
    for gradient in (1.0, 3.0, -2.0, 4.0):
        answer(node, forward(node), gradient)
        velocities.append(0.5 * velocities[-1] + gradient)
        weights.append(weights[-1] - velocities[-1])
    assert weight(node) == weights[4]
    assert y(forward(node)) == weights[2] - 2 * velocities[2]


def test_the_horizon_that_is_measured_has_the_injected_delay_in_it():
    options = asdict(Compensation(predict="linear", horizon="measured"))
    slow = {**SGD, "lr": 1e-3, "momentum": 0.5}
    for updates in (EACH_ROW, UpdatePolicy(Schedule.SYNCHRONOUS)):
        node = line(3, optimizer=slow, training={"compensation": options}, updates=updates)
        for _ in range(100):
            answer(node, forward(node), 1.0)
            if updates is not EACH_ROW:
                node.step_for(1)
        assert node.version == 100
        assert node.remedies.horizon == pytest.approx(3.0, abs=1e-3)


def test_evaluation_is_not_delayed_and_parameters_that_are_set_have_no_past():
    node = line(2)
    for _ in range(3):
        answer(node, forward(node), 1.0)
    assert y(forward(node, mode=Mode.EVALUATE)) == weight(node) == 5.0
    node.set_parameters({"weight": f64([[1.0]])})
    assert y(forward(node)) == 1.0


def test_as_many_copies_are_held_as_updates_of_delay_and_none_without():
    assert line(0).delay is None
    node = line(4)
    for n in range(7):
        assert node.delay.n_bytes == min(n, 4) * 8
        answer(node, forward(node), 1.0)
    kept = {version: float(arrays["weight"][0, 0]) for version, arrays in node.delay.past.items()}
    assert kept == {3: 5.0, 4: 4.0, 5: 3.0, 6: 2.0}


def test_stashed_weights_share_the_copies_that_the_delay_holds():
    node = line(3, training={"backward_weights": STASHED})
    for _ in range(5):
        answer(node, forward(node), 1.0)
    emitted = forward(node)
    held = node.weights.versions.at(2, {})["weight"]
    assert held is node.delay.past[2]["weight"]
    answer(node, emitted, 1.0)


@pytest.mark.parametrize("weights", BackwardWeights)
def test_rows_of_one_batch_are_computed_each_with_its_own(weights):
    delay = {"name": "random", "low": 0, "high": 6}
    node = line(delay, training={"backward_weights": weights})
    for _ in range(8):
        answer(node, forward(node, instance=1), 1.0)
    instances = np.arange(40, dtype=np.int32)
    given = make_delays(delay, node_key(0, "line"), "").of(8, instances)
    assert set(given.tolist()) == set(range(7))
    before = {version: 8.0 - version for version in range(9)}
    emissions = node.forward("x", rows(instances, x=[[1.0]] * 40), Mode.TRAIN)
    assert sum(len(e.rows) for e in emissions) == 40
    for emission in emissions:
        for instance, out in zip(
            emission.rows.state[:, 0].tolist(), emission.rows.payload["x"][:, 0].tolist(),
            strict=True,
        ):  # fmt: skip
            assert out == before[8 - given[instance]]
    for emission in emissions:
        node.backward("y", slots(emission.rows), {"x": np.zeros((len(emission.rows), 1))})
    node.accumulate()
    added = np.bincount(given, minlength=7)
    assert (node.staleness.counts[:7] >= added).all()
    assert node.staleness.total == 48
    node.assert_drained()


def table(**training: Any) -> Any:
    tokens = floats()
    tokens = replace(tokens, arrays={"x": replace(tokens.arrays["x"], dtype="int32")})
    return make(
        "embedding", tokens, entries=5, features=2, updates=EACH_ROW,
        optimizer={**SGD, "momentum": 0.5}, training=training,
    )  # fmt: skip


def test_rows_of_a_table_are_of_past_versions_also_where_they_are_predicted():
    options = asdict(Compensation(predict="linear", horizon=3.0))
    for compensation in ("none", options):
        node, undelayed = (table(delay=d, compensation=compensation) for d in (2, 0))
        reads = []
        for token in (1, 3, 1, 4):
            reads.append(only(undelayed.forward("x", rows(x=[1, 3, 4]), Mode.TRAIN)).payload["x"])
            for each in (node, undelayed):
                emitted = only(each.forward("x", rows(x=[token]), Mode.TRAIN))
                each.backward("y", slots(emitted), {"x": f64([[1.0, -2.0]])})
                each.accumulate()
        found = only(node.forward("x", rows(x=[1, 3, 4]), Mode.TRAIN)).payload["x"]
        assert found.tolist() == reads[2].tolist()


# -------------------------------------------------------------------------- distributions


def test_a_draw_is_of_seed_node_and_instance_alone_and_like_any_other_number():
    instances = np.arange(4000, dtype=np.int32)
    one = quantiles(KEY, instances)
    assert (one == np.concatenate([quantiles(KEY, part) for part in np.split(instances, 8)])).all()
    counts, _ = np.histogram(one, 20, (0, 1))
    assert abs(counts - 200).max() < 5 * 200**0.5
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.08
    for other in (node_key(3, "other"), node_key(4, "cell")):
        assert abs(np.corrcoef(one, quantiles(other, instances))[0, 1]) < 0.08


@pytest.mark.parametrize(
    ("option", "shares"),
    [
        ({"name": "random", "low": 2, "high": 5}, [0, 0, 0.25, 0.25, 0.25, 0.25]),
        ({"name": "geometric", "mean": 1.0, "high": 3}, [8 / 15, 4 / 15, 2 / 15, 1 / 15]),
    ],
    ids=str,
)
def test_instances_are_delayed_as_the_distribution_says(option, shares):
    delays = make_delays(option, KEY, "")
    found = delays.of(9, np.arange(8000, dtype=np.int32))
    assert delays.most == len(shares) - 1
    assert np.bincount(found) / 8000 == pytest.approx(shares, abs=0.02)


def test_a_trace_is_gone_through_by_updates_and_then_anew():
    instances = np.arange(3000, dtype=np.int32)
    delays = Recorded(KEY, [(2, [0], [7]), (1, [1, 4], [30, 10])])
    assert delays.most == 4
    for version in (0, 1, 3, 4):
        assert (delays.of(version, instances) == 0).all()
    for version in (2, 5):
        counts = np.bincount(delays.of(version, instances), minlength=5)
        assert counts[[1, 4]] / 3000 == pytest.approx([0.75, 0.25], abs=0.03)
        assert counts.sum() == counts[1] + counts[4]


def updated(*counts: int, versions: int = 1) -> Updated:
    """Return an update of `counts[s]` rows of staleness s."""
    (event,) = unpack(pack_updated(0, versions, np.array(counts)))
    assert isinstance(event, Updated)
    return event


def test_each_update_of_a_trace_is_a_window_or_several_where_there_are_many():
    moved = updated(0)
    updates = [moved, updated(2), updated(0, 3), moved, updated(1, 0, 0, 4), moved, updated(5)]
    assert windows(updates) == [
        (1, [0], [2]), (2, [1], [3]), (2, [0, 3], [1, 4]), (1, [0], [5])
    ]  # fmt: skip
    assert windows(updates, most=2) == [(3, [0, 1], [2, 3]), (3, [0, 3], [6, 4])]
    assert windows(updates, most=3) == windows(updates, most=2)
    assert windows([moved, moved]) == []


def test_a_trace_that_was_not_read_is_told_at_the_first_row_of_training():
    node = line({"name": "trace", "run": "runs/some"})
    forward(node, mode=Mode.EVALUATE)
    with pytest.raises(StartError, match=r"line.*trace of run 'runs/some' was not read"):
        forward(node)


# ------------------------------------------------------------------------- in one process


def reference(
    wiring: Any, *, schedule: Schedule = Schedule.SYNCHRONOUS, lengths: Sequence[int] = LENGTHS,
    keys: int = 4, epochs: int = 4,
) -> Reference:  # fmt: skip
    settings = ControllerSettings(
        update_every=3, max_epochs=epochs, seed=5, max_active_keys=keys, verify=True,
        schedule=schedule,
    )  # fmt: skip
    run = Reference(wiring, Registry(), examples(lengths), examples(LENGTHS[:4], 1), settings)
    run.run()
    return run


def parameters(run: Reference) -> dict[str, np.ndarray[Any, Any]]:
    return {
        f"{node.name}.{name}": array
        for node in run.host.parameterised()
        for name, array in node.parameters.items()
    }


def delayed(delay: Any, **overrides: Any) -> Any:
    training = {
        "optimizer": ADAM, "update_every": 3, "delay": delay, "compensation": "none",
    }  # fmt: skip
    return recurrent(training=training, overrides={n: {"delay": d} for n, d in overrides.items()})


def test_delayed_adam_by_hand_is_what_two_linears_do_with_live_weights():
    """The dL/dx that goes back is of the weights of now, its activations of the past ones."""
    options = {"optimizer": {**ADAM, "eps": 1e-8}, "delay": 2, "compensation": "none"}
    graph = new_graph(training=options, overrides={"top": {"delay": 1}})
    x = graph.input("x", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    hidden = graph.add("linear", "hidden", x, features=3, activation="tanh")
    top = graph.add("linear", "top", hidden, features=2)
    graph.add("softmax_cross_entropy", "loss", top)
    wiring = graph.build()
    run = reference(wiring)
    begin = _untrained(wiring)
    wanted = by_hand(begin, {"hidden": 2, "top": 1})
    for name, array in parameters(run).items():
        gap = np.abs(array - wanted[name]).max() / np.abs(wanted[name]).max()
        assert gap <= 1e-10, name
        assert np.abs(array - begin[name]).max() > 0.01


def _untrained(wiring: Any) -> dict[str, np.ndarray[Any, Any]]:
    settings = ControllerSettings(seed=5)
    run = Reference(wiring, Registry(), examples([1]), examples([1]), settings)
    return {name: array.copy() for name, array in parameters(run).items()}


def by_hand(
    begin: dict[str, np.ndarray[Any, Any]], delay: dict[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    data = examples(LENGTHS)
    vectors, labels = data.fields["vector"].values, data.fields["label"].values
    now = {name: array.copy() for name, array in begin.items()}
    m = {name: np.zeros_like(array) for name, array in now.items()}
    v = {name: np.zeros_like(array) for name, array in now.items()}
    past: list[dict[str, np.ndarray[Any, Any]]] = []
    for epoch in range(1, 5):
        order = data.order(5, epoch)
        for start in range(0, len(order), 3):
            chosen = order[start : start + 3]
            past.append({name: array.copy() for name, array in now.items()})
            t = len(past)
            below, above = (past[max(t - 1 - delay[n], 0)] for n in ("hidden", "top"))
            x = vectors[chosen]
            h = np.tanh(x @ below["hidden.weight"] + below["hidden.bias"])
            logits = h @ above["top.weight"] + above["top.bias"]
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(p)), labels[chosen]] -= 1
            d = p / len(p)
            dh = (d @ now["top.weight"].T) * (1 - h * h)
            gradients = {
                "top.weight": h.T @ d, "top.bias": d.sum(axis=0),
                "hidden.weight": x.T @ dh, "hidden.bias": dh.sum(axis=0),
            }  # fmt: skip
            for name, g in gradients.items():
                m[name] = 0.9 * m[name] + 0.1 * g
                v[name] = 0.999 * v[name] + 0.001 * g * g
                step = m[name] / (1 - 0.9**t) / (np.sqrt(v[name] / (1 - 0.999**t)) + 1e-8)
                now[name] = now[name] - 0.05 * step
    return now


@pytest.mark.parametrize("schedule", Schedule)
def test_a_delay_of_nothing_is_the_plain_runtime_to_the_bit(schedule):
    plain = recurrent(training={"optimizer": ADAM, "update_every": 3, "compensation": "none"})
    one, two = (parameters(reference(w, schedule=schedule)) for w in (plain, delayed(0)))
    assert all((one[name] == two[name]).all() for name in one)
    three = parameters(reference(delayed(1), schedule=schedule))
    assert not any((one[name] == three[name]).all() for name in one)


def test_under_the_synchronous_schedule_staleness_is_the_delay_of_each_node():
    run = reference(delayed(2, embedding=0, **{"linear-2": 5}), epochs=8)
    n_updates = 8 * 4
    for node, delay in {"embedding": 0, "linear-1": 2, "linear-2": 5}.items():
        report = run.host.report().nodes[node]
        assert report.updates == n_updates
        assert len(report.staleness) == delay + 1
        # Each update has as many rows of this node in an epoch; the first few have younger ones.
        assert Histogram(report.staleness).percentile(0.25) == delay
        assert report.delay_bytes == (delay * _size(run, node) or None)


def _size(run: Reference, node: str) -> int:
    (found,) = (n for n in run.host.parameterised() if n.name == node)
    return sum(array.nbytes for array in found.parameters.values())


def test_a_random_delay_is_counted_and_depends_on_neither_merges_nor_placement():
    option = {"name": "random", "low": 1, "high": 4}
    one, two = (reference(delayed(option), epochs=20, keys=keys) for keys in (1, 6))
    a, b = parameters(one), parameters(two)
    for name, array in a.items():
        assert np.abs(array - b[name]).max() <= 1e-8 * np.abs(array).max()
    counts = one.host.report().nodes["linear-2"].staleness
    assert counts == two.host.report().nodes["linear-2"].staleness
    assert sum(counts) == 20 * len(LENGTHS)  # one row an example
    assert np.array(counts[1:]) / sum(counts) == pytest.approx([0.25] * 4, abs=0.1)


@pytest.mark.parametrize("weights", ["live", "stashed", "recompute"])
def test_an_asynchronous_run_adds_its_own_staleness(weights):
    def mean(delay: int) -> float:
        training = {
            "optimizer": ADAM, "update_every": 3, "delay": delay, "backward_weights": weights,
            "compensation": "none",
        }  # fmt: skip
        run = reference(
            recurrent(training=training), schedule=Schedule.ASYNCHRONOUS, keys=6, epochs=10
        )
        run.host.assert_invariants()
        return Histogram(run.host.report().nodes["linear-1"].staleness).mean

    assert mean(4) == pytest.approx(mean(0) + 4, abs=0.5)


def test_the_delays_of_a_recorded_run_are_had_again_without_any_of_its_own(tmp_path):
    """Under the synchronous schedule; by how much at each node, and when in the run."""
    lengths = LENGTHS * 8
    options = {"optimizer": ADAM, "update_every": 4, "compensation": "none"}
    wiring = recurrent(training=options)
    settings = ControllerSettings(update_every=4, max_epochs=3, seed=5, max_active_keys=16)
    peer_of = list(range(1, len(wiring.nodes) + 1))
    recorded = ScriptedRun.of(
        wiring, examples(lengths), examples(LENGTHS[:4], 1), settings, peer_of, seed=3,
        recorder_of=lambda p: Recorder(TraceWriter(tmp_path / f"w{p}", RUN, f"w{p}"), RUN, p),
    )  # fmt: skip
    recorded.run()
    nodes = []
    for number, spec in enumerate(wiring.nodes):
        trace = TraceReader(tmp_path / f"w{peer_of[number]}", RUN, f"w{peer_of[number]}")
        found = updates_of(trace).get(number)
        delay = {"name": "trace", "run": "x", "windows": windows(found or [])}
        given = {**spec.training, "delay": delay} if found else spec.training
        nodes.append(replace(spec, training=given))
    again = Reference(
        replace(wiring, nodes=tuple(nodes)), Registry(), examples(lengths), examples([1]),
        replace(settings, schedule=Schedule.SYNCHRONOUS),
    )  # fmt: skip
    again.run()
    means = {}
    for host in recorded.hosts.values():
        for node in host.parameterised():
            wanted, means[node.name] = node.staleness, node.staleness.mean
            report = again.host.report().nodes[node.name]
            found = Histogram(report.staleness)
            assert len(found.counts) <= len(np.trim_zeros(wanted.counts, "b"))
            assert found.mean == pytest.approx(wanted.mean, rel=0.1, abs=0.05)
            shares = (h.counts[: len(found.counts)] / h.total for h in (wanted, found))
            assert np.abs(np.subtract(*shares)).sum() / 2 < 0.1
    assert min(means["embedding"], means["linear-1"]) > 2 > 1 > means["linear-2"]


# ------------------------------------------------------------------------------------ YAML


def written(tmp_path: Path, training: dict[str, Any], **nodes: Any) -> Path:
    """Return the path of a config of the RNN on list reduction."""
    path = tmp_path / "config.yaml"
    config = {
        "name": "short",
        "model": {"builder": "rnn", "hidden": 8, "embedding": 8},
        "data": {"source": "list_reduction", "train": 40, "valid": 10},
        "training": {"optimizer": ADAM, **training},
        "nodes": nodes,
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def prepared(path: Path, *overrides: str) -> Any:
    return prepare_file(path, overrides, Registry())


def test_a_node_has_its_own_instead_of_that_of_all(tmp_path):
    random = {"name": "random", "high": 8}
    path = written(
        tmp_path, {"delay": random}, embedding={"delay": 0}, **{"linear-1": {"delay": 3}}
    )
    found = {node.name: node.training.get("delay") for node in prepared(path).wiring.nodes}
    assert (found["embedding"], found["linear-1"]) == (0, 3)
    assert found["linear-2"] == {"name": "random", "low": 0, "high": 8}
    assert found["loss"] is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (-1, r"yaml:\d+: training.delay: must be .*not -1"),
        (1001, r"yaml:\d+: training.delay: must be .*not 1001"),
        (2.5, r"yaml:\d+: training.delay: must be .*not 2.5"),
        (True, r"yaml:\d+: training.delay: must be .*not true"),
        ("often", r"yaml:\d+: training.delay: must be .*not .often"),
        ({"low": 1}, r"yaml:\d+: training.delay: must be a mapping with a name"),
        ({"name": "randm", "high": 3}, r"training.delay.name: unknown delay 'randm'.*'random'"),
        ({"name": "random", "low": 1}, r"training.delay.high: is missing|training.delay.high"),
        ({"name": "random", "low": 5, "high": 4}, r"training.delay: low: 5 is above high, 4"),
        ({"name": "trace", "run": "x", "windows": []}, r"training.delay.windows: unknown option"),
        ({"name": "geometric", "mean": 0, "high": 4}, r"training.delay.mean: must be .*not 0"),
    ],
    ids=str,
)
def test_what_is_no_delay_is_refused_at_its_line(tmp_path, given, said):
    with pytest.raises(AmpError, match=f"(?s){said}") as raised:
        prepared(written(tmp_path, {"delay": given}))
    assert raised.value.exit_code == 78


def test_a_node_without_parameters_has_no_weights_of_the_past(tmp_path):
    with pytest.raises(AmpError, match=r"yaml:\d+: nodes.loss.delay: is for nodes with parameters"):
        prepared(written(tmp_path, {}, loss={"delay": 2}))


def test_a_run_says_that_it_is_delayed_and_its_remedies_are_then_at_work(tmp_path):
    compensation = {"predict": "linear"}
    path = written(tmp_path, {"compensation": compensation, "schedule": "synchronous"})
    idle = "training.schedule is synchronous, without delay: compensation does nothing"
    assert idle in prepared(path).notes
    (note,) = (n for n in prepared(path, "training.delay=2", "nodes.linear-1.delay=0").notes
               if "delay" in n)  # fmt: skip
    assert note == (
        "delay: these nodes compute with weights of past updates, on purpose: embedding, linear-2"
    )


def test_the_example_of_the_docs_is_accepted(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "delay.md"
    given = yaml.safe_load(page.read_text().split("```yaml")[1].split("```")[0])
    path = written(tmp_path, given["training"], **given["nodes"])
    found = {node.name: node.training.get("delay") for node in prepared(path).wiring.nodes}
    assert (found["embedding"], found["linear-1"]) == (0, 4)
    assert found["linear-2"] == {"name": "random", "low": 0, "high": 8}
