"""Roles of names in Python functions: each by its token, whole modules held out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from amp_runtime.checking.rules import ConfigProblemsError
from amp_runtime.data import load_split, read_examples
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.errors import DataError, MissingDataError

PROGRAM = '''\
import os

class Stack:
    def top(self, n=1):
        """Not told."""
        found = self.items[-n]  # nor this
        for one in found.split("a", maxsplit=2):
            print(one.name, os)
        return found
'''
WANTED = {
    "self": "parameter", "n": "parameter", "found": "variable", "one": "variable",
    "items": "attribute", "name": "attribute", "split": "method", "maxsplit": "keyword",
    "print": "function", "os": "global",
}  # fmt: skip


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    return folder


def load(folder, split="train", **options):
    given = {"path": str(folder), "min_count": 1, "valid": 0.5, **options}
    return load_split("python_names", split, 0, given)


def functions(data):
    """Return [[(word, role), ...], ...]."""
    words, roles = (data.about.vocabularies[name] for name in ("tokens", "label"))
    made, offsets = [], data.field("tokens").offsets
    for first, end in pairwise(offsets):
        pairs = zip(
            data.field("tokens").values[first:end], data.field("label").values[first:end],
            strict=True,
        )  # fmt: skip
        made.append([(words[word], roles[role]) for word, role in pairs])
    return made


def test_each_name_has_its_role_and_what_is_no_name_has_none(tmp_path):
    data = load(write(tmp_path, a=PROGRAM, b=PROGRAM))
    (tokens,) = functions(data)
    assert " ".join(word for word, _ in tokens) == (
        "<indent> def top ( self , n = <number> ) : <newline> <indent> <string> <newline> "
        "found = self . items [ - n ] <newline> "
        "for one in found . split ( <string> , maxsplit = <number> ) : <newline> "
        "<indent> print ( one . name , os ) <newline> <dedent> return found <newline> "
        "<dedent> <dedent>"
    )
    for word, role in tokens:
        assert role == WANTED.get(word, "-"), word


def test_modules_are_held_out_whole_and_the_vocabulary_is_that_of_training(tmp_path):
    texts = {f"m{k}": f"def f(p{k}):\n    return p{k}\n\ndef g(): pass\n" for k in range(6)}
    folder = write(tmp_path, **texts)
    train, valid = load(folder), load(folder, "valid")
    assert (len(train), len(valid)) == (6, 6)
    assert train.about.vocabularies == valid.about.vocabularies
    # Three modules of 12 and 7 tokens each; no other has the names of their parameters.
    unknown = [(word, role) for tokens in functions(valid) for word, role in tokens]
    assert unknown.count(("<unk>", "parameter")) == 6
    assert valid.about.notes[0] == "valid: 6 of 57 words are unknown"
    assert sum(len(load(folder, split, functions=10)) for split in ("train", "valid")) == 10


def test_long_functions_and_files_that_cannot_be_read_are_left_out(tmp_path):
    long = "def f(x):\n" + "    x = x\n" * 30
    short = "def g(x):\n    return x\n"
    folder = write(tmp_path, a=long + short, b=long + short, c="def f(:", d="def h(): 'ä'\n")
    assert [len(load(folder, split)) for split in ("train", "valid")] == [1, 1]
    assert len(load(folder, max_lines=40)) == 2


def test_a_file_to_tag_is_read_by_function(tmp_path):
    file = write(tmp_path, a=PROGRAM) / "a.py"
    words = {"tokens": ["<unk>", "self", "def"], "label": ["-"]}
    data = read_examples("python_names", {}, file, ExampleForm({}), words)
    assert data.about.told["function"] == ["top"]
    assert data.about.told["line"] == [4]
    assert data.about.told["words"][0][:5] == ["<indent>", "def", "top", "(", "self"]
    assert data.field("tokens").values[:5].tolist() == [0, 2, 0, 0, 1]
    (tmp_path / "b.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(DataError, match=r"b\.py:2: cannot be parsed"):
        read_examples("python_names", {}, tmp_path / "b.py", ExampleForm({}), words)
    (tmp_path / "c.py").write_text("x = 1\n")
    with pytest.raises(DataError, match=r"c\.py: holds no function"):
        read_examples("python_names", {}, tmp_path / "c.py", ExampleForm({}), words)


def test_what_cannot_be_learned_from_is_refused(tmp_path):
    with pytest.raises(MissingDataError, match="holds no Python file"):
        load(tmp_path)
    with pytest.raises(DataError, match="holds 0 functions to train and 1 to validate on"):
        load(write(tmp_path, a=PROGRAM))
    with pytest.raises(ConfigProblemsError, match="valid"):
        load(tmp_path, valid=1.5)


def test_the_standard_library_is_there_to_learn_from():
    data = load_split("python_names", "valid", 0, {"functions": 300})
    assert 20 < len(data) < 200
    assert data.about.notes[-1].startswith("valid: always answering '-' has accuracy 0.7")
