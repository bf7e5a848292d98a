"""Files to predict, in the own form of a source: read without labels, wrong lines named."""

from __future__ import annotations

import gzip
import json
import os
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amp_runtime.data import READERS, SOURCES, load_split, read_examples, read_examples_with
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.rows.spec import ArraySpec

IMAGES = np.array([[0, 51, 102, 255], [255, 0, 0, 0], [1, 2, 3, 4]], np.uint8)
OF_IMAGES = ExampleForm({"pixels": ArraySpec((4,), "float32")}, single=["pixels"])
ANY = ExampleForm({})


def read(
    source: str,
    file: Path,
    form: ExampleForm = ANY,
    vocabularies: Mapping[str, Sequence[str]] | None = None,
    **options: Any,
) -> Dataset:
    return read_examples(source, options, file, form, vocabularies or {})


def plain(dataset: Dataset) -> dict[str, list[Any]]:
    """Return {field: values of each example}."""
    return {
        name: [part.tolist() for part in np.split(field.values, field.offsets[1:-1])]
        for name, field in dataset.fields.items()
    }


def test_every_source_of_ours_has_a_form_of_its_own():
    assert READERS.keys() == SOURCES.keys()


# -------------------------------------------------------------------------------- images


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def as_csv(table: np.ndarray) -> bytes:
    return "".join(",".join(map(str, row)) + "\n" for row in table.tolist()).encode()


def npy(array: np.ndarray, folder: Path) -> bytes:
    np.save(folder / "array.npy", array)
    return (folder / "array.npy").read_bytes()


@pytest.mark.parametrize(
    "form",
    ["npy", "npy of 2 x 2", "npy of floats", "npy in the order of columns", "idx", "csv",
     "csv with labels", "csv with a header", "csv, zipped"],
)  # fmt: skip
def test_images_need_no_labels(tmp_path, form):
    square = IMAGES.reshape(3, 2, 2)
    file = tmp_path / "new"
    file.write_bytes(
        {
            "npy": npy(IMAGES, tmp_path),
            "npy of 2 x 2": npy(square.astype(np.int64), tmp_path),
            "npy of floats": npy(IMAGES / 255, tmp_path),
            "npy in the order of columns": npy(np.asfortranarray(square), tmp_path),
            "idx": idx(square),
            "csv": as_csv(IMAGES),
            "csv with labels": as_csv(np.c_[IMAGES, [7, 8, 9]]),
            "csv with a header": b"a,b,c,d\n\n" + as_csv(IMAGES),
            "csv, zipped": gzip.compress(as_csv(IMAGES)),
        }[form]
    )
    found = read("pixels", file, OF_IMAGES)
    assert list(found.fields) == ["pixels"]
    np.testing.assert_allclose(found.field("pixels").values, IMAGES / 255, rtol=1e-6)


def test_the_label_is_left_out_where_the_run_had_it(tmp_path):
    (tmp_path / "new.csv").write_bytes(as_csv(np.c_[[7, 8, 9], IMAGES]))
    found = read("pixels", tmp_path / "new.csv", OF_IMAGES, label="first")
    np.testing.assert_allclose(found.field("pixels").values, IMAGES / 255, rtol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 4), (1, 2, 2)])
def test_a_single_image_may_be_without_an_axis_for_images(tmp_path, shape):
    np.save(tmp_path / "one.npy", IMAGES[0].reshape(shape))
    assert len(read("pixels", tmp_path / "one.npy", OF_IMAGES)) == 1


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (IMAGES[:, :3], r"is an array \[3, 3\]; the model takes images of 4 pixels; give \[images"),
        (IMAGES.astype(np.int32) * 2, "holds int32 that are not all from 0 to 255"),
        (IMAGES.astype(np.float32), "holds float32 that are not all from 0 to 1; .*or floats 0"),
        (np.full((1, 4), np.nan), "holds float64 that are not all"),
        (np.array([["a"] * 4]), "holds <U1 that are"),
        (IMAGES[:0], "holds no image"),
        (np.array([[None] * 4]), "is no array of numbers: Object arrays cannot be loaded"),
    ],
)
def test_arrays_that_are_no_images_are_refused(tmp_path, array, message):
    np.save(tmp_path / "new.npy", array)
    with pytest.raises(DataError, match=f"new.npy: {message}"):
        read("pixels", tmp_path / "new.npy", OF_IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (as_csv(IMAGES[:, :3]), "new: has 3 columns; the model takes 4 pixels, beside which a"),
        (b"1,2,3,4\n1,2,3,256\n", "new:2: pixel '256' in column 4 is not a whole number from 0"),
        (b"1,2,3,4\n1,2,3\n", "new:2: has 3 values, but the first row has 4; .* 0 to 255, commas"),
        (idx(np.zeros((2, 3), np.uint8)), "new: holds images of 3 pixels; the model takes 4"),
        (b"", "new: is empty"),
    ],
)
def test_files_that_hold_no_such_images_are_refused(tmp_path, content, message):
    (tmp_path / "new").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read("pixels", tmp_path / "new", OF_IMAGES)


