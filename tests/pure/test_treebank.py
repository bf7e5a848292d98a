"""Trees from files in PTB form; every wrong line is refused by file, line and column."""

from __future__ import annotations

import gzip
import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.data import load_split
from amp_runtime.data.trees.ptb import NO_PARENT, read_trees
from amp_runtime.data.vocabulary import Vocabulary
from amp_runtime.errors import DataError, MissingDataError

SST = Path(os.environ.get("AMP_DATA", ""), "sst")

GOOD = "(3 (2 It) (4 (2 's) (4 good)))\n"


def write(folder: Path, train: str = GOOD, dev: str = GOOD, test: str = GOOD) -> Path:
    for name, text in (("train", train), ("dev", dev), ("test", test)):
        (folder / f"{name}.txt").write_text(text, "utf-8", newline="")
    return folder


def load(folder, split="train", **options):
    return load_split("treebank", split, 0, {"path": str(folder), **options})


def columns(data, example=0):
    return {
        name: data.gather(name, np.array([example])).values.tolist()
        for name in ("token", "leaf", "parent", "side", "n_children", "is_root", "label")
    }


def test_a_tree_becomes_columns_children_before_parents(tmp_path):
    data = load(write(tmp_path))
    assert columns(data) == {
        "token": [2, 1, 3],  # by code point: 's, It, good
        "leaf": [0, 1, 2],
        "parent": [4, 3, 3, 4, -1],
        "side": [0, 0, 1, 1, 0],
        "n_children": [0, 0, 0, 2, 2],
        "is_root": [0, 0, 0, 0, 1],
        "label": [2, 2, 4, 4, 3],
    }
    assert data.about.vocabularies["token"] == ("<unk>", "'s", "It", "good")
    assert data.about.vocabularies["label"] == ("0", "1", "2", "3", "4")


def test_one_word_is_a_leaf_and_the_root(tmp_path):
    assert columns(load(write(tmp_path, "(0 no)\n"))) == {
        "token": [1],
        "leaf": [0],
        "parent": [NO_PARENT],
        "side": [0],
        "n_children": [0],
        "is_root": [1],
        "label": [0],
    }


def test_unary_chains_collapse_and_keep_the_upper_label(tmp_path):
    chained = "(1 (3 (2 (0 It)) (0 (0 (4 (2 's) (3 (4 good)))))))\n"
    plain = "(1 (2 It) (0 (2 's) (3 good)))\n"
    data = load(write(tmp_path, chained + plain))
    assert columns(data, 0) == columns(data, 1)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.rstrip(),  # no last line end
        GOOD.replace("\n", "\r\n\r\n"),  # DOS ends, and an empty line
        "\ufeff" + GOOD + " \t\n\n",
        "  ( 3   ( 2 It )(4(2 's)(4 good) ) )  \n",
    ],
)
def test_white_space_between_brackets_does_not_matter(tmp_path, text):
    assert columns(load(write(tmp_path, text))) == columns(load(write(tmp_path)))


WORDS = ["8\xa01\\/2", "\u2028", "\x85", "e\u0301", "\u05d0", "\U0001f600", "\0", "a\tb", "-LRB-"]


def test_row_99_words_are_parted_at_the_plain_space_alone_and_kept_in_nfc(tmp_path):
    left = f"(0 {WORDS[0]})"
    for word in WORDS[1:]:
        left = f"(1 {left} (2 {word}))"
    data = load(write(tmp_path, left + "\n"))
    assert len(data) == 1
    words = data.about.vocabularies["token"]
    kept = [unicodedata.normalize("NFC", word) for word in WORDS]
    assert [words[number] for number in data.field("token").values] == kept
    assert [word for word in WORDS if word not in kept] == ["e\u0301"]  # one letter, as \xe9


def test_row_99_words_that_look_alike_are_one_and_what_is_said_of_any_stays_on_a_line(tmp_path):
    data = load(write(tmp_path, "(3 (2 caf\xe9) (2 cafe\u0301))\n", dev="(2 cafe\u0301)\n"))
    assert data.about.vocabularies["token"] == ("<unk>", "caf\xe9")
    assert data.field("token").values.tolist() == [1, 1]
    assert load(tmp_path, "valid").field("token").values.tolist() == [1]
    for word in WORDS:
        write(tmp_path, f"(3 (2 a) {word})\n")
        with pytest.raises(DataError) as caught:
            load(tmp_path)
        assert len(caught.value.line().splitlines()) == 1
        assert "\0" not in caught.value.line()


