"""Rows are counted as a run would count them, without making any parameter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from wirings import PerExample, chain, examples, new_graph, recurrent

import amp_runtime.traffic
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.reference import Reference
from amp_runtime.traffic import BYTES_PER_US, ROW_US, count, estimated_work
from workers.linear import Linear
from workers.registry import Registry

LENGTHS = [1, 4, 2, 7]


def by_name(wiring, numbers):
    return {node.name: numbers[i] for i, node in enumerate(wiring.nodes)}


def test_rows_are_those_that_a_run_brings_to_each_node():
    for batch in (1, 3):
        wiring, data = recurrent(batch=batch), examples(LENGTHS)
        counted = by_name(wiring, count(wiring, Registry(), data).rows)
        assert counted == {
            "embedding": 14, "loop": 14, "joined": 28, "linear-1": 14, "step": 14, "more": 14,
            "linear-2": 4, "loss": 4,
        }  # fmt: skip
        run = Reference(wiring, Registry(), data, examples([]), ControllerSettings())
        reports = run.run().reports[1].nodes
        assert counted == {name: node.rows_forward for name, node in reports.items()}


def test_rows_between_nodes_go_there_and_back_to_whoever_stamped_them():
    wiring = recurrent()
    sent = count(wiring, Registry(), examples(LENGTHS)).sent
    name = [node.name for node in wiring.nodes] + ["controller"]
    assert {(name[a], name[b]): n for (a, b), n in sent.items()} == {
        ("controller", "embedding"): 14, ("controller", "loop"): 4,
        ("embedding", "joined"): 14, ("loop", "joined"): 14, ("joined", "linear-1"): 14 + 10,
        ("linear-1", "step"): 14, ("step", "more"): 14, ("more", "loop"): 10,
        ("more", "linear-2"): 4, ("linear-2", "loss"): 4,
        # 10 answers: so many hidden rows came from linear-1, by way of step, more and loop
        ("loss", "linear-2"): 4, ("linear-2", "linear-1"): 4, ("linear-1", "joined"): 14,
        ("joined", "embedding"): 14, ("joined", "controller"): 4,
        ("embedding", "controller"): 14,
    }  # fmt: skip


def test_work_is_rows_times_load_and_traffic_costs_both_ends():
    wiring = chain()
    wiring = replace(
        wiring,
        nodes=tuple(replace(node, load=10.0 * (i + 1)) for i, node in enumerate(wiring.nodes)),
    )
    work = estimated_work(wiring, Registry(), examples([1] * 5))
    there, back = 4 * 4 + 2 * 8, 4 + 2 * 8  # bytes: int32 columns, and two float64
    controller = 2 * ROW_US + (there + 4) / BYTES_PER_US  # the answer is null
    assert work.nodes_us == pytest.approx([10 + controller, 20])
    assert work.between_us == {(0, 1): pytest.approx(2 * ROW_US + (there + back) / BYTES_PER_US)}


def test_no_parameter_is_made_and_nothing_is_computed(monkeypatch):
    for name in ("initial_parameters", "compute", "backpropagate"):
        monkeypatch.setattr(Linear, name, None)
    assert count(chain(), Registry(), examples([1, 1])).rows == {0: 2, 1: 2}


def test_no_examples_are_enough_for_an_estimate():
    work = estimated_work(recurrent(), Registry(), examples([]))
    assert work.nodes_us == [node.load for node in recurrent().nodes]


def test_a_function_on_states_that_raises_ends_the_counting_alone():
    graph = new_graph()
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    broken = graph.add("cond", "broken", vector, choose="state_functions:raises")
    for port in ("no", "yes"):
        graph.add("sink", port, broken[port])
    assert count(graph.build(), Registry(), examples([1] * 3)).rows == {0: 3}


def test_a_loop_that_never_ends_is_counted_for_a_while(monkeypatch):
    monkeypatch.setattr(
        amp_runtime.models.rnn, "has_more", lambda columns, structure: np.ones(len(columns), bool)
    )
    monkeypatch.setattr(amp_runtime.traffic, "MOST_BATCHES", 50)
    counted = by_name(recurrent(), count(recurrent(), Registry(), examples([3])).rows)
    assert counted["loop"] > counted["linear-2"] == 0
