"""Pre-trained word vectors: read for the words of the training trees, and learned from."""

from __future__ import annotations

import gzip
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.config.schema import load_config
from amp_runtime.data import load_split
from amp_runtime.data.vectors import read_vectors
from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.prepare import prepare
from amp_runtime.reference import Reference
from workers.registry import Registry

GLOVE = "the 0.5 -1 2e-1\n, .25 3. +1\nIt 1 2 3\n"


def read(tmp_path, text, *words):
    path = tmp_path / "glove.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_vectors(path, words)
    return [
        row if there else None
        for row, there in zip(found.values.tolist(), found.found, strict=True)
    ]


def test_vectors_of_the_wanted_words_are_read(tmp_path):
    expected = [[1, 2, 3], None, [0.5, -1, pytest.approx(0.2)], [0.25, 3, 1]]
    assert read(tmp_path, GLOVE, "It", "no", "the", ",") == expected
    assert read(tmp_path, gzip.compress(GLOVE.encode()), "It", "no", "the", ",") == expected
    assert read(tmp_path, GLOVE.replace("\n", " \r\n\n"), "It", "no", "the", ",") == expected
    assert read(tmp_path, "\ufeff" + GLOVE, "It", "no", "the", ",") == expected
    assert read(tmp_path, "3 3\n" + GLOVE, "It", "no", "the", ",") == expected  # as word2vec


def test_a_word_falls_back_to_lower_case_and_to_its_form_without_escapes(tmp_path):
    text = "( 1\nand/or 2\nthe 3\nTHE 4\nThe 5\n-lrb- 6\nit 7\n"
    assert read(tmp_path, text, "The", "THE", "tHE", "IT", "it") == [[5], [4], [3], [7], [7]]
    assert read(tmp_path, text, "And\\/Or", "-LRB-") == [[2], [6]]  # -lrb- before (
    assert read(tmp_path, text.replace("-lrb- 6\n", ""), "-LRB-") == [[1]]


def test_the_first_of_two_lines_counts_and_the_best_form_wherever_it_is(tmp_path):
    assert read(tmp_path, "a 1\na 2\n", "a", "A") == [[1], [1]]
    assert read(tmp_path, "a 1\nA 2\n", "A") == read(tmp_path, "A 2\na 1\n", "A") == [[2]]


def test_a_word_may_hold_spaces_and_no_break_spaces(tmp_path):
    text = "a 1 2\nb 3 4\n. . . 5 6\n2\xa01/2 7 8\n"
    assert read(tmp_path, text, "2\xa01\\/2", ". . .") == [[7, 8], [5, 6]]


WORDS = st.text(min_size=1, max_size=5).filter(lambda word: not set(word) & set(" \r\n"))
NUMBERS = st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3
)


@given(lines=st.dictionaries(WORDS, NUMBERS, min_size=1, max_size=10))
def test_what_is_written_is_read(tmp_path_factory, lines):
    text = "".join(f"{word} {' '.join(map(repr, row))}\n" for word, row in lines.items())
    got = read(tmp_path_factory.mktemp("vectors"), text, *lines)
    assert np.array(got, np.float32).tolist() == [list(map(float, row)) for row in lines.values()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "glove.txt: is empty; each line is a word"),
        ("\n \n", "glove.txt: is empty"),
        ("a\nb\n", "glove.txt:1: b'a' is no word with numbers"),
        ("\na 1 2\nb 1 2\nc 1\n", "glove.txt:4: has 1 numbers, but other lines have 2; .*cut"),
        ("a 1 2\nb 1 2\nc\n", "glove.txt:3: has 0 numbers"),
        ("a 1 2\nb 1 2\nc 1.5 2 3\n", "glove.txt:3: has 3 numbers, but other lines have 2"),
        ("x 1 2\na 1 two\n", "glove.txt:2: holds 'two': not a finite number"),
        ("x 1 2\na 1 nan\n", "glove.txt:2: holds 'nan'"),
        ("x 1 2\na -inf 1\n", "glove.txt:2: holds '-inf'"),
        ("x 1 2\na 1e99 1\n", "glove.txt:2: holds '1e99': beyond float32"),
        ("x 1 2\na 1_0 1\n", "glove.txt:2: holds '1_0'"),
        ("x 1 2\na  1\n", "glove.txt:2: holds ''"),
        (b"x 1 2\na \xff 1\n", "glove.txt:2: holds '\ufffd'"),
        ("x 1 2\n", "glove.txt: holds none of 1 words"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text, "a")


