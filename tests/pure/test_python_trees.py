"""Python functions as trees: their own name leaves no trace, and modules are on one side."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from amp_runtime.data import load_split
from amp_runtime.data.python_functions import python_files, read_functions
from amp_runtime.errors import DataError, MissingDataError


def read(folder: Path, *, max_nodes: int = 100, **files: str):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text), "utf-8")
    return read_functions(folder, python_files(folder), max_nodes=max_nodes)


def drawn(functions, number=0) -> str:
    """Return a function as `type(children ...)`, put together from the root down."""
    function = functions.functions[number]

    def node(at: int) -> str:
        below = [child for child, parent in enumerate(function.parents) if parent == at]
        text = " ".join(filter(None, functions.types[function.types[at]]))
        return f"{text}({', '.join(map(node, below))})" if below else text

    return node(len(function.parents) - 1)


def test_a_function_becomes_the_tree_of_its_nodes(tmp_path):
    found = read(tmp_path, a="def get_top(self, n=1):\n    x = self.items[-n] or None\n")
    assert drawn(found) == (
        "FunctionDef(arguments(arg self, arg n, Constant int), Assign(Name Store x, "
        "BoolOp(Or, Subscript(Attribute items(Name self), UnaryOp(USub, Name n)), Constant None)))"
    )
    (function,) = found.functions
    assert (function.module, function.verb) == ("a", "get")
    assert all(child < parent for child, parent in enumerate(function.parents[:-1]))


RECURSIVE = """
class A:
    @NAME.setter
    async def NAME(self, NAME):
        from x import NAME as y
        def _NAME(): pass
        await super().NAME(self._NAME, NAME=NAME)
        del self.NAME
        return "NAME"
