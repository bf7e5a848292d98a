"""Files of binary trees in PTB form: one tree a line, a label at every node.

    (3 (2 It) (4 (2 's) (4 good)))

Nodes are numbered in the order in which their brackets close: a child before its parent,
the root last. A node with a single child (a unary chain) is one node with that child's
children, and keeps the upper label.

Where labels are to be predicted, they need not be there, and may be any: of (S (It) (VP 's good))
the brackets matter, and (It) is a leaf.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from amp_runtime.data.paths import open_data_file
from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Int32

NO_PARENT = -1
LEFT, RIGHT = 0, 1

# The plain space alone parts tokens: words hold no-break spaces.
_TOKEN = re.compile(r"\( *[^ ()]*|\)|[^ ()]+")
_FORM = "each line is one tree in brackets, as in (3 (2 It) (4 (2 's) (4 good)))"


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees of one file, in its order, end to end.

    Attributes:
        words: of all leaves, as they are read.
        leaf: int32 [leaves]: the node that each leaf is, within its tree.
        n_leaves, n_nodes: int32 [trees].
        parent: int32 [nodes], within the tree; the root's is `NO_PARENT`.
        side: int32 [nodes], `LEFT` or `RIGHT` child of its parent; the root's is `LEFT`.
        label: int32 [nodes].
        left_out: what was wrong with each line that was left out.
    """

    words: list[str]
    leaf: Int32
    n_leaves: Int32
    n_nodes: Int32
    parent: Int32
    side: Int32
    label: Int32
    left_out: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.n_nodes)

    def first(self, n_trees: int) -> Trees:
        """Return the first trees, at most all of them, sharing memory."""
        leaves, nodes = int(self.n_leaves[:n_trees].sum()), int(self.n_nodes[:n_trees].sum())
        return Trees(
            self.words[:leaves],
            self.leaf[:leaves],
            self.n_leaves[:n_trees],
            self.n_nodes[:n_trees],
            self.parent[:nodes],
            self.side[:nodes],
            self.label[:nodes],
            self.left_out,
        )


@dataclass(slots=True)
class _Tree:
    """One tree while it is read."""

    words: list[str] = field(default_factory=list)
    leaf: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    side: list[int] = field(default_factory=list)
    label: list[int] = field(default_factory=list)

    def close(self, node: _Open) -> int:
        """Take in a node whose bracket closes; return its number."""
        if len(node.children) == 1:  # a unary chain: this node is its child
            (number,) = node.children
            self.label[number] = node.label
            return number
        number = len(self.parent)
        self.parent.append(NO_PARENT)
        self.side.append(LEFT)
        self.label.append(node.label)
        if node.word is not None:
            self.words.append(node.word)
            self.leaf.append(number)
        else:
            left, right = node.children
            self.parent[left] = self.parent[right] = number
            self.side[right] = RIGHT
        return number


@dataclass(slots=True)
class _Open:
    """A node whose bracket is not closed yet."""

    label: int
    tag: str
    """The text of its label."""
    word: str | None = None
    children: list[int] = field(default_factory=list)


class _Fault(Exception):  # noqa: N818 - never leaves this file
    """What is wrong with a line, at which of its tokens."""

    def __init__(self, token: int, what: str, fix: str = _FORM) -> None:
        super().__init__(what)
        self.token = token
        self.what = what
        self.fix = fix


def read_trees(path: Path, *, classes: int | None, max_depth: int, skip_bad: int = 0) -> Trees:
    """Read a file, gzip or not, in UTF-8; empty lines are skipped.

    Args:
        classes: labels are 0 to classes - 1; None: they may be any or missing, and are 0.
        max_depth: nodes on the way from the root to a leaf, chains counted in full.
        skip_bad: so many lines that are no tree may be left out.
    Raises:
        MissingDataError: the file cannot be opened.
        DataError: no tree in it, or a line that is none: brackets that do not match, a
            label that is missing or out of range, a node without word or with more than
            two children, text behind the tree; names file, line and column.
    """
    labels = None if classes is None else {str(number): number for number in range(classes)}
    trees: list[_Tree] = []
    left_out: list[str] = []
    with open_data_file(path) as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                line = _text(raw, path, number).rstrip("\r\n")
                if line.strip(" \t"):
                    trees.append(_placed_tree(line, f"{path}:{number}", labels, max_depth))
            except DataError as error:
                if len(left_out) == skip_bad:
                    raise _one_too_many(error, skip_bad) from error.__cause__
                left_out.append(f"{error.where}: {error.what}")
    if not trees:
        raise DataError("holds no tree", where=str(path), fix=_FORM)
    return Trees(
        [word for tree in trees for word in tree.words],
        _end_to_end([tree.leaf for tree in trees]),
        _lengths([tree.leaf for tree in trees]),
        _lengths([tree.parent for tree in trees]),
        _end_to_end([tree.parent for tree in trees]),
        _end_to_end([tree.side for tree in trees]),
        _end_to_end([tree.label for tree in trees]),
        left_out,
    )