# --------------------------------------------------------------------------------- trees

TOKENS = {"token": ("<unk>", "'s", "It", "good")}
LABELLED = "(3 (2 It) (4 (2 's) (4 good)))\n"


@pytest.mark.parametrize(
    "line",
    [LABELLED, "((It) (('s) (good)))\n", "(S (NP It) (VP (V 's) (ADJP (A good))))\n",
     "(9 ( It) ((-1 's) ( (good))))\n"],
)  # fmt: skip
def test_trees_need_no_labels_and_brackets_alone_say_what_they_are(tmp_path, line):
    (tmp_path / "new.txt").write_text(f"\n{line}{LABELLED}(2 bad)\n")
    found = read("treebank", tmp_path / "new.txt", vocabularies=TOKENS)
    assert "label" not in found.fields
    assert found.about.told == {"words": [["It", "'s", "good"]] * 2 + [["bad"]]}
    assert found.about.notes == ("1 of 7 words in the trees are unknown",)
    tree = {
        "token": [2, 1, 3], "leaf": [0, 1, 2], "parent": [4, 3, 3, 4, -1],
        "side": [0, 0, 1, 1, 0], "n_children": [0, 0, 0, 2, 2], "is_root": [0, 0, 0, 0, 1],
    }  # fmt: skip
    for name, values in plain(found).items():
        assert values[:2] == [tree[name]] * 2, name
    lower = read("treebank", tmp_path / "new.txt", vocabularies={"token": ("", "it")}, lower=True)
    assert plain(lower)["token"][0] == [1, 0, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("It 's good", r"2:1: begins with 'It', not with a bracket"),
        ("(2 (1 a) (1 b) (1 c))", r"2:16: has a node with more than 2 children"),
        ("((a) ())", r"2:7: closes a node without a word"),
        ("((a) (b)", r"2:9: ends with 1 bracket open"),
    ],
)
def test_a_tree_that_is_none_is_named_with_its_place(tmp_path, line, message):
    (tmp_path / "new.txt").write_text(f"{LABELLED}{line}\n")
    with pytest.raises(DataError, match=f"new.txt:{message}"):
        read("treebank", tmp_path / "new.txt", vocabularies=TOKENS)


def test_a_run_that_lost_its_words_is_told_so(tmp_path):
    (tmp_path / "new.txt").write_text(LABELLED)
    with pytest.raises(DataError, match="does not say what ids in field 'token' stand for"):
        read("treebank", tmp_path / "new.txt")


PROGRAM = """
def get_top(self):
    return self.items[-1]

class A:
    def __init__(self):
        def inner(): pass
"""