"""


def test_the_own_name_leaves_no_trace(tmp_path):
    found = [
        read(tmp_path, a=RECURSIVE.replace("NAME", name)) for name in ("get_it", "_set_that", "put")
    ]
    trees = [drawn(functions, 0) for functions in found]
    assert trees[0] == trees[1] == trees[2]
    assert "Attribute(Call(Name super))" in trees[0]
    assert not any(name in trees[0] for name in ("get_it", "set_that", " put"))
    assert [functions.functions[0].verb for functions in found] == ["get", "set", "put"]


def test_other_names_stay(tmp_path):
    found = read(tmp_path, a="def get_it(self):\n    return self.get_that(get)\n")
    assert "Call(Attribute get_that(Name self), Name get)" in drawn(found)


def test_functions_are_found_wherever_they_stand_and_special_ones_left_out(tmp_path):
    found = read(
        tmp_path,
        a="""
        try:
            def one(): pass
        except E:
            def two(): pass
        else:
            for x in y:
                def three(): pass
        match x:
            case 1:
                def four(): pass
        class A:
            class B:
                def five(self):
                    def six(): pass
                    f = lambda: 0
            def __init__(self): pass
            def _0(self): pass
            def makeThing(self): pass
            def _do2(self): pass
        """,
    )
    assert [f.verb for f in found.functions] == [
        "one", "two", "three", "four", "five", "six", "make", "do",
    ]  # fmt: skip


def test_large_functions_and_files_that_do_not_parse_are_counted(tmp_path):
    text = "def get(): pass\ndef get_more(): pass; pass\n"
    found = read(tmp_path, max_nodes=3, a=text, b="def x(:", c="x = '\0'", d="def set(): '\\d'")
    assert [f.verb for f in found.functions] == ["get"]
    assert found.n_large == 2
    assert [file.name for file in found.unread] == ["b.py", "c.py"]


def test_deep_code_is_read_or_left_out(tmp_path):
    deep = "def get():\n    return " + "-" * 150 + "x\n"
    assert drawn(read(tmp_path, max_nodes=1000, a=deep)).count("USub") == 150
    assert read(tmp_path, a="x = " + "(" * 10_000).unread == [tmp_path / "a.py"]


def test_tests_and_installed_packages_are_skipped(tmp_path):
    for folder in ("a", "a/test", "tests", "site-packages/x", "a/testing"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "x.py").touch()
    (tmp_path / "test.py").touch()
    found = [str(file.relative_to(tmp_path)) for file in python_files(tmp_path)]
    assert found == ["a/testing/x.py", "a/x.py", "test.py"]


# ------------------------------------------------------------------------------ the source


def write_package(folder: Path) -> Path:
    """Write ten modules: 3 functions with get, 2 with set, 1 with run in each."""
    for number in range(10):
        texts = [
            f"def {name}(self): return a{number}, {value}, {name!r}\n" for name, value in NAMES
        ]
        (folder / f"m{number}.py").write_text("".join(texts))
    return folder


NAMES = [("get", 0), ("get_2", 1.0), ("_getIt", None), ("set", 0), ("set_2", 1.0), ("run", 0)]


def load(folder, split="train", **options):
    return load_split("python_trees", split, 0, {"path": str(folder), **options})


def modules(data) -> set[str]:
    names = data.about.vocabularies["type"]
    used = {names[number] for number in data.field("type").values}
    return {name for name in used if name.startswith("Name ")}


def test_modules_are_on_one_side_and_the_most_frequent_verbs_are_told_apart(tmp_path):
    write_package(tmp_path)
    train, valid = load(tmp_path, verbs=2), load(tmp_path, "valid", verbs=2)
    assert (len(train), len(valid)) == (40, 10)
    assert train.about.vocabularies == valid.about.vocabularies
    assert train.about.vocabularies["label"] == ("get", "set")
    assert np.bincount(valid.field("label").values).tolist() == [6, 4]
    assert len(modules(train)) == 8
    assert modules(valid) == set()  # identifiers of training alone are told apart
    assert valid.about.notes == ("valid: always answering 'get' has accuracy 0.6000",)
    assert "40" not in train.about.notes[0]
    assert "60 functions" in train.about.notes[0]
    assert "50 with the verbs get, set" in train.about.notes[0]
    other = load(tmp_path, verbs=2, split_seed=1)
    assert modules(other) != modules(train)
    assert modules(load(tmp_path, verbs=2, split_seed=1)) == modules(other)
    assert modules(load(tmp_path, verbs=2, valid=0.5)) < modules(train)


def test_the_columns_of_an_example_are_its_tree(tmp_path):
    write_package(tmp_path)
    data = load(tmp_path, verbs=1, identifiers=1)
    row = {name: data.gather(name, np.array([0])).values.tolist() for name in data.fields}
    names = data.about.vocabularies["type"]
    assert [names[number] for number in row["type"]] == [
        "arg self", "arguments", "Name", "Constant int", "Constant str", "Tuple", "Return",
        "FunctionDef",
    ]  # fmt: skip
    assert row["parent"] == [1, 7, 5, 5, 5, 6, 7, -1]
    assert row["n_children"] == [0, 1, 0, 0, 0, 3, 1, 2]
    assert row["first_child"] == [0, 0, 1, 1, 1, 1, 4, 5]
    assert row["child"] == [0, 2, 3, 4, 5, 1, 6]
    assert row["is_root"] == [0, 0, 0, 0, 0, 0, 0, 1]
    assert row["label"] == [0]


def test_without_identifiers_classes_kinds_and_contexts_are_left(tmp_path):
    names = load(write_package(tmp_path), identifiers=0).about.vocabularies["type"]
    assert names == (
        "Constant None", "Constant float", "Constant int", "Constant str", "FunctionDef", "Name",
        "Return", "Tuple", "arg", "arguments",
    )  # fmt: skip


def test_copies_of_a_function_count_once(tmp_path):
    write_package(tmp_path)
    (tmp_path / "n.py").write_text((tmp_path / "m0.py").read_text())
    assert len(load(tmp_path)) + len(load(tmp_path, "valid")) == 60
    assert "without 0 of too many nodes and 6 copies" in load(tmp_path).about.notes[0]


def test_a_file_that_changed_is_read_again(tmp_path):
    write_package(tmp_path)
    before = len(load(tmp_path)) + len(load(tmp_path, "valid"))
    (tmp_path / "new.py").write_text("def get_new(): pass\n")
    assert len(load(tmp_path)) + len(load(tmp_path, "valid")) == before + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verbs": 0}, "verbs is 0; it must be at least 1; set data.verbs"),
        ({"identifiers": -1}, "identifiers is -1; it must be at least 0"),
        ({"max_nodes": 0}, "max_nodes is 0; it must be at least 1"),
        ({"valid": 1.0}, r"valid is 1\.0; it must be more than 0, less than 1"),
        ({"valid": 0.01}, "holds 60 functions to train and 0 to validate on; .*data.valid"),
    ],
)
def test_options_out_of_range_are_refused(tmp_path, options, message):
    with pytest.raises(DataError, match=message):
        load(write_package(tmp_path), **options)


def test_a_folder_without_python_files_is_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"holds no Python file; set data\.path"):
        load(tmp_path)


def test_the_standard_library_of_this_python_is_data_enough():
    train, valid = (load_split("python_trees", split, 0, {}) for split in ("train", "valid"))
    assert len(train) > 1500
    assert 0.1 < len(valid) / (len(train) + len(valid)) <= 0.2
    assert set(train.about.vocabularies["label"]) > {"get", "set", "is", "add", "read"}
    assert len(train.about.vocabularies["label"]) == 20
    for data in (train, valid):
        parent, counts = data.field("parent"), data.field("parent").counts
        position = np.arange(len(parent.values)) - np.repeat(parent.offsets[:-1], counts)
        is_root = data.field("is_root").values == 1
        assert (parent.values[~is_root] > position[~is_root]).all()
        assert is_root.sum() == len(data)
        n_children = np.add.reduceat(data.field("n_children").values, parent.offsets[:-1])
        assert n_children.tolist() == (counts - 1).tolist()
        # Each node but the roots is once among the children, behind its parent's first one.
        children, first = data.field("child"), data.field("first_child").values
        start = np.repeat(parent.offsets[:-1], counts)
        whole = np.repeat(children.offsets[:-1], counts) + first
        of = np.repeat(np.arange(len(first)), data.field("n_children").values)
        place = np.arange(len(of)) - np.repeat(
            np.cumsum(data.field("n_children").values) - data.field("n_children").values,
            data.field("n_children").values,
        )
        child = start[of] + children.values[whole[of] + place]
        assert (start[child] + parent.values[child] == of).all()
        assert len(np.unique(child)) == len(child) == (~is_root).sum()
        assert 0.1 < np.bincount(data.field("label").values).max() / len(data) < 0.5
