"""What is a name in a Python function: a parameter, an attribute, a method? Told token by token.

    def  top  (  self       )  :  return  self       .  items      [  -  <number>  ]
    -    -    -  parameter  -  -  -       parameter  -  attribute  -  -  -         -

By default the functions of the standard library of the Python that runs this, so that there
is data to tag on every machine; other versions of Python give somewhat other examples.
"""

from __future__ import annotations

import ast
import io
import sys
import sysconfig
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from amp_runtime.data.dataset import Dataset
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.paths import find_data_path
from amp_runtime.data.python_functions import AnyFunction, functions_of, python_files
from amp_runtime.data.sequences.tagged_lines import Sentences
from amp_runtime.data.sequences.tagged_text import tagged, to_tag
from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.limits import Ge, Gt, Lt

OTHER = "-"
ROLES = (OTHER, "attribute", "function", "global", "keyword", "method", "parameter", "variable")
_WORDS = {
    tokenize.NUMBER: "<number>",
    tokenize.STRING: "<string>",
    tokenize.NEWLINE: "<newline>",
    tokenize.INDENT: "<indent>",
    tokenize.DEDENT: "<dedent>",
}
_LEFT_OUT = {tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER}
if sys.version_info >= (3, 12):  # where an f-string is several tokens
    _WORDS[tokenize.FSTRING_START] = "<string>"
    _LEFT_OUT |= {tokenize.FSTRING_MIDDLE, tokenize.FSTRING_END}

_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class NamedTokens:
    """One function.

    Attributes:
        module: the first part of its file's path below the folder.
        name, line: where it is defined.
        words, roles: of each token, without comments.
    """

    module: str
    name: str
    line: int
    words: list[str]
    roles: list[str]