def test_all_functions_of_a_python_file_are_told_by_name_and_line(tmp_path):
    (folder := tmp_path / "code").mkdir()
    (folder / "a.py").write_text("def get_it(self): return self.items[-1]\n")
    (folder / "b.py").write_text("def set_it(self): self.items = 1\ndef inner(): pass\n")
    options = {"path": str(folder), "valid": 0.7, "identifiers": 50}
    trained = load_split("python_trees", "train", 0, options)
    (tmp_path / "new.py").write_text(PROGRAM)
    (tmp_path / "same.py").write_text("def put(self): return self.items[-1]\n")
    vocabularies = trained.about.vocabularies
    found = read("python_trees", tmp_path / "new.py", vocabularies=vocabularies, max_nodes=1)
    assert found.about.told == {"function": ["get_top", "__init__", "inner"], "line": [2, 6, 7]}
    assert "label" not in found.fields
    # Its tree is that of the function that is alike, whatever both are called.
    splits = {s: load_split("python_trees", s, 0, options) for s in ("train", "valid")}
    alike = [
        example
        for dataset in splits.values()
        for example in zip(*plain(dataset).values(), strict=True)
        if len(example[0]) == len(plain(found)["type"][0])
    ]
    fields = [name for name in trained.fields if name != "label"]
    of_new = [plain(found)[name][0] for name in fields]
    assert of_new in [list(example[: len(fields)]) for example in alike]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "new.py:1: cannot be parsed: invalid syntax"),
        ("x = 1\n", "new.py: holds no function; name a Python file with some"),
        ("\n\ndef f(): return 1\n", "new.py:3: function 'f' holds a node 'arguments', which"),
        ("x = 1\0\n", "new.py.*cannot be parsed: source code string cannot contain null bytes"),
    ],
)
def test_a_python_file_that_cannot_be_read_is_named(tmp_path, text, message):
    (tmp_path / "new.py").write_text(text)
    with pytest.raises(DataError, match=message):
        read("python_trees", tmp_path / "new.py", vocabularies={"type": ("Name",)})


# -------------------------------------------------------------------------------- graphs

STORIES = """1 Mice are afraid of wolves.
2 Gertrude is a mouse.
3 What is gertrude afraid of?
1 Cats are afraid of sheep.
2 Emily is a cat.
3 What is emily afraid of?\tsheep\t2 1
4 What is cat afraid of?
"""


def test_questions_need_no_answers_and_are_told_with_the_names_of_nodes(tmp_path):
    (tmp_path / "new.txt").write_text(STORIES)
    found = read("babi15", tmp_path / "new.txt")
    second = ["cat", "sheep", "emily"]
    assert found.about.told == {
        "story": (0, 1, 1),
        "about": ["gertrude", "emily", "cat"],
        "nodes": [["mouse", "wolf", "gertrude"], second, second],
    }
    columns = plain(found)
    assert "label" not in columns
    assert columns["annotation"][0] == [[0], [0], [1]]
    assert columns["edge_target"] == [[1, 0]] * 3
    (tmp_path / "new.graphs").write_text("3 2 7\n5 1 3\n? 1 5\n? 1 7 3\n")
    found = read("babi15", tmp_path / "new.graphs")
    assert found.about.told["about"] == ["5", "7"]
    assert found.about.told["nodes"][0] == ["3", "7", "5"]


def test_a_story_without_a_question_is_refused(tmp_path):
    (tmp_path / "new.txt").write_text(STORIES.splitlines()[0])
    with pytest.raises(DataError, match=r"new.txt: holds no question"):
        read("babi15", tmp_path / "new.txt")


# ----------------------------------------------------------------------------- molecules


def test_molecules_are_read_from_smiles_or_as_for_training(tmp_path):
    (tmp_path / "new.smi").write_text("O water\n\nC=O\tformaldehyde, CH2O\n")
    found = read("qm9", tmp_path / "new.smi")
    assert found.about.told == {"smiles": ["O", "C=O"]}
    assert "target" not in found.fields
    columns = plain(found)
    h, c, _, o, _ = np.eye(5).tolist()
    assert columns["annotation"] == [[o, h, h], [c, o, h, h]]
    assert columns["edge_type"] == [[0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]  # of C, of O, of each H
    np.savez(
        tmp_path / "new.npz",
        atomic_number=np.array([8, 1, 1]), node_offset=np.array([0, 3]),
        edge_offset=np.array([0, 2]), edge_src=np.array([0, 0]), edge_dst=np.array([1, 2]),
        edge_type=np.array([0, 0]), target=np.zeros((1, 0)), target_name=np.array([], "U1"),
    )  # fmt: skip
    archived = read("qm9", tmp_path / "new.npz")
    assert {name: values[:1] for name, values in columns.items()} == plain(archived)
    assert archived.about.told == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("O\nC(\n", r"new.smi:2: SMILES 'C\(', its end: a branch that is not closed"),
        ("Na\n", "new.smi:1: SMILES 'Na', character 2"),
        ("\n", "new.smi: holds no molecule; a line begins with a SMILES"),
    ],
)
def test_a_line_without_a_molecule_is_named(tmp_path, text, message):
    (tmp_path / "new.smi").write_text(text)
    with pytest.raises(DataError, match=message):
        read("qm9", tmp_path / "new.smi")


