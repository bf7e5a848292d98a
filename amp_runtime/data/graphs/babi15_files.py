"""Files of bAbI task 15: its own text, and its graphs as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amp_runtime.data.paths import open_data_file
from amp_runtime.errors import DataError

IS, HAS_FEAR = range(2)
"""Types of edges."""

_TEXT = re.compile(r"(\d+) (\S.*)", re.ASCII)
_FEAR = re.compile(r"(\w+) are afraid of (\w+)\.")
_KIND = re.compile(r"(\w+) is an? (\w+)\.")
_QUESTION = re.compile(r"What is (\w+) afraid of\?(?:\s*\t(\w+)\t[\d ]+)?\s*")
_NUMBERS = re.compile(r"(\?|\d+) (\d+) (\d+)(?: (\d+))?", re.ASCII)
_SINGULAR = {"mice": "mouse", "wolves": "wolf", "sheep": "sheep"}

_TEXT_FORM = (
    "lines are `1 Mice are afraid of wolves.`, `2 Gertrude is a mouse.`, or `3 What is gertrude "
    "afraid of?`, its answer and supporting lines, tabs between"
)
_GRAPH_FORM = (
    "lines are edges `source type target`, type 1 (is) or 2 (has_fear), or questions "
    "`? 1 node answer`"
)


@dataclass(slots=True)
class ReadStories:
    """What a file holds, nodes numbered within a graph in the order of their first edge.

    Attributes:
        may_lack_answers: whether a question may be read without one.
        n_nodes, n_edges: by graph.
        edges: (source, type, target) of all graphs, types from 0.
        questions: (graph, node asked about, node that answers, or -1).
        nodes: {name: number} of each graph.
    """

    may_lack_answers: bool = False
    n_nodes: list[int] = field(default_factory=list)
    n_edges: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    questions: list[tuple[int, int, int]] = field(default_factory=list)
    nodes: list[Mapping[str, int]] = field(default_factory=list)


class _Fault(Exception):  # noqa: N818 - never leaves this file
    """What is wrong with a line."""


class _Graph:
    """The graph that is being read."""

    def __init__(self, into: ReadStories) -> None:
        self._into = into
        self._nodes: dict[str, int] = {}
        self._asked = False
        into.nodes.append(self._nodes)
        into.n_nodes.append(0)
        into.n_edges.append(0)

    def add_edge(self, source: str, edge_type: int, target: str) -> None:
        if self._asked:
            raise _Fault("states a fact behind a question of the same story")
        ends = [self._nodes.setdefault(name, len(self._nodes)) for name in (source, target)]
        self._into.edges.append((ends[0], edge_type, ends[1]))
        self._into.n_nodes[-1] = len(self._nodes)
        self._into.n_edges[-1] += 1

    def add_question(self, asked: str, answer: str | None) -> None:
        for name in (asked, answer):
            if name is not None and name not in self._nodes:
                raise _Fault(f"names {name!r}, which no line before says anything of")
        if answer is None and not self._into.may_lack_answers:
            raise _Fault("asks without an answer")
        self._asked = True
        graph = len(self._into.n_nodes) - 1
        of_answer = -1 if answer is None else self._nodes[answer]
        self._into.questions.append((graph, self._nodes[asked], of_answer))


def read_stories(path: Path, *, answers: bool = True) -> ReadStories:
    """Read a file of either form, gzip or not.

    A question is about all facts of its story, which stand before it.

    Args:
        answers: whether each question has one; else they may be missing.
    Raises:
        DataError: no question in it, or a line of neither form, or one that asks for what
            is not in its story; names file and line.
    """
    read = ReadStories(may_lack_answers=not answers)
    lines = _lines(path)
    first = next(lines, None)
    if first is not None:
        is_text = first[1][-1] in ".?" or "\t" in first[1]
        take = _TextReader(read) if is_text else _GraphReader(read)
        for number, line in (first, *lines):
            try:
                take(line)
            except _Fault as fault:
                form = _TEXT_FORM if is_text else _GRAPH_FORM
                raise DataError(str(fault), where=f"{path}:{number}", fix=form) from None
    if not read.questions:
        raise DataError("holds no question", where=str(path), fix=f"{_TEXT_FORM}; or {_GRAPH_FORM}")
    return read


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, empty ones only behind the first that is not."""
    begun = False
    with open_data_file(path) as stream:
        for number, raw in enumerate(stream, start=1):
            line = raw.decode("utf-8-sig", errors="replace").strip()
            begun = begun or bool(line)
            if begun:
                yield number, line


class _TextReader:
    """Takes the lines of the task's own files; a line numbered 1 begins a story."""

    def __init__(self, into: ReadStories) -> None:
        self._into = into
        self._graph: _Graph | None = None

    def __call__(self, line: str) -> None:
        if not line:
            return
        found = _TEXT.fullmatch(line)
        if found is None:
            raise _Fault(f"{line[:60]!r} is no numbered line")
        if found[1] == "1" or self._graph is None:
            self._graph = _Graph(self._into)
        sentence = found[2]
        if fear := _FEAR.fullmatch(sentence):
            self._graph.add_edge(_singular(fear[1]), HAS_FEAR, _singular(fear[2]))
        elif kind := _KIND.fullmatch(sentence):
            self._graph.add_edge(kind[1].lower(), IS, kind[2].lower())
        elif question := _QUESTION.fullmatch(sentence):
            self._graph.add_question(question[1].lower(), question[2] and question[2].lower())
        else:
            raise _Fault(f"{sentence[:60]!r} is neither a fact nor a question of task 15")


class _GraphReader:
    """Takes the lines of files of graphs; an empty line ends a graph."""

    def __init__(self, into: ReadStories) -> None:
        self._into = into
        self._graph: _Graph | None = None

    def __call__(self, line: str) -> None:
        if not line:
            self._graph = None
            return
        if self._graph is None:
            self._graph = _Graph(self._into)
        found = _NUMBERS.fullmatch(line)
        if found is None or (found[1] != "?" and found[4] is not None):
            raise _Fault(f"{line[:60]!r} is neither an edge nor a question")
        if found[2] not in ("1", "2")[: 1 if found[1] == "?" else 2]:
            raise _Fault(f"type {found[2]} is unknown")
        if found[1] == "?":
            self._graph.add_question(found[3], found[4])
        else:
            self._graph.add_edge(found[1], int(found[2]) - 1, found[3])


def _singular(plural: str) -> str:
    word = plural.lower()
    return _SINGULAR.get(word, word.removesuffix("s"))
