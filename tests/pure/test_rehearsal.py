"""`check` lets one instance through the graph: what only rows can show is told before a run."""

from __future__ import annotations

import sys

import pytest

from amp_runtime import rehearsal
from amp_runtime.errors import AmpError
from amp_runtime.prepare import prepare_file
from amp_runtime.rehearsal import rehearse
from workers.registry import Registry

MODULE = """
import numpy as np
from amp_runtime.graph import PerExample
from amp_runtime.names import needs
from amp_runtime.nodes.one_to_one import OneToOne

def examples(split, seed):
    for i in range(12):
        yield {"x": [[i / 12, 1.0]], "hard": i % 2, "label": i % 2}

def build(graph):
    graph.state(turn=20)
    x = graph.input("x", each=PerExample, state={"turn": 0}, payload={"x": "x"})
    first = graph.add("linear", "first", x, features=3)
    way = graph.add("cond", "way", first, choose="rehearsed:is_hard", outputs=("easy", "hard"))
    too = graph.add("linear", "first-too", way["hard"], features=3)
    square = graph.add("rehearsed:Square", "square", too)
    met = graph.add("phi", "met", way["easy"], square, inputs=("easy", "hard"))
    out = graph.add("linear", "out", met, features=2)
    graph.add("softmax_cross_entropy", "loss", out)

@needs("hard")
def is_hard(columns, structure):
    return structure.take("hard", columns)

def turned(columns, structure):
    return {"turn": columns["turn"] ^ 1}

class Square(OneToOne):
    kind = "square"

    @classmethod
    def infer(cls, options, inputs, dtype):
        return {"y": inputs["x"]}

    def compute(self, payload):
        return {"x": payload["x"] ** 2}, {"x": payload["x"]}

    def backpropagate(self, saved, gradient, wants_input):
        return {"x": 2 * saved["x"] * gradient["x"]}
"""
CONFIG = """
name: rehearsed
model: {builder: "rehearsed:build"}
data: {source: "rehearsed:examples", batch: 4}
training: {optimizer: {name: sgd, lr: 0.1}, max_epochs: 9, max_examples: 1}
"""


@pytest.fixture
def rehearsed(tmp_path, monkeypatch):
    """Rehearse MODULE with a text of it replaced by another."""
    monkeypatch.syspath_prepend(tmp_path)

    def run(old: str = "", new: str = "", *settings: str):
        assert old in MODULE
        monkeypatch.delitem(sys.modules, "rehearsed", raising=False)
        (tmp_path / "rehearsed.py").write_text(MODULE.replace(old, new) if old else MODULE)
        (tmp_path / "small.yaml").write_text(CONFIG)
        kinds = Registry()
        return rehearse(prepare_file(tmp_path / "small.yaml", settings, kinds), kinds)

    return run


def line_of(text: str) -> int:
    return MODULE[: MODULE.index(text)].count("\n") + 1


def test_one_instance_is_trained_on_and_its_metrics_are_told(rehearsed):
    found = rehearsed()
    assert (found.n_examples, set(found.metrics), found.still) == (4, {"loss", "accuracy"}, [])
    assert found.words().startswith("rehearsed with one instance of 4 examples: loss 0.")


def test_a_node_that_no_row_came_to_is_named(rehearsed):
    found = rehearsed('"hard": i % 2', '"hard": 1 if split == "valid" else 0')
    assert found.words().endswith("no gradient came to first-too")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'return {"x": payload["x"] ** 2}',
            'return {"x": payload["y"] ** 2}',
            r"node 'square' \(kind rehearsed:Square\): KeyError: 'y' \(\S+rehearsed.py:LINE\)",
        ),
        (
            'return {"x": 2 * saved',
            'return {"x": 2 * saved["z"] * saved',
            r"node 'square' \(kind rehearsed:Square\): KeyError: 'z' \(\S+rehearsed.py:LINE\)",
        ),
        (
            'return structure.take("hard", columns)',
            'return structure.take("label", columns)',
            r"node 'way' \(kind cond\): rehearsed:is_hard .* declare it: @needs\('label'\) "
            r"\(\S+rehearsed.py:LINE\)",
        ),
        (
            'class Square(OneToOne):\n    kind = "square"',
            'class Square(OneToOne):\n    kind = "square"\n'
            "    def __init__(self, context):\n        1 / 0",
            r"node 'square' \(kind rehearsed:Square\): cannot be made: ZeroDivisionError: "
            r"division by zero",
        ),
    ],
)
def test_what_a_users_code_raises_is_told_with_its_node_and_line(rehearsed, old, new, said):
    with pytest.raises(AmpError, match=r"small.yaml:3: " + said.replace("LINE", str(line_of(old)))):
        rehearsed(old, new)


def test_rows_that_wait_for_a_partner_that_went_another_way_are_found(rehearsed):
    with pytest.raises(
        AmpError,
        match=r"1 instance is in flight: node 'met' \(kind add\) waits for more rows of 4 states; "
        r".*meet in a phi",
    ):
        rehearsed('add("phi", "met"', 'add("add", "met"')


def test_a_deep_tree_may_take_more_batches_than_a_small_instance(monkeypatch, tmp_path):
    monkeypatch.setattr(rehearsal, "MOST_BATCHES", 1000)
    chain = "(1 (1 a) " * 100 + "(1 b)" + ")" * 100  # some 2,600 batches
    for name in ("train", "dev"):
        (tmp_path / f"{name}.txt").write_text(chain)
    (tmp_path / "chain.yaml").write_text(
        "name: chain\n"
        "model: {builder: tree_lstm, hidden: 2, embedding: 2}\n"
        f"data: {{source: treebank, path: {tmp_path}}}\n"
        "training: {optimizer: {name: sgd, lr: 0.1}}\n"
    )
    kinds = Registry()
    rehearsed = rehearse(prepare_file(tmp_path / "chain.yaml", [], kinds), kinds)
    assert rehearsed.metrics["loss"] > 0


def test_a_loop_that_no_row_leaves_ends(rehearsed, monkeypatch):
    monkeypatch.setattr(rehearsal, "MOST_BATCHES", 1000)
    with pytest.raises(AmpError, match=r"still under way after 1,000 batches; let each row leave"):
        rehearsed(
            'met = graph.add("phi", "met", way["easy"], square, inputs=("easy", "hard"))',
            'again = graph.add("phi", "again", square, inputs=("a", "b"))\n'
            '    turned = graph.add("isu", "turned", again, update="rehearsed:turned")\n'
            '    ways = graph.add("cond", "ways", turned, choose="rehearsed:is_hard")\n'
            '    graph.connect(ways["yes"], again.port("b"))\n'
            '    met = graph.add("phi", "met", way["easy"], ways["no"], inputs=("easy", "hard"))',
        )


def test_a_replica_that_one_instance_does_not_come_to_is_not_missed(rehearsed):
    assert rehearsed("", "", "nodes.first.replicas=3").still == rehearsed().still