@pytest.mark.parametrize("source", ["treebank", "own:examples"])
def test_a_pipe_brings_json_lines_too_and_wrong_lines_are_named_by_it(tmp_path, source):
    form = ExampleForm({"token": ArraySpec((), "int32")})
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def piped(text: str) -> Dataset:
        writer = threading.Thread(target=pipe.write_text, args=[text], daemon=True)
        writer.start()
        try:
            return read(source, pipe, form)
        finally:
            writer.join()

    found = piped('{"token": [1, 2]}\n{"token": [3]}')
    assert plain(found) == {"token": [[1, 2], [3]]}
    assert found.where == str(pipe)
    with pytest.raises(DataError, match=f"^{pipe}:2, field 'token': holds 0.5"):
        piped('{"token": [1]}\n{"token": [0.5]}\n')


OF_OWN = ExampleForm(
    {"word": ArraySpec((), "int32"), "leaf": ArraySpec((), "int32")}, [["word", "leaf"]]
)


def test_a_reader_of_ones_own_gives_fields_as_arrays_words_and_labels_that_nobody_reads(tmp_path):
    (tmp_path / "new").write_text("2\n3\n")

    def reader(file: Path) -> Iterator[dict[str, Any]]:
        for line in file.read_text().splitlines():
            n = int(line)
            yield {"word": ["a", *[0] * (n - 1)], "leaf": np.arange(n), "label": None}

    found = read_examples_with(reader, tmp_path / "new", OF_OWN, {"word": ["<unk>", "a"]})
    assert plain(found) == {"word": [[1, 0], [1, 0, 0]], "leaf": [[0, 1], [0, 1, 2]]}


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (lambda file: 1 / 0, r"new: reader '.*' raised ZeroDivisionError: .*\(.*predict\.py:\d+\)"),
        (lambda file: None, r"new: reader '.*' raised TypeError: 'NoneType' object is not iter"),
        (3, r"new: reader '.*:3' raised TypeError: 'int' object is not callable"),
        (lambda file: [], "new: holds no example; a line is one"),
        (lambda file: [3], r"new: example 0: reader '.*' gave 3, not a mapping from field"),
        (lambda file: [{"word": [1]}], "new: example 0: lacks field 'leaf'"),
        (lambda file: [{"word": [1], "leaf": [0.5]}], "new: example 0, field 'leaf': holds 0.5"),
        (lambda file: [{"word": [1], "leaf": []}], "new: example 0: has fields of different le"),
    ],
)
def test_what_a_reader_of_ones_own_does_wrong_is_named(tmp_path, examples, message):
    (tmp_path / "new").touch()
    with pytest.raises(DataError, match=message):
        read_examples_with(examples, tmp_path / "new", OF_OWN, {})


def test_a_folder_is_not_called_a_file_without_permission(tmp_path):
    with pytest.raises(MissingDataError, match="is a folder, not a file; name a file in it"):
        read("treebank", tmp_path, vocabularies={"token": ["<unk>"]})


def test_a_file_on_a_disk_that_fails_is_named():
    memory = Path("/proc/self/mem")  # nothing is at address 0, so that a read is an I/O error
    with pytest.raises(MissingDataError, match=r"cannot read /proc/self/mem: Input/output error"):
        read("treebank", memory)


def test_json_lines_are_taken_of_every_source(tmp_path):
    (tmp_path / "new.jsonl").write_text(json.dumps({"pixels": [0, 0.2, 0.4, 1]}))
    for source in SOURCES:
        found = read(source, tmp_path / "new.jsonl", OF_IMAGES)
        np.testing.assert_allclose(found.field("pixels").values, [[0, 0.2, 0.4, 1]])
