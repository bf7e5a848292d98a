"""take: the arrays that are named pass, with everything else of the row as it was."""

from __future__ import annotations

import pytest
from kinds import floats, make, only, rows, spec
from wirings import PerExample, new_graph, zeros

from amp_runtime.errors import BadOptionError, InvariantError, ShapeMismatchError
from amp_runtime.rows.message import Mode

THREE = spec(("h", (1,), "float64"), ("c", (1,), "float64"), ("t", (), "int32"))


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("verify", [False, True])
def test_named_arrays_pass_with_state_and_address_unchanged(mode, verify):
    node = make("take", THREE, arrays=("t", "h"), verify=verify)
    sent = rows(step=[4, 5], verify=verify, h=[[1.0], [2.0]], c=[[3.0], [4.0]], t=[6, 7])
    left = only(node.forward("x", sent, mode))
    assert left.columns is sent.columns
    assert {name: a.tolist() for name, a in left.payload.items()} == {
        "t": [6, 7], "h": [[1], [2]],
    }  # fmt: skip


def test_nothing_is_kept_so_an_answer_is_a_bug():
    node = make("take", floats(1), arrays=("x",))
    only(node.forward("x", rows(x=[[1.0]]), Mode.TRAIN))
    node.assert_drained()
    with pytest.raises(InvariantError, match="'take-1' stamps no rows, but was answered"):
        node.backward("y", rows(x=[1.0]).columns[:, 1], None)


def test_an_array_that_does_not_come_is_refused_with_those_that_do():
    with pytest.raises(ShapeMismatchError, match=r"no array 'hh'.*mean 'h'.*are h, c, t"):
        make("take", THREE, arrays=("hh",))
    with pytest.raises(BadOptionError, match=r"arrays: must be .*at least 1"):
        make("take", THREE, arrays=())


def test_an_answer_goes_past_it_to_the_node_that_stamped_the_row():
    graph = new_graph()
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    zero = graph.input(
        "zero", each=PerExample, state={"step": 0}, payload={"h": zeros((2,)), "c": zeros((2,))}
    )
    joined = graph.add("join", "joined", vector, zero, inputs=("x", "state"))
    cell = graph.add("lstm", "cell", joined)
    taken = graph.add("take", "taken", cell, arrays=("c",))
    graph.add("softmax_cross_entropy", "loss", taken)
    wiring = graph.build()
    name = {-1: "controller", **{i: node.name for i, node in enumerate(wiring.nodes)}}
    back = {(name[a], name[b]) for a, b in wiring.backward_channels()}
    assert ("loss", "cell") in back
    assert "taken" not in {node for pair in back for node in pair}
    assert list(wiring.nodes[wiring.number["loss"]].inputs["x"].arrays) == ["c"]
