"""bAbI task 15 as graphs: the two forms of its files, and graphs that are generated."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.data import load_split
from amp_runtime.data.graphs.typed_graphs import Graphs
from amp_runtime.errors import DataError, MissingDataError

BABI = Path(os.environ.get("AMP_DATA", ""), "babi15")

TEXT = """\
1 Mice are afraid of wolves.
2 Gertrude is a mouse.
3 Wolves are afraid of sheep.
4 Emily is an wolf.
5 What is gertrude afraid of?\twolf\t2 1
6 What is emily afraid of?\tsheep\t4 3
1 Cats are afraid of mice.
2 Winona is a cat.
3 What is winona afraid of?\tmouse\t2 1
"""
GRAPHS = """\
4 2 5
1 1 4
5 2 9
3 1 5
? 1 1 5
? 1 3 9

4 2 5
1 1 4
? 1 1 5
"""
IS, HAS_FEAR = range(2)


def load(split="train", seed=0, **options):
    options = {name: value for name, value in options.items() if value is not None}
    return load_split("babi15", split, seed, options)


def examples(data) -> list[dict[str, list]]:
    return [
        {name: data.gather(name, np.array([n])).values.tolist() for name in data.fields}
        for n in range(len(data))
    ]


def answer(example) -> int:
    """Follow `is` from the node that is asked about, and `has_fear` from there."""
    (asked,) = np.flatnonzero(np.array(example["annotation"])[:, 0] == 1)
    edges = list(
        zip(example["edge_source"], example["edge_type"], example["edge_target"], strict=True)
    )
    (species,) = [target for source, kind, target in edges if (source, kind) == (asked, IS)]
    (feared,) = [target for source, kind, target in edges if (source, kind) == (species, HAS_FEAR)]
    return feared


@pytest.mark.parametrize("text", [TEXT, GRAPHS, TEXT.replace("\n", "\r\n"), f"\n{GRAPHS}\n\n"])
def test_both_forms_are_read_into_one_example_a_question(tmp_path, text):
    (tmp_path / "x").write_text(text, newline="")
    data = load("valid", path=str(tmp_path / "x"), valid=2, train=0)
    found = sorted((len(e["annotation"]), e["label"][0]) for e in examples(data))
    assert found == [(3, 1), (5, 1), (5, 3)]
    big = next(e for e in examples(data) if (len(e["annotation"]), e["label"]) == (5, [1]))
    # mouse 0, wolf 1, gertrude 2, sheep 3, emily 4
    assert big == {
        "annotation": [[0], [0], [1], [0], [0]],
        "edge_source": [0, 1, 2, 4],
        "edge_type": [HAS_FEAR, HAS_FEAR, IS, IS],
        "edge_target": [1, 3, 0, 1],
        "n_out": [1, 1, 1, 0, 1],
        "n_in": [1, 2, 0, 1, 0],
        "first_edge": [0, 1, 2, 3, 3],
        "label": [1],
    }
    assert data.about.vocabularies["edge_type"] == ("is", "has_fear")


@pytest.mark.parametrize(("species", "names"), [(4, 4), (2, 1), (27, 27), (53, 1), (20, 7)])
def test_generated_graphs_follow_the_rule_and_leave_no_node_alone(species, names):
    data = load(species=species, names=names, train=20)
    assert len(data) == 20 * names
    for example in examples(data):
        n_nodes = species + names
        assert len(example["annotation"]) == n_nodes
        assert example["n_out"] == [1] * n_nodes
        assert example["first_edge"] == list(range(n_nodes)) == example["edge_source"]
        assert (np.bincount(example["edge_target"], minlength=n_nodes) == example["n_in"]).all()
        kinds = np.array(example["edge_type"])
        targets = np.array(example["edge_target"])
        assert (kinds == IS).sum() == names
        assert len(set(targets[kinds == IS])) == names  # a species of its own
        assert (targets != example["edge_source"]).all()
        assert (kinds[targets] == HAS_FEAR).all()  # species fear species
        assert example["label"] == [answer(example)]
    labels = data.field("label").values
    assert len(set(labels.tolist())) > min(len(labels), species + names) // 2  # at any place


def test_splits_and_seeds_differ_and_are_repeated():
    def edges(*which):
        return load(*which, train=50, valid=50).field("edge_target").values.tolist()

    assert edges("train", 1) == edges("train", 1)
    assert len({str(edges(*which)) for which in (("train", 1), ("valid", 1), ("train", 2))}) == 3


@given(st.integers(1, 6), st.data())
def test_columns_of_graphs_are_what_a_plain_loop_gives(n_graphs, draw):
    sizes = draw.draw(st.lists(st.integers(1, 5), min_size=n_graphs, max_size=n_graphs))
    edges = [
        draw.draw(
            st.lists(st.tuples(*[st.integers(0, n - 1), st.integers(0, 2), st.integers(0, n - 1)]))
        )
        for n in sizes
    ]
    table = np.array([e for graph in edges for e in graph], np.int64).reshape(-1, 3)
    graphs = Graphs.of(np.array(sizes), np.array([len(graph) for graph in edges]), table)
    chosen = np.array(draw.draw(st.lists(st.integers(0, n_graphs - 1), max_size=8)), np.int64)
    got = {name: values.tolist() for name, (values, _) in graphs.columns(chosen).items()}
    ordered = [sorted(edges[n]) for n in chosen]
    assert got["edge_source"] == [edge[0] for graph in ordered for edge in graph]
    assert got["edge_type"] == [edge[1] for graph in ordered for edge in graph]
    assert got["edge_target"] == [edge[2] for graph in ordered for edge in graph]
    for column, end in (("n_out", 0), ("n_in", 2)):
        assert got[column] == [
            sum(edge[end] == node for edge in graph)
            for n, graph in zip(chosen, ordered, strict=True)
            for node in range(sizes[n])
        ]
    assert got["first_edge"] == [
        sum(edge[0] < node for edge in graph)
        for n, graph in zip(chosen, ordered, strict=True)
        for node in range(sizes[n])
    ]


def test_a_file_is_shuffled_and_its_splits_do_not_overlap(tmp_path):
    sizes = range(2, 22)  # graph n is a chain of n nodes
    chains = ["".join(f"{k} 2 {k + 1}\n" for k in range(1, n)) + f"? 1 1 {n}\n" for n in sizes]
    (tmp_path / "x").write_text("\n".join(chains))

    def nodes(split, **options):
        options = {"train": 12, "valid": 8, **options}
        return load(split, path=str(tmp_path / "x"), **options).field("n_in").counts.tolist()

    assert sorted(nodes("train") + nodes("valid")) == list(sizes)
    assert nodes("valid") == nodes("valid", train=3)
    assert nodes("valid") != sorted(nodes("valid"))
    assert nodes("valid") != nodes("valid", split_seed=1)


def test_another_file_is_validated_on_and_training_graphs_stay(tmp_path):
    for name, sizes in (("one", range(2, 8)), ("two", range(8, 11))):
        chains = ["".join(f"{k} 2 {k + 1}\n" for k in range(1, n)) + f"? 1 1 {n}\n" for n in sizes]
        (tmp_path / name).write_text("\n".join(chains))

    def nodes(split, **options):
        options = {"path": str(tmp_path / "one"), "valid_path": str(tmp_path / "two"), **options}
        return sorted(load(split, **options).field("n_in").counts.tolist())

    assert nodes("valid", train=6, valid=3) == [8, 9, 10]
    assert nodes("train", train=6, valid=3) == [2, 3, 4, 5, 6, 7]
    assert nodes("valid", path=None, train=5, valid=3) == [8, 9, 10]
    assert nodes("train", path=None, train=5, valid=3) == [8] * 20  # generated: 4 questions each
    with pytest.raises(DataError, match="two: holds 3 graphs, too few for valid 4"):
        nodes("valid", train=6, valid=4)
    with pytest.raises(DataError, match="one: holds 6 graphs, too few for train 7"):
        nodes("train", train=7, valid=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x: holds no question; lines are"),
        ("1 2 2\n", "x: holds no question"),
        ("1 1 2\n1 3 2\n", r"x:2: type 3 is unknown; lines are edges"),
        ("1 1 2\n1 2\n", r"x:2: '1 2' is neither an edge nor a question"),
        ("1 1 2\n? 1 2\n", r"x:2: asks without an answer"),
        ("1 1 2\n? 2 1 2\n", "x:2: type 2 is unknown"),
        ("1 1 2\n? 1 1 3\n", "x:2: names '3', which no line before says anything of"),
        ("1 1 2\n\n? 1 1 2\n", "x:3: names '1'"),
        ("1 1 2\n? 1 1 2\n2 2 1\n", "x:3: states a fact behind a question"),
        ("1 Mice are afraid of wolves.\n2 Mice like wolves.\n", "x:2: 'Mice like wolves.' is"),
        ("1 Mice are afraid of wolves.\nMice\n", "x:2: 'Mice' is no numbered line"),
        ("1 Eva is a cat.\n2 What is adam afraid of?\tcat\t1\n", "x:2: names 'adam'"),
        (GRAPHS, "x: holds 2 graphs, too few for train 3 \\+ valid 0"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, text, message):
    (tmp_path / "x").write_text(text)
    with pytest.raises(DataError, match=message):
        load(path=str(tmp_path / "x"), train=3, valid=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"species": 1}, "species is 1; it must be at least 2; set data.species"),
        ({"names": 0}, "names is 0; it must be at least 1"),
        ({"train": -1}, "train is -1; it must be at least 0"),
        ({"species": 4, "names": 5}, "names is 5 and species 4; there must be as many species"),
        ({"species": 28, "names": 27}, "at most 54 nodes"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        load(**options)


def test_a_missing_file_is_named_with_where_such_files_are():
    with pytest.raises(MissingDataError, match=r"nowhere.*qa15_basic-deduction_train\.txt"):
        load(path="nowhere")


@pytest.mark.skipif(not BABI.is_dir(), reason="AMP_DATA/babi15 is not there")
def test_the_real_graphs_are_read():
    for name in ("train", "test"):
        path = str(BABI / f"{name}_15_graphs.txt")
        data = load("valid", path=path, train=0, valid=1000)
        assert len(data) == 4000
        assert set(data.field("n_in").counts.tolist()) == {8}
        assert set(data.field("edge_type").counts.tolist()) == {8}
        for example in examples(data)[:200]:
            assert example["label"] == [answer(example)]
