"""`check` shows each node with shapes, parameters and core."""

from __future__ import annotations

import numpy as np
import pytest
from wirings import recurrent

from amp_runtime.errors import ParametersError
from amp_runtime.graph.placement import Work, process_per_node
from amp_runtime.output.summary import graph_summary, parameter_shapes
from workers.registry import Registry


def test_every_node_has_a_line_with_its_parameters_and_core():
    wiring = recurrent()
    shapes = parameter_shapes(wiring, Registry(), seed=0)
    assert shapes["linear-1"] == {"weight": (5, 3), "bias": (3,)}
    placement = process_per_node(wiring, [2, 7], Work([1.0] * len(wiring.nodes)))
    lines = graph_summary(wiring, placement, shapes).splitlines()
    cells = {line.split()[0]: line.split("  ") for line in lines if line[:1].isalpha()}
    linear = [cell.strip() for cell in cells["linear-1"] if cell.strip()]
    core = str(placement.workers[wiring.number["linear-1"]].cores[0])
    assert linear == ["linear-1", "linear", "x [5]", "y [3]", "sgd lr 0.1", "18", core]
    assert {node.name for node in wiring.nodes} <= set(cells)
    # embedding 10 x 2, linear-1 5 x 3 + 3, linear-2 3 x 4 + 4
    assert lines[-1] == "8 nodes, 54 parameters in float64"
    assert lines[0].startswith("input tokens: one row per tokens, {x: int32[rows]} with state")


def test_replicas_have_a_line_each_and_their_parameters_count_once():
    wiring = recurrent(overrides={"linear-1": {"replicas": 2}})
    given = {"linear-1": {"weight": np.ones((5, 3)), "bias": np.ones(3)}}
    shapes = parameter_shapes(wiring, Registry(), seed=0, parameters=given)
    placement = process_per_node(wiring, [0, 1], Work([1.0] * len(wiring.nodes)))
    lines = graph_summary(wiring, placement, shapes).splitlines()
    assert [line.split()[0] for line in lines if line.startswith("linear-1")] == [
        "linear-1.0",
        "linear-1.1",
    ]
    assert lines[-1] == "8 nodes, 9 with replicas, 54 parameters in float64"
    with pytest.raises(ParametersError, match=r"node 'linear-1\.0'"):
        parameter_shapes(wiring, Registry(), seed=0, parameters={"linear-1": {}})