def _one_too_many(error: DataError, skip_bad: int) -> DataError:
    if not skip_bad:
        return error
    said = f"{error.what}, and {skip_bad} lines before are no tree either"
    return DataError(said, where=error.where, fix=f"{error.fix}; or raise data.skip_bad")


def _placed_tree(line: str, place: str, labels: Mapping[str, int] | None, max_depth: int) -> _Tree:
    """Read one tree; DataError names the column."""
    try:
        return _read_tree(_TOKEN.findall(line), labels, max_depth)
    except _Fault as fault:
        where = f"{place}:{_column(line, fault.token)}"
        raise DataError(fault.what, where=where, fix=fault.fix) from None


def _read_tree(tokens: list[str], labels: Mapping[str, int] | None, max_depth: int) -> _Tree:
    """Read one tree: a loop and not a recursion, so any depth will do."""
    tree = _Tree()
    open_nodes: list[_Open] = []
    for at, token in enumerate(tokens):
        if not open_nodes and (at or token[0] != "("):
            raise _outside(at, token)
        if token[0] == "(":
            tag = token[1:].lstrip(" ")
            label = 0 if labels is None else labels.get(tag)
            if labels is not None and label is None:
                raise _wrong_label(at, token, len(labels))
            if len(open_nodes) == max_depth:
                raise _Fault(
                    at,
                    f"is more than {max_depth} nodes deep",
                    "mend the file, or raise data.max_depth",
                )
            if open_nodes:
                _check_takes_child(open_nodes[-1], at)
            open_nodes.append(_Open(label or 0, tag))
        elif token == ")":
            node = open_nodes.pop()
            if labels is None and not node.children and node.word is None and node.tag:
                node.word = node.tag
            if node.word is None and not node.children:
                raise _Fault(at, "closes a node without a word or a child")
            number = tree.close(node)
            if open_nodes:
                open_nodes[-1].children.append(number)
        else:
            _check_takes_word(open_nodes[-1], at, token)
            open_nodes[-1].word = token
    if open_nodes:
        n_open = len(open_nodes)
        raise _Fault(
            len(tokens),
            f"ends with {n_open} bracket{'s' if n_open > 1 else ''} open",
            "a tree is on one line; a file that is cut must be fetched again",
        )
    return tree


def _outside(at: int, token: str) -> _Fault:
    shown = repr(token[:40])
    if at == 0:
        return _Fault(at, f"begins with {shown}, not with a bracket")
    if token[0] == "(":
        return _Fault(at, "begins a second tree", "put each tree on a line of its own")
    return _Fault(at, f"has {shown} behind its tree")


def _wrong_label(at: int, token: str, classes: int) -> _Fault:
    text = token[1:].lstrip(" ")
    if not text:
        return _Fault(at, f"has a node without a label, 0 to {classes - 1}")
    return _Fault(
        at,
        f"label {text[:40]!r} is not a whole number from 0 to {classes - 1}",
        "mend it, or set data.classes",
    )


def _check_takes_child(node: _Open, at: int) -> None:
    if node.word is not None:
        raise _Fault(at, f"has a node with both a word, {node.word[:40]!r}, and a child")
    if len(node.children) == 2:
        raise _Fault(
            at,
            "has a node with more than 2 children",
            "the trees must be binary: binarise them first, for example to the left",
        )


def _check_takes_word(node: _Open, at: int, token: str) -> None:
    if node.children:
        raise _Fault(at, f"has a node with both a child and a word, {token[:40]!r}")
    if node.word is not None:
        raise _Fault(at, f"has a leaf with two words, {node.word[:40]!r} and {token[:40]!r}")


def _text(raw: bytes, path: Path, number: int) -> str:
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"holds {raw[error.start : error.start + 4]!r}: not UTF-8",
            where=f"{path}:{number}",
            fix="write the file in UTF-8",
        ) from error


def _column(line: str, token: int) -> int:
    """Return the column, from 1, of a token; behind the line for the one after the last."""
    starts = [match.start() for match in _TOKEN.finditer(line)]
    return (starts[token] if token < len(starts) else len(line)) + 1


def _end_to_end(lists: list[list[int]]) -> Int32:
    return np.fromiter((n for numbers in lists for n in numbers), np.int32)


def _lengths(lists: list[list[int]]) -> Int32:
    return np.fromiter(map(len, lists), np.int32, len(lists))
