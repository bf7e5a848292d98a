"""Python functions as trees, to be told by the verb in their name: get, set, is, ...

By default those of the standard library of the Python that runs this, so that there is
data on every machine; other versions of Python give somewhat other examples.
"""

from __future__ import annotations

import platform
import sysconfig
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.paths import find_data_path
from amp_runtime.data.python_functions import (
    Function,
    Functions,
    NodeType,
    python_files,
    read_all_functions,
    read_functions,
)
from amp_runtime.data.trees.tree_fields import children
from amp_runtime.data.vocabulary import words_of
from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.rows.spec import Array, Int32


def source(
    split: str,
    seed: int,
    *,
    path: str | None = None,
    verbs: int = 20,
    identifiers: int = 500,
    max_nodes: int = 250,
    valid: float = 0.2,
    split_seed: int = 0,
) -> Dataset:
    """Return the functions of a split whose verb is among the most frequent.

    An example is a function's abstract syntax tree without its name: not where it is
    defined, nor where it calls itself or names its like (`self.name`, `super().name`,
    `_name`). The verb is the first word of the name: `get` of `get_path`, `_getNode`.
    Special methods (`__init__`) and copies of a function are left out.

    Nodes are numbered within a tree, children before their parent, the root last.
    Fields with one row for each node, of any number of children:
        type        int32, what it is: the payload of an input `each="type"`, whose
                    state column `node` is `POSITION`.
        parent      int32, -1 for the root: the key under which a group collects children.
        n_children  int32, 0 or more: how many of them the group waits for.
        first_child int32, where in `child` its children begin.
        is_root     int32, 1 for the root: where a cond lets rows leave the loop.
    with one row for each node but the root:
        child       int32, the children of node 0, of node 1, ...: where a flatmap sends
                    what a node has for each of its children.
    and with one row for each example:
        label       int32, 0 to verbs - 1, the most frequent verb first.

    Args:
        split: `train` or `valid`.
        seed: the run's; not used: every run learns from the same functions.
        path: a folder of Python files of your own; None: the standard library without
            its tests. Folders of tests and of installed packages are left out.
        verbs: how many verbs to tell apart; functions with others are left out.
        identifiers: how many types with an identifier (`Name self`) are told apart: the
            most frequent of the training functions; other nodes have none (`Name`).
        max_nodes: functions of more nodes are left out.
        valid: share of the functions to validate on, at most: whole modules (packages)
            are drawn, so that near-copies within one are not on both sides.
        split_seed: which modules those are.
    Raises:
        MissingDataError: no such folder, or no Python file in it.
        DataError: an option out of range, or too few functions.
    """
    for name, value, least in (
        ("verbs", verbs, 1), ("identifiers", identifiers, 0), ("max_nodes", max_nodes, 1),
    ):  # fmt: skip
        if value < least:
            raise DataError(
                f"{name} is {value}; it must be at least {least}", fix=f"set data.{name}"
            )
    if not 0 < valid < 1:
        raise DataError(
            f"valid is {valid}; it must be more than 0, less than 1", fix="set data.valid"
        )
    folder = Path(sysconfig.get_path("stdlib")) if path is None else find_data_path(path)
    files = python_files(folder)
    if not files:
        raise MissingDataError(
            f"{folder} holds no Python file",
            fix="set data.path to a folder with some"
            if path
            else "install Python with the sources of its standard library",
        )
    read = _read_once(folder, tuple(files), tuple(f.stat().st_mtime_ns for f in files), max_nodes)
    chosen = _choose(read, verbs, valid, split_seed)
    if not chosen.train or not chosen.valid:
        raise DataError(
            f"holds {len(chosen.train)} functions to train and {len(chosen.valid)} to validate on",
            where=str(folder),
            fix="raise data.verbs or data.max_nodes, or change data.valid",
        )
    types, number_of = _types(read.types, chosen.train, identifiers)
    functions = chosen.train if split == "train" else chosen.valid
    label_of = {verb: number for number, verb in enumerate(chosen.verbs)}
    label = np.array([label_of[f.verb] for f in functions], np.int32)
    notes = _notes(read, files, chosen, folder) if split == "train" else _baseline(label, chosen)
    return Dataset.from_columns(
        {**_columns(functions, number_of), "label": label},
        about=About({"type": types, "label": chosen.verbs}, notes),
    )


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return all functions of a Python file, by line, whatever their names and sizes.

    What is told of a function: its name (`function`), and its `line`.

    Raises:
        DataError: the file is wrong or holds no function, with its line, or the run has no
            vocabulary.
    """
    number = {word: at for at, word in enumerate(words_of(vocabularies, "type"))}
    found = read_all_functions(file)
    if not found.functions:
        raise DataError("holds no function", where=str(file), fix="name a Python file with some")
    number_of = np.full(len(found.types), -1, np.int32)
    for at, (kind, identifier) in enumerate(found.types):
        number_of[at] = number.get(f"{kind} {identifier}", number.get(kind, -1))
    for function in found.functions:
        new = next((found.types[t][0] for t in function.types if number_of[t] < 0), None)
        if new is not None:
            raise DataError(
                f"function {function.name!r} holds a node {new!r}, which is nowhere in the files "
                "that the run learned from",
                where=f"{file}:{function.line}",
                fix="leave it out, or train on files that hold one",
            )
    told: dict[str, Sequence[Any]] = {
        "function": [f.name for f in found.functions],
        "line": [f.line for f in found.functions],
    }
    columns = _columns(found.functions, number_of)
    return Dataset.from_columns(columns, where=str(file), about=About(told=told))


def _columns(functions: Sequence[Function], number_of: Int32) -> dict[str, tuple[Array, Array]]:
    """Return all fields but the labels."""
    n_nodes = np.array([len(f.types) for f in functions])
    types = np.fromiter(chain.from_iterable(f.types for f in functions), np.int32)
    parent = np.fromiter(chain.from_iterable(f.parents for f in functions), np.int32)
    n_children, first_child, child = children(parent, n_nodes)
    return {
        "type": (number_of[types], n_nodes),
        "parent": (parent, n_nodes),
        "n_children": (n_children, n_nodes),
        "first_child": (first_child, n_nodes),
        "child": (child, n_nodes - 1),
        "is_root": (parent < 0, n_nodes),
    }


@dataclass(frozen=True, slots=True)
class _Chosen:
    verbs: tuple[str, ...]
    train: list[Function]
    valid: list[Function]
    n_copies: int


@lru_cache(maxsize=1)
def _read_once(
    folder: Path, files: tuple[Path, ...], written_ns: tuple[int, ...], max_nodes: int
) -> Functions:
    """Read the files; the second split need not unless one was written anew."""
    return read_functions(folder, files, max_nodes=max_nodes)


def _choose(read: Functions, n_verbs: int, valid: float, split_seed: int) -> _Chosen:
    """Return the functions to learn from, by split."""
    distinct = {(f.verb, f.types, f.parents): f for f in reversed(read.functions)}
    functions = [f for f in read.functions if distinct[f.verb, f.types, f.parents] is f]
    frequency = Counter(f.verb for f in functions)
    verbs = tuple(sorted(frequency, key=lambda verb: (-frequency[verb], verb))[:n_verbs])
    wanted = [f for f in functions if f.verb in verbs]
    sizes = Counter(f.module for f in wanted)
    modules = sorted(sizes)
    n_valid, held_out = 0, set()
    for number in np.random.default_rng(split_seed).permutation(len(modules)):
        if n_valid + sizes[modules[number]] <= valid * len(wanted):
            n_valid += sizes[modules[number]]
            held_out.add(modules[number])
    return _Chosen(
        verbs,
        [f for f in wanted if f.module not in held_out],
        [f for f in wanted if f.module in held_out],
        len(read.functions) - len(functions),
    )


def _types(
    types: Sequence[NodeType], train: Sequence[Function], identifiers: int
) -> tuple[tuple[str, ...], Int32]:
    """Return the names of the types that are told apart, and the number of each in `types`."""
    counts = Counter(chain.from_iterable(f.types for f in train))
    named = [number for number in counts if types[number][1]]
    named.sort(key=lambda number: (-counts[number], types[number]))
    kept = set(named[:identifiers])
    names = [f"{kind} {name}" if n in kept else kind for n, (kind, name) in enumerate(types)]
    distinct = sorted(set(names))
    number = {name: at for at, name in enumerate(distinct)}
    return tuple(distinct), np.array([number[name] for name in names], np.int32)


def _notes(
    read: Functions, files: Sequence[Path], chosen: _Chosen, folder: Path
) -> tuple[str, ...]:
    n_unread = f", {len(read.unread)} of which Python cannot parse" if read.unread else ""
    return (
        f"Python {platform.python_version()}, {len(files)} files in {folder}{n_unread}: "
        f"{len(read.functions) - chosen.n_copies} functions, without {read.n_large} of too many "
        f"nodes and {chosen.n_copies} copies; {len(chosen.train) + len(chosen.valid)} with the "
        f"verbs {', '.join(chosen.verbs)}",
    )


def _baseline(label: Int32, chosen: _Chosen) -> tuple[str, ...]:
    # The most frequent verb of training is what one would answer without a look.
    verb = Counter(f.verb for f in chosen.train).most_common(1)[0][0]
    share = float((label == chosen.verbs.index(verb)).mean())
    return (f"valid: always answering {verb!r} has accuracy {share:.4f}",)