def test_words_that_were_not_found_are_drawn_like_those_that_were(tmp_path):
    words = [f"w{n}" for n in range(5000)]
    random = np.random.default_rng(0)
    rows = random.normal([3, -5], [1, 0.1], (2000, 2))
    (tmp_path / "x").write_text("".join(f"w{n} {a} {b}\n" for n, (a, b) in enumerate(rows)))
    found = read_vectors(tmp_path / "x", words)
    table = found.table(seed=1)
    assert (table[:2000] == rows.astype(np.float32)).all()
    assert table[2000:].mean(axis=0) == pytest.approx([3, -5], abs=0.1)
    assert table[2000:].std(axis=0) == pytest.approx([1, 0.1], rel=0.1)
    assert (found.table(1) == table).all()
    assert (found.table(2)[2000:] != table[2000:]).all()


# ---------------------------------------------------------------------------- in a model

MODEL = """
from amp_runtime.names import needs

def build(graph):
    \"\"\"The sum of a sentence's word vectors tells the label of its root.\"\"\"
    graph.state(node=8)
    tokens = graph.input("token", each="token", state={"node": "leaf"}, payload={"x": "token"})
    vectors = graph.vectors("token")
    width = 2 if vectors is None else vectors.shape[1]
    words = graph.add("embedding", "words", tokens, entries=graph.entries("token"), features=width)
    if vectors is not None:
        graph.begin(words, table=vectors)
    bag = graph.add(
        "group", "bag", words, reduce="sum", key=f"{__name__}:root", count=f"{__name__}:n_leaves"
    )
    logits = graph.add("linear", "out", bag, features=graph.entries("label"))
    graph.add("softmax_cross_entropy", "loss", logits, label="label", index="node")

@needs("len(parent)")
def root(columns, structure):
    return {"node": structure.take("len(parent)", columns) - 1}

@needs("len(token)")
def n_leaves(columns, structure):
    return structure.take("len(token)", columns)
"""
TREES = """\
(4 (2 very) (4 good))
(0 (2 very) (0 bad))
(4 (4 good) (2 (2 movie) (2 it)))
(0 (0 bad) (2 (2 movie) (2 it)))
"""
CONFIG = """
name: bag
model: {builder: "bag_of_words:build"}
data: {source: treebank, path: ., vectors: glove.txt}
training: {optimizer: {name: adam, lr: 0.1}, update_every: 4, max_epochs: 30}
"""


@pytest.fixture
def config_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bag_of_words", raising=False)
    (tmp_path / "bag_of_words.py").write_text(MODEL)
    (tmp_path / "glove.txt").write_text("good 1 0 0\nbad -1 0 0\nvery 0 0 5\nmovie 0 3 0\n")
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.txt").write_text(TREES)
    path = tmp_path / "bag.yaml"
    path.write_text(CONFIG)
    return path


def run(config_file, *overrides, **settings):
    prepared = prepare(load_config(config_file, overrides), Registry())
    made = Reference(
        prepared.wiring,
        Registry(),
        prepared.train,
        prepared.valid,
        replace(prepared.settings, **settings),
        parameters=prepared.parameters,
    )
    return prepared, made, made.run()


def test_coverage_is_told(config_file):
    options = {"path": ".", "vectors": "glove.txt"}
    train = load_split("treebank", "train", 0, options)
    assert train.about.notes[1] == (
        "glove.txt: vectors of 3 numbers for 4 of 5 words (80.0%), 8 of 10 in the trees (80.0%)"
    )
    table = dict(zip(train.about.vocabularies["token"], train.about.vectors["token"], strict=True))
    assert table["bad"].tolist() == [-1, 0, 0]
    assert load_split("treebank", "valid", 0, options).about.vectors == {}
    assert load_split("treebank", "train", 0, {"path": "."}).about.vectors == {}


def test_a_missing_file_of_vectors_is_named(config_file):
    with pytest.raises(MissingDataError, match=r"no data file .*nowhere\.txt"):
        load_split("treebank", "train", 0, {"path": ".", "vectors": "nowhere.txt"})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_embedding_begins_with_the_vectors_and_learns_on_from_them(config_file, dtype):
    prepared, _, untrained = run(config_file, f"dtype={dtype}", max_epochs=0)
    vectors = prepared.train.about.vectors["token"]
    assert (untrained.parameters["words"]["table"] == vectors).all()
    _, made, trained = run(config_file, f"dtype={dtype}")
    assert made.results[-1].metrics["accuracy"] == 1
    assert made.results[-1].metrics["loss"] < 0.1 < made.results[0].metrics["loss"]
    assert (trained.parameters["words"]["table"][1:] != vectors[1:]).any()


def test_without_vectors_it_is_drawn(config_file):
    prepared, made, _ = run(config_file, "data={source: treebank, path: .}")
    assert prepared.parameters is None
    assert made.results[-1].metrics["accuracy"] == 1