LABELS = st.integers(0, 4)
TREES = st.recursive(
    st.tuples(LABELS, st.text(min_size=1).filter(lambda word: not set(word) & set(" ()\r\n"))),
    lambda tree: st.tuples(LABELS, tree, tree) | st.tuples(LABELS, tree),
    max_leaves=20,
)


def text_of(tree) -> str:
    label, *rest = tree
    return f"({label} {' '.join(r if isinstance(r, str) else text_of(r) for r in rest)})"


def collapsed(tree):
    label, *rest = tree
    if isinstance(rest[0], str):
        return tree
    if len(rest) == 1:
        return (label, *collapsed(rest[0])[1:])
    return (label, *map(collapsed, rest))


def trees_of(data) -> list:
    """Return the trees that columns stand for, put together from the root down."""
    made = []
    for example in range(len(data)):
        got = columns(data, example)
        words = data.about.vocabularies["token"]
        word_of = {node: words[t] for node, t in zip(got["leaf"], got["token"], strict=True)}

        def subtree(node, got=got, word_of=word_of):
            below = [child for child, parent in enumerate(got["parent"]) if parent == node]
            assert got["n_children"][node] == len(below)
            assert got["is_root"][node] == (got["parent"][node] == NO_PARENT)
            if not below:
                return (got["label"][node], word_of[node])
            assert [got["side"][child] for child in below] == [0, 1]
            assert max(below) < node
            return (got["label"][node], *map(subtree, below))

        made.append(subtree(len(got["parent"]) - 1))
    return made


@given(trees=st.lists(TREES, min_size=1, max_size=4))
def test_what_is_written_is_read(tmp_path_factory, trees):
    folder = tmp_path_factory.mktemp("bank")
    write(folder, "".join(f"{text_of(tree)}\n" for tree in trees))
    assert trees_of(load(folder)) == [collapsed(tree) for tree in trees]


@given(line=st.text(alphabet="(() 0123a\xa0", max_size=30))
def test_any_line_is_a_tree_or_an_error_with_its_place(tmp_path_factory, line):
    folder = tmp_path_factory.mktemp("bank")
    write(folder, f"{GOOD}{line}\n")
    try:
        said, n_trees = "", len(load(folder))
    except DataError as error:
        said, n_trees = str(error), 0
    assert n_trees == (2 if line.strip(" ") else 1) or said.startswith(f"{folder}/train.txt:2:")


@pytest.mark.parametrize("deep", ["chain of unary nodes", "left", "right"])
def test_trees_10000_nodes_deep_are_read(tmp_path, deep):
    n = 10_000
    text = {
        "chain of unary nodes": "(1 " * n + "(2 a)" + ")" * n,
        "left": "(1 " * n + "(2 a)" + " (3 b))" * n,
        "right": "(1 (3 b) " * n + "(2 a)" + ")" * n,
    }[deep]
    data = load(write(tmp_path, text + "\n"))
    n_nodes = 1 if deep == "chain of unary nodes" else 2 * n + 1
    assert data.field("parent").counts.tolist() == [n_nodes]
    assert data.field("is_root").values.sum() == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(3 (2 It) (2 's)", r"2:17: ends with 1 bracket open; a tree is on one line"),
        ("(3 (2 It", r"2:9: ends with 2 brackets open"),
        ("(3 (2 It) (2 's)))", r"2:18: has '\)' behind its tree"),
        (") (3 It)", r"2:1: begins with '\)', not with a bracket"),
        ("It 's", r"2:1: begins with 'It'"),
        ("(3 It) good", r"2:8: has 'good' behind its tree"),
        ("(3 It) (2 's)", r"2:8: begins a second tree; put each tree on a line of its own"),
        ("(3 (It) (2 's))", r"2:4: label 'It' is not a whole number from 0 to 4"),
        ("((2 It) (2 's))", r"2:1: has a node without a label"),
        ("(3 (2 It) ( ))", r"2:11: has a node without a label"),
        ("(3 (5 It) (2 's))", r"2:4: label '5' is not a whole number from 0 to 4; .*data.classes"),
        ("(3 (-1 It) (2 's))", r"2:4: label '-1' is not"),
        ("(3 (1.0 It) (2 's))", r"2:4: label '1.0' is not"),
        ("(\u0663 It)", r"2:1: label '\u0663' is not"),  # a digit, but not one of ours
        ("(3 (2 It) (2))", r"2:13: closes a node without a word or a child"),
        ("()", r"2:1: has a node without a label"),
        ("(3 (2 a) (2 b) (2 c))", r"2:16: has a node with more than 2 children; .*binarise"),
        ("(3 (2 a) b)", r"2:10: has a node with both a child and a word, 'b'"),
        ("(3 b (2 a))", r"2:6: has a node with both a word, 'b', and a child"),
        ("(3 a b)", r"2:6: has a leaf with two words, 'a' and 'b'"),
        ("(1 (1 (1 (1 a))))", r"2:10: is more than 3 nodes deep; .*data.max_depth"),
        ("\xa0", r"2:1: begins with '\\xa0'"),
    ],
)
def test_a_wrong_line_is_named_with_its_place(tmp_path, line, message):
    write(tmp_path, f"{GOOD}{line}\n")
    with pytest.raises(DataError, match=rf"train.txt:{message}"):
        load(tmp_path, max_depth=3)


