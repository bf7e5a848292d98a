"""Gated graph networks: gradients through the whole loop, graphs without edges, cost by edges."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from kinds import differences

from amp_runtime.control.in_flight import InFlight
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Split
from amp_runtime.data import load_split
from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.graphs.typed_graphs import Graphs
from amp_runtime.graph import Graph
from amp_runtime.graph.wiring import Wiring
from amp_runtime.models import ggsnn
from amp_runtime.nodes.updates import Schedule
from amp_runtime.reference import Reference
from amp_runtime.traffic import count
from tests.pure.test_qm9 import SMALL
from workers.registry import Registry

BUILDERS = {"node": ggsnn.select_node, "graph": ggsnn.regress_graph}


def build(
    data: Dataset, builder: str = "graph", *, n_types: int = 2, update_every: int = 1,
    scales: Mapping[str, Mapping[str, float]] | None = None, **options: int,
) -> Wiring:  # fmt: skip
    training = {"optimizer": {"name": "sgd", "lr": 1.0}, "update_every": update_every}
    graph = Graph(
        Registry(),
        fields={name: field.spec for name, field in data.fields.items()},
        entries={"edge_type": n_types},
        scales=scales,
        dtype="float64",
        training=training,
    )
    BUILDERS[builder](graph, **{"hidden": 3, "steps": 3, **options})
    return graph.build()


def graphs_of(edges: list[list[tuple[int, int, int]]], n_nodes: list[int]) -> Dataset:
    """Return graphs with edges (source, type, target); node 0 is annotated (1, 0), 1 (1, 1), ..."""
    table = np.array([edge for some in edges for edge in some]).reshape(-1, 3)
    graphs = Graphs.of(np.array(n_nodes), np.array([len(some) for some in edges]), table)
    n = len(graphs)
    return Dataset.from_columns(
        {
            "annotation": ([(1.0, at) for k in n_nodes for at in range(k)], np.array(n_nodes)),
            **graphs.columns(np.arange(n)),
            "label": np.zeros(n, np.int64),
            "target": np.arange(1.0, n + 1),
        },
        about=About(),
    ).astype("float64")


def run(wiring: Wiring, data: Dataset, **options: object) -> Reference:
    given = {"schedule": Schedule.SYNCHRONOUS, "update_every": len(data), "verify": True, **options}
    return Reference(wiring, Registry(), data, data, ControllerSettings(**given))


@pytest.mark.parametrize("builder", BUILDERS)
def test_the_gradient_of_a_whole_cyclic_graph_matches_finite_differences(builder):
    # A cycle of both types with an edge from a node to itself and a node alone; no edge; two.
    cycle = [(0, 0, 1), (1, 1, 2), (2, 0, 0), (2, 1, 2)]
    data = graphs_of([cycle, [], [(0, 1, 1), (1, 0, 0)]], [4, 2, 2])
    wiring = build(data, builder, update_every=len(data), hidden=2, steps=2)
    once = run(wiring, data)
    before = {
        node.name: {name: array.copy() for name, array in node.parameters.items()}
        for node in once.host.parameterised()
    }
    after = once.run().parameters

    def loss() -> float:
        evaluation = Reference(
            wiring, Registry(), data, data, ControllerSettings(evaluate=Split.TRAIN),
            parameters=before,
        )  # fmt: skip
        evaluation.run()
        return evaluation.results[0].metrics["loss"]

    assert once.results[0].metrics["loss"] == pytest.approx(loss(), rel=1e-12)
    for node, arrays in before.items():
        for name, array in arrays.items():
            step = array - after[node][name]  # the gradient: lr is 1, all examples make a step
            assert np.abs(step).max() > 0
            wanted = differences(loss, array)
            np.testing.assert_allclose(step, wanted, rtol=1e-6, atol=1e-8, err_msg=node + name)


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("n_types", [1, 3])
def test_graphs_without_edges_and_nodes_that_no_edge_reaches_train(builder, n_types):
    data = graphs_of([[], [(0, 0, 1)], []], [1, 3, 2])
    wiring = build(data, builder, n_types=n_types)
    reference = run(wiring, data)
    finished = reference.run()
    nodes = finished.reports[1].nodes
    assert reference.results[0].complete
    assert nodes["cell"].updates == 1
    assert nodes["message-0"].rows_forward == 3 * 2  # one edge, three steps, two stages
    assert [nodes[f"message-{n}"].updates for n in range(1, n_types)] == [0] * (n_types - 1)
    assert np.isfinite(reference.results[1].metrics["loss"])


def test_a_state_without_messages_is_that_worked_by_hand():
    # One node (1, 0), one step: no message, and weights of zeros in the cell.
    data = graphs_of([[]], [1])
    wiring = build(data, hidden=2, steps=1)
    parameters = {
        "message-0": {"weight": np.ones((2, 2)), "bias": np.ones(2)},
        "message-1": {"weight": np.ones((2, 2)), "bias": np.ones(2)},
        "cell": {"weight": np.zeros((4, 6)), "bias": np.zeros(6), "bias_h": np.zeros(2)},
        "gate": {"weight": np.zeros((4, 1)), "bias": np.zeros(1)},
        "value": {"weight": np.ones((2, 1)), "bias": np.zeros(1)},
    }
    reference = Reference(
        wiring, Registry(), data, data, ControllerSettings(evaluate=Split.TRAIN),
        parameters=parameters,
    )  # fmt: skip
    reference.run()
    # z = 1/2, n = 0: h = (1/2, 0); the value is 1/2, its gate 1/2; the target is 1.
    assert reference.results[0].metrics == {"loss": 0.75**2, "absolute_error": 0.75}


def rows_of(data: Dataset) -> dict[str, int]:
    wiring = build(data, n_types=3)
    rows = count(wiring, Registry(), data).rows
    return {node.name: rows[number] for number, node in enumerate(wiring.nodes)}


def test_work_follows_the_edges_there_are():
    ring = [(n, n % 2, (n + 1) % 40) for n in range(40)]
    few, many = rows_of(graphs_of([ring[:10]], [40])), rows_of(graphs_of([ring], [40]))
    same = {"start", "loop", "edges", "cell", "step", "more", "both", "gate", "value", "total"}
    assert {name for name in few if few[name] == many[name]} >= same
    assert (few["type"], many["type"]) == (3 * 10, 3 * 40)
    assert [many[f"message-{n}"] for n in range(3)] == [60, 60, 0]
    assert (few["sums"], many["sums"]) == (3 * (40 + 10), 3 * (40 + 40))


def test_the_error_is_told_in_the_units_that_the_data_source_says(tmp_path):
    np.savez(tmp_path / "x.npz", **SMALL)
    options = {"path": str(tmp_path / "x.npz"), "valid": 0}
    data = load_split("qm9", "train", 0, options).astype("float64")
    wiring = build(data, scales=data.about.scales, n_types=4, hidden=6)
    reference = run(wiring, data)
    reference.run()
    metrics = reference.results[0].metrics
    deviation = 5**0.5
    assert metrics["error_debye"] == pytest.approx(deviation * metrics["absolute_error"])
    assert metrics["error_ratio"] == pytest.approx(10 * deviation * metrics["absolute_error"])


def test_molecules_without_any_bond_train(tmp_path):
    none = {name: np.zeros(0, np.uint8) for name in ("edge_src", "edge_dst", "edge_type")}
    np.savez(tmp_path / "x.npz", **{**SMALL, **none, "edge_offset": np.zeros(5, np.int32)})
    options = {"path": str(tmp_path / "x.npz"), "valid": 0}
    data = load_split("qm9", "train", 0, options).astype("float64")
    wiring = build(data, scales=data.about.scales, n_types=4, hidden=6)
    reference = run(wiring, data, max_epochs=2)
    nodes = reference.run().reports[1].nodes
    assert [nodes[f"message-{n}"].rows_forward for n in range(4)] == [0] * 4
    assert nodes["cell"].updates == 2
    before, after = (reference.results[n].metrics["loss"] for n in (0, 2))
    assert after != before


def test_ten_thousand_graphs_are_in_flight_at_once(monkeypatch):
    n, seen = 10_000, []
    admit = InFlight.admit

    def admitted(self, *given):
        admit(self, *given)
        seen.append(self.instances)

    monkeypatch.setattr(InFlight, "admit", admitted)
    data = graphs_of([[(0, 0, 1)]] * n, [2] * n)
    wiring = build(data, hidden=2, steps=1, update_every=100)
    reference = run(wiring, data, schedule=Schedule.ASYNCHRONOUS, max_active_keys=n)
    nodes = reference.run().reports[1].nodes
    assert max(seen) == n
    assert reference.results[0].examples == n
    assert nodes["message-0"].rows_forward == 2 * n  # once to train, once to validate
