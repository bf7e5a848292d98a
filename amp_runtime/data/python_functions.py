"""Functions in Python files as trees of node types, each without its own name.

    def get_top(self):                  FunctionDef
        return self.items[-1]             arguments  Return
                                            arg self   Subscript
                                                         Attribute items   UnaryOp
                                                           Name self         USub  Constant int

A node's type is its `ast` class; for constants also their kind, for targets of an
assignment or `del` their context. Identifiers are kept apart, so that a reader may drop
the rare ones. Docstrings and other constants leave no more than their kind.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from amp_runtime.data.paths import open_data_file
from amp_runtime.errors import DataError

SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
)

_FIRST_WORD = re.compile(r"_*([a-z]+)")
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
_IDENTIFIER = {
    "Name": "id",
    "Attribute": "attr",
    "arg": "arg",
    "keyword": "arg",
    "alias": "name",
    "FunctionDef": "name",
    "AsyncFunctionDef": "name",
    "ClassDef": "name",
}

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
NodeType = tuple[str, str]
"""(class of a node with kind or context, its identifier or '')."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    Attributes:
        module: the first part of its file's path below the folder.
        verb: the first word of its name, '' where it begins with none.
        name, line: where it is defined.
        types: of each node, children before their parent, the function itself last;
            numbers of `Functions.types`.
        parents: of each node, -1 for the last.
    """

    module: str
    verb: str
    name: str
    line: int
    types: tuple[int, ...]
    parents: tuple[int, ...]


@dataclass(slots=True)
class Functions:
    """All functions of some files.

    Attributes:
        functions: by file, then by line.
        types: what the numbers in `Function.types` stand for.
        n_large: functions left out because they have more nodes than allowed.
        unread: files left out because Python cannot parse them.
    """

    functions: list[Function] = field(default_factory=list)
    types: list[NodeType] = field(default_factory=list)
    n_large: int = 0
    unread: list[Path] = field(default_factory=list)


def python_files(folder: Path) -> list[Path]:
    """Return the Python files in `folder`, in order, those of `SKIPPED_FOLDERS` left out."""
    files = folder.rglob("*.py")
    return sorted(f for f in files if not SKIPPED_FOLDERS & set(f.relative_to(folder).parts))


def read_functions(folder: Path, files: Iterable[Path], *, max_nodes: int) -> Functions:
    """Return the functions of `files`, whose name begins with a word and is not special.

    Args:
        folder: modules are named by the paths below it.
        max_nodes: functions of more nodes are left out, and counted.
    """
    found = Functions()
    numbers: dict[NodeType, int] = {}
    with _parsing():
        for file in files:
            module = file.relative_to(folder).with_suffix("").parts[0]
            try:
                tree = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
                found.unread.append(file)
                continue
            for function in _functions(tree):
                name = function.name
                verb = _verb(name)
                if not verb or (name.startswith("__") and name.endswith("__")):
                    continue
                flat = _flat(function, numbers, max_nodes)
                if flat is None:
                    found.n_large += 1
                else:
                    found.functions.append(Function(module, verb, name, function.lineno, *flat))
    found.types = list(numbers)
    return found


def read_all_functions(file: Path) -> Functions:
    """Return all functions of a file, whatever their names and sizes.

    Raises:
        MissingDataError: it cannot be opened.
        DataError: Python cannot parse it; names the line.
    """
    numbers: dict[NodeType, int] = {}
    functions = []
    with _parsing():
        for function in functions_of(file):
            flat = _flat(function, numbers, sys.maxsize)
            assert flat is not None
            name = function.name
            functions.append(Function(file.stem, _verb(name), name, function.lineno, *flat))
    return Functions(functions, list(numbers))


def functions_of(file: Path) -> list[AnyFunction]:
    """Return all functions of a file, also of classes and within functions, by line.

    Raises:
        MissingDataError, DataError: as `read_all_functions`.
    """
    with open_data_file(file) as stream, _parsing():
        try:
            return _functions(ast.parse(stream.read()))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            said = error.msg if isinstance(error, SyntaxError) else str(error)
            raise DataError(
                f"cannot be parsed: {said or type(error).__name__}", where=f"{file}{line}"
            ) from None


def _verb(name: str) -> str:
    word = _FIRST_WORD.match(name)
    return word[1] if word else ""


@contextmanager
def _parsing() -> Iterator[None]:
    """Keep Python quiet about the files, and from looking for garbage in their trees.

    Trees hold no cycles, and are so many objects that looking takes longer than parsing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collects:
            gc.enable()


def _functions(tree: ast.Module) -> list[AnyFunction]:
    """Return all functions, also of classes and within functions, by line.

    Only statements are gone through: no expression holds a named function.
    """
    found = []
    to_visit: list[ast.AST] = [tree]
    while to_visit:
        node = to_visit.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node)
        for body in _BODIES:
            inner = getattr(node, body, None)
            if isinstance(inner, list):  # the body of a lambda is none
                to_visit += inner
    return sorted(found, key=lambda function: (function.lineno, function.col_offset))


def _flat(
    function: AnyFunction, numbers: dict[NodeType, int], max_nodes: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (types, parents) of a function's nodes; None where they are too many.

    Args:
        numbers: of the types seen so far; new ones are added.
    """
    own_name = function.name.strip("_")
    types: list[int] = []
    parents: list[int] = []
    # The last child first, so that the reversed order is that of the text.
    to_visit: list[tuple[ast.AST, int]] = [(function, 0)]
    while to_visit:
        node, parent = to_visit.pop()
        number = len(types)
        if number == max_nodes:
            return None
        node_type = _type_of(node)
        if node is function or node_type[1].strip("_") == own_name:
            node_type = (node_type[0], "")
        types.append(numbers.setdefault(node_type, len(numbers)))
        parents.append(parent)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                to_visit += [(child, number) for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                to_visit.append((value, number))
    last = len(types) - 1
    return tuple(reversed(types)), (*(last - parent for parent in reversed(parents[1:])), -1)


def _type_of(node: ast.AST) -> NodeType:
    name = type(node).__name__
    if isinstance(node, ast.Constant):
        kind = type(node.value).__name__
        # True, False, None and ... are words of the language, not kinds of values.
        return f"{name} {repr(node.value) if kind in ('bool', 'NoneType') else kind}", ""
    context = getattr(node, "ctx", None)
    if context is not None and not isinstance(context, ast.Load):
        return f"{name} {type(context).__name__}", _identifier(node, name)
    return name, _identifier(node, name)


def _identifier(node: ast.AST, name: str) -> str:
    attribute = _IDENTIFIER.get(name)
    return (getattr(node, attribute) or "") if attribute else ""