def test_files_that_are_no_text_or_empty_are_named(tmp_path):
    write(tmp_path, "\n \n")
    with pytest.raises(DataError, match=r"train.txt: holds no tree; each line is one tree"):
        load(tmp_path)
    (tmp_path / "train.txt").write_bytes(GOOD.encode() + b"(3 caf\xe9)\n")
    with pytest.raises(DataError, match=r"train.txt:2: holds b'\\xe9\)\\n': not UTF-8"):
        load(tmp_path)


def test_missing_files_are_told_with_what_is_needed(tmp_path):
    write(tmp_path)
    (tmp_path / "dev.txt").unlink()
    for found, split, message in (
        (tmp_path, "valid", "has no dev.txt"),
        (tmp_path / "nowhere", "train", "no data file"),
        (tmp_path / "train.txt", "train", "is no folder"),
    ):
        with pytest.raises(MissingDataError, match=message) as caught:
            load(found, split)
        for part in ("train.txt, dev.txt and test.txt", "nlp.stanford.edu/sentiment", "licence"):
            assert part in str(caught.value)


@pytest.mark.parametrize("option", ["classes", "min_count", "max_depth", "train", "valid"])
def test_options_below_one_are_refused(tmp_path, option):
    with pytest.raises(DataError, match=f"{option} is 0; it must be at least 1"):
        load(write(tmp_path), **{option: 0})


def test_the_first_trees_of_a_file_may_be_enough(tmp_path):
    write(tmp_path, "(0 no)\n" + GOOD + "(4 fine)\n", dev=GOOD + "(1 It)\n" + "(2 no)\n")
    assert trees_of(load(tmp_path, train=2)) == trees_of(load(tmp_path))[:2]
    assert load(tmp_path, train=2).about.vocabularies["token"] == (
        "<unk>",
        "'s",
        "It",
        "good",
        "no",
    )
    assert load(tmp_path, train=1).about.vocabularies["token"] == ("<unk>", "no")
    valid = load(tmp_path, "valid", train=1, valid=2)
    assert valid.field("token").values.tolist() == [0, 0, 0, 0]
    assert len(load(tmp_path, "valid", train=1)) == 3
    for split, option in (("train", "train"), ("valid", "valid")):
        said = rf"txt: holds 3 trees, too few for {option} 4; lower data.{option}"
        with pytest.raises(DataError, match=said):
            load(tmp_path, split, **{option: 4})


def test_row_101_files_that_are_cut_are_named(tmp_path):
    write(tmp_path, GOOD * 3 + GOOD[:17])
    with pytest.raises(DataError, match=r"train.txt:4:18: ends with 3 brackets open; .*is cut"):
        load(tmp_path)
    packed = gzip.compress(GOOD.encode() * 3)
    (tmp_path / "train.txt").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=r"train.txt: has a damaged gzip stream"):
        load(tmp_path)


def test_row_99_a_surrogate_is_no_utf8(tmp_path):
    write(tmp_path)
    (tmp_path / "train.txt").write_bytes(b"(3 \xed\xa0\x80)\n")
    with pytest.raises(DataError, match=r"train.txt:1: holds .*: not UTF-8"):
        load(tmp_path)


