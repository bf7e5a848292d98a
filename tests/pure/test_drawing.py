"""A drawn graph shows every node and edge, and which edges lead back."""

from __future__ import annotations

import re

import pytest
from wirings import PerExample, chain, new_graph, recurrent

from amp_runtime.graph.drawing import dot, mermaid


def test_mermaid_names_every_node_with_its_kind_and_every_edge_with_ports_and_shapes():
    drawn = mermaid(chain())
    assert drawn.splitlines() == [
        "flowchart LR",
        '  i0[/"vector<br/>one row an example"/]',
        '  n0["linear<br/>linear"]',
        '  n1(["loss<br/>softmax_cross_entropy"])',
        '  i0 -->|"x<br/>x: float64[rows, 2]<br/>(instance:24, step:8)"| n0',
        '  n0 -->|"y to x<br/>x: float64[rows, 2]<br/>(instance:24, step:8)"| n1',
    ]


def test_dot_says_the_same():
    assert dot(chain()).splitlines() == [
        "digraph model {",
        "  rankdir=LR;",
        '  i0 [shape=cds, label="vector\\none row an example"];',
        '  n0 [shape=box, style=bold, label="linear\\nlinear"];',
        '  n1 [shape=doublecircle, label="loss\\nsoftmax_cross_entropy"];',
        '  i0 -> n0 [label="x\\nx: float64[rows, 2]\\n(instance:24, step:8)"];',
        '  n0 -> n1 [label="y to x\\nx: float64[rows, 2]\\n(instance:24, step:8)"];',
        "}",
    ]


def test_of_a_loop_only_the_way_back_is_dashed():
    wiring = recurrent()
    (back,) = [line for line in mermaid(wiring).splitlines() if "-.->" in line]
    more, loop = wiring.number["more"], wiring.number["loop"]
    assert re.fullmatch(rf'  n{more} -\.->\|"yes to again.*"\| n{loop}', back)
    (back,) = [line for line in dot(wiring).splitlines() if "style=dashed" in line]
    assert back.startswith(f"  n{more} -> n{loop} ")


@pytest.mark.parametrize("draw", [mermaid, dot])
def test_replicas_are_drawn_as_one_node_with_their_number(draw):
    alone = draw(recurrent()).splitlines()
    drawn = draw(recurrent(overrides={"linear-1": {"replicas": 3}})).splitlines()
    assert len(drawn) == len(alone)
    (changed,) = [line for line in drawn if "linear-1" in line]
    assert "linear, 3 replicas" in changed


@pytest.mark.parametrize(("draw", "said"), [(mermaid, "a#quot;#lt;b to x"), (dot, 'a\\"<b to x')])
def test_a_port_of_any_name_does_not_end_a_label(draw, said):
    graph = new_graph()
    vector = graph.input("v", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    split = graph.add("bcast", "copies", vector, outputs=('a"<b', "c"))
    for number, port in enumerate(('a"<b', "c")):
        graph.add("sink", f"end-{number}", split[port])
    assert said in draw(graph.build())