def source(
    split: str,
    seed: int,
    *,
    path: str | None = None,
    functions: Annotated[int, Gt(0)] = 5000,
    max_lines: Annotated[int, Gt(0)] = 20,
    valid: Annotated[float, Gt(0), Lt(1)] = 0.2,
    min_count: Annotated[int, Ge(1)] = 5,
    split_seed: int = 0,
) -> Dataset:
    """Return the functions of a split.

    Fields, with one row for each token:
        tokens  int32, the id of its word: names as they are, and what stands for a number,
                a string, a line's end.
        label   int32, its role: 0 for what is no name, or a word of the language; attribute;
                function, that is called, and method; global, of any other name from outside;
                keyword of an argument; parameter; variable, that the function assigns to.

    Args:
        split: `train` or `valid`.
        seed: the run's; not used: every run learns from the same functions.
        path: a folder of Python files of your own; None: the standard library without its
            tests. Folders of tests and of installed packages are left out.
        functions: how many, drawn from all.
        max_lines: longer functions are left out.
        valid: share of the modules to validate on: near-copies within one are then not on
            both sides.
        min_count: words that occur less often in the functions to train on are unknown.
        split_seed: of drawing functions and modules.
    Raises:
        MissingDataError: no such folder, or no Python file in it.
        DataError: no function to train on, or none to validate on.
    """
    folder = Path(sysconfig.get_path("stdlib")) if path is None else find_data_path(path)
    files = tuple(python_files(folder))
    if not files:
        raise MissingDataError(
            f"{folder} holds no Python file", fix="set data.path to a folder with some"
        )
    written = tuple(file.stat().st_mtime_ns for file in files)
    read_in = _read_once(folder, files, written, functions, max_lines, split_seed)
    modules = sorted({one.module for one in read_in})
    order = np.random.default_rng(split_seed).permutation(len(modules))
    held_out = {modules[n] for n in order[: max(1, round(valid * len(modules)))]}
    parts = {
        "train": [one for one in read_in if one.module not in held_out],
        "valid": [one for one in read_in if one.module in held_out],
    }
    if not parts["train"] or not parts["valid"]:
        raise DataError(
            f"holds {len(parts['train'])} functions to train and {len(parts['valid'])} to "
            "validate on",
            where=str(folder),
            fix="name a folder of several modules, or change data.valid or data.max_lines",
        )
    to_train = _sentences(parts["train"])
    wanted = to_train if split == "train" else _sentences(parts["valid"])
    return tagged(split, to_train, wanted, ROLES, min_count=min_count)


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return all functions of a Python file, by line.

    What is told of a function: its name (`function`), its `line`, its `words`.

    Raises:
        DataError: the file is wrong or holds no function, with its line, or the run has no
            vocabulary.
    """
    found = list(_tokens_of(file, file.stem, functions_of(file)))
    if not found:
        raise DataError("holds no function", where=str(file), fix="name a Python file with some")
    told: dict[str, Sequence[Any]] = {
        "function": [one.name for one in found],
        "line": [one.line for one in found],
    }
    return to_tag(_sentences(found), vocabularies, where=str(file), told=told)


def _sentences(functions: Sequence[NamedTokens]) -> Sentences:
    return Sentences(
        [word for one in functions for word in one.words],
        [role for one in functions for role in one.roles],
        [one.line for one in functions for _ in one.words],
        np.array([len(one.words) for one in functions]),
    )


@lru_cache(maxsize=1)
def _read_once(
    folder: Path,
    files: tuple[Path, ...],
    written_ns: tuple[int, ...],
    n_functions: int,
    max_lines: int,
    split_seed: int,
) -> list[NamedTokens]:
    """Read the files; the second split need not unless one was written anew."""
    found = []
    for file in files:
        try:
            functions = functions_of(file)
        except DataError:  # of another version of Python
            continue
        found += [(file, one) for one in functions if _n_lines(one) <= max_lines]
    drawn = np.random.default_rng(split_seed).permutation(len(found))[:n_functions]
    chosen: dict[Path, list[AnyFunction]] = {}
    for number in np.sort(drawn).tolist():
        file, function = found[number]
        chosen.setdefault(file, []).append(function)
    made: list[NamedTokens] = []
    for file, functions in chosen.items():
        module = file.relative_to(folder).with_suffix("").parts[0]
        made += _tokens_of(file, module, functions)
    return made


def _n_lines(function: AnyFunction) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def _tokens_of(file: Path, module: str, functions: Sequence[AnyFunction]) -> Iterator[NamedTokens]:
    """Yield the functions of a file; those with characters beyond ASCII are left out."""
    with tokenize.open(file) as stream:
        lines = stream.read().splitlines(keepends=True)
    for function in functions:
        own = lines[function.lineno - 1 : function.end_lineno]
        if not all(line.isascii() for line in own):
            continue  # Python counts a token's column in characters, a node's in bytes
        roles = _roles(function)
        words, found = [], []
        for token in tokenize.generate_tokens(io.StringIO("".join(own)).readline):
            if token.type in _LEFT_OUT:
                continue
            words.append(_WORDS.get(token.type, token.string))
            place = (token.start[0] + function.lineno - 1, token.start[1])
            # The end of a block is where the next word begins.
            found.append(roles.get(place, OTHER) if token.type == tokenize.NAME else OTHER)
        yield NamedTokens(module, function.name, function.lineno, words, found)


def _roles(function: AnyFunction) -> dict[_Place, str]:
    """Return the role of each name of a function, by (line, column)."""
    names: list[ast.Name] = []
    called: set[int] = set()
    parameters: set[str] = set()
    assigned: set[str] = set()
    roles: dict[_Place, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            parameters.add(node.arg)
            roles[node.lineno, node.col_offset] = "parameter"
        elif isinstance(node, ast.Call):
            called.add(id(node.func))
        elif isinstance(node, ast.keyword) and node.arg is not None:
            roles[node.lineno, node.col_offset] = "keyword"
        elif isinstance(node, ast.Name):
            names.append(node)
            if not isinstance(node.ctx, ast.Load):
                assigned.add(node.id)
        elif isinstance(node, ast.Attribute):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            place = (node.end_lineno, node.end_col_offset - len(node.attr))
            # A call is gone through before what it calls.
            roles[place] = "method" if id(node) in called else "attribute"
    for name in names:
        known = "function" if id(name) in called else "global"
        known = "variable" if name.id in assigned else known
        known = "parameter" if name.id in parameters else known
        roles[name.lineno, name.col_offset] = known
    return roles