def test_row_101_what_is_said_of_a_line_of_10_million_characters_is_short(tmp_path):
    write(tmp_path, "(3 (2 It) " + "x" * 10_000_000 + ")\n")
    with pytest.raises(DataError, match=r"train.txt:1:11: has a node with both a child") as caught:
        load(tmp_path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("empty", ["()", "( )", "(2)", "(2 ())"])
def test_row_94_an_empty_tree_is_named_or_left_out_counted_and_told(tmp_path, empty):
    bad = "(3 (2 It) (9 's))\n"
    write(tmp_path, f"{GOOD}{empty}\n{bad}{GOOD}", dev=f"{empty}\n{GOOD}")
    with pytest.raises(DataError, match=r"train.txt:2:\d: "):
        load(tmp_path)
    said = r"train.txt:3:11: label '9' is not .*, and 1 lines before are no tree either; "
    with pytest.raises(DataError, match=f"{said}.*raise data.skip_bad"):
        load(tmp_path, skip_bad=1)
    data = load(tmp_path, skip_bad=2)
    assert len(data) == 2
    (told,) = (note for note in data.about.notes if "left out" in note)
    file = tmp_path / "train.txt"
    assert told.startswith(f"train: 2 lines that are no trees were left out: {file}:2:")
    assert told.endswith(f"; {file}:3:11: label '9' is not a whole number from 0 to 4")
    (told,) = (n for n in load(tmp_path, "valid", skip_bad=2).about.notes if "left out" in n)
    assert told.startswith("valid: 1 line that is no tree was left out: ")
    assert trees_of(data) == trees_of(load(write(tmp_path, GOOD * 2)))


def test_row_94_of_many_lines_left_out_three_are_told(tmp_path):
    write(tmp_path, GOOD + "()\n" * 7)
    with (tmp_path / "train.txt").open("ab") as file:
        file.write(b"(2 \xff)\n")
    (told,) = (n for n in load(tmp_path, skip_bad=9).about.notes if "left out" in n)
    assert told.startswith("train: 8 lines that are no trees")
    assert told.endswith("; and 5 more")
    with pytest.raises(DataError, match="skip_bad is -1; it must be at least 0"):
        load(tmp_path, skip_bad=-1)
    write(tmp_path, "()\n")
    with pytest.raises(DataError, match="holds no tree"):
        load(tmp_path, skip_bad=9)


# ---------------------------------------------------------------------------- vocabulary


def test_a_vocabulary_has_the_most_frequent_words_first():
    text = ["b", "a", "b", "c", "a", "d", "<unk>", "<unk>"]
    assert Vocabulary.of(text).words == ("<unk>", "a", "b", "c", "d")
    assert Vocabulary.of(text, min_count=2).words == ("<unk>", "a", "b")
    assert Vocabulary.of(text).ids(["d", "e", "<unk>", "a"]).tolist() == [4, 0, 0, 1]


def test_words_of_the_other_files_are_unknown_unless_training_has_them(tmp_path):
    write(tmp_path, dev="(2 (2 IT) (2 (2 It) (2 bad)))\n", test="(4 good)\n(3 It)\n")
    valid = load(tmp_path, "valid")
    assert valid.about.vocabularies == load(tmp_path).about.vocabularies
    assert valid.field("token").values.tolist() == [0, 2, 0]
    note = "train: 3 words have an id; 0 of 3 words in the trees are unknown"
    assert load(tmp_path).about.notes == (note,)
    assert valid.about.notes == ("valid: 2 of 3 words in the trees are unknown",)
    assert load(tmp_path, "valid", lower=True).field("token").values.tolist() == [3, 3, 0]
    assert load(tmp_path, "valid", valid_file="test").field("token").values.tolist() == [3, 2]
    assert load(tmp_path, "train", min_count=2).field("token").values.tolist() == [0, 0, 0]


def test_training_trees_that_changed_are_read_again(tmp_path):
    assert len(load(write(tmp_path))) == 1
    assert len(load(write(tmp_path, GOOD * 3))) == 3


# ---------------------------------------------------------------------------- real files


@pytest.mark.skipif(not SST.is_dir(), reason="AMP_DATA/sst is not there")
def test_the_real_treebank_is_read():
    sizes = {"train": (8544, 163_563), "dev": (1101, 21_274), "test": (2210, 42_405)}
    for name, (n_trees, n_leaves) in sizes.items():
        trees = read_trees(SST / f"{name}.txt", classes=5, max_depth=100)
        assert (len(trees), len(trees.words)) == (n_trees, n_leaves)
        assert (trees.n_nodes == 2 * trees.n_leaves - 1).all()
        n_with = sum("\xa0" in word for word in trees.words)
        assert n_with == (3 if name == "train" else 0)
