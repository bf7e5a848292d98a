"""The tables that rows are routed by: return ports, channels, who wants a gradient."""

from __future__ import annotations

import json

import pytest
from wirings import PerExample, chain, new_graph, recurrent

from amp_runtime.graph.wiring import CONTROLLER_NODE, Wiring, fields_of
from amp_runtime.rows.message import Mode


def named(wiring: Wiring, channels) -> set[tuple[str, str]]:
    def name(node: int) -> str:
        return "controller" if node == CONTROLLER_NODE else wiring.nodes[node].name

    return {(name(a), name(b)) for a, b in channels}


def ports_that_want(wiring: Wiring) -> dict[str, set[str]]:
    return {n.name: set(wiring.ports_wanting_gradient(i)) for i, n in enumerate(wiring.nodes)}


def test_return_ports_number_inputs_first_then_outputs_of_nodes_that_stamp():
    wiring = recurrent()
    owners = [
        (wiring.nodes[n].name if n >= 0 else "controller", port) for n, port in wiring.return_ports
    ]
    assert owners == [
        ("controller", "tokens"), ("controller", "start"), ("embedding", "y"), ("joined", "y"),
        ("linear-1", "y"), ("linear-2", "y"),
    ]  # fmt: skip


def test_answers_skip_transparent_nodes():
    wiring = recurrent()
    assert named(wiring, wiring.forward_channels()) == {
        ("controller", "embedding"), ("controller", "loop"), ("embedding", "joined"),
        ("loop", "joined"), ("joined", "linear-1"), ("linear-1", "step"), ("step", "more"),
        ("more", "loop"), ("more", "linear-2"), ("linear-2", "loss"),
    }  # fmt: skip
    assert named(wiring, wiring.backward_channels()) == {
        # training
        ("embedding", "controller"), ("joined", "embedding"), ("joined", "controller"),
        ("joined", "linear-1"), ("linear-1", "joined"), ("linear-2", "linear-1"),
        ("loss", "linear-2"),
        # evaluation, where one-to-one nodes pass addresses on
        ("joined", "joined"), ("loss", "joined"),
    }  # fmt: skip


def test_rows_arrive_with_the_addresses_of_the_last_that_stamped():
    wiring = recurrent()
    join = {p: wiring.input_ports.index((wiring.number["joined"], p)) for p in ("token", "hidden")}
    owners = wiring.return_ports

    def from_(mode, port):
        return named(wiring, {(owners[r][0], -1) for r in wiring.arrivals(mode)[join[port]]})

    assert from_(Mode.TRAIN, "token") == {("embedding", "controller")}
    assert from_(Mode.TRAIN, "hidden") == {
        ("controller", "controller"), ("linear-1", "controller"),
    }  # fmt: skip
    assert from_(Mode.EVALUATE, "token") == {("controller", "controller")}
    assert from_(Mode.EVALUATE, "hidden") == {
        ("controller", "controller"), ("joined", "controller"),
    }  # fmt: skip


def test_a_gradient_is_wanted_where_parameters_lie_before():
    assert ports_that_want(recurrent()) == {
        "embedding": set(), "loop": {"again"}, "joined": {"token", "hidden"}, "linear-1": {"x"},
        "step": {"x"}, "more": {"x"}, "linear-2": {"x"}, "loss": {"x"},
    }  # fmt: skip


def test_no_gradient_is_wanted_before_the_first_parameters():
    graph = new_graph()
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    relu = graph.add("relu", "before", vector)
    linear = graph.add("linear", "linear", relu, features=2)
    join = graph.add("concat", "join", relu, linear, inputs=("plain", "trained"))
    graph.add("softmax_cross_entropy", "loss", graph.add("relu", "after", join))
    wiring = graph.build()
    assert ports_that_want(wiring) == {
        "before": set(), "before-bcast": set(), "linear": set(), "join": {"trained"},
        "after": {"x"}, "loss": {"x"},
    }  # fmt: skip
    wanting = {
        wiring.nodes[wiring.return_ports[r][0]].name for r in wiring.returns_wanting_gradient
    }
    assert wanting == {"linear", "join", "after"}


def test_a_model_without_parameters_wants_no_gradient():
    graph = new_graph()
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    graph.add("softmax_cross_entropy", "loss", vector)
    assert ports_that_want(graph.build()) == {"loss": set()}


@pytest.mark.parametrize("make", [chain, recurrent])
@pytest.mark.parametrize("batch", [1, 4])
def test_plain_data_goes_through_json_and_comes_back_equal(make, batch):
    wiring = make(batch=batch)
    again = Wiring.from_plain(json.loads(json.dumps(wiring.to_plain())))
    assert again.to_plain() == wiring.to_plain()
    assert again.nodes[0].inputs == wiring.nodes[0].inputs
    assert again.inputs[0].spec == wiring.inputs[0].spec
    assert again.return_ports == wiring.return_ports
    assert again.backward_channels() == wiring.backward_channels()
    assert again.fields == wiring.fields
    assert [n.fields for n in again.nodes] == [n.fields for n in wiring.nodes]


def test_the_fields_of_several_nodes_are_each_named_once():
    wiring = recurrent()
    assert fields_of([*wiring.nodes, *wiring.nodes]) == ["len(tokens)", "label"]
