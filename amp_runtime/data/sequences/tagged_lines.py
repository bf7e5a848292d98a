"""Text with a word a line, in columns; an empty line ends a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.data.paths import text_lines
from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Int64

FORM = "a line is a word and its tag, a tab or spaces between; an empty line ends a sentence"


@dataclass(frozen=True, slots=True)
class Columns:
    """Where words and tags stand.

    Attributes:
        token, tag: columns from 1, or from the end, -1 the last; None: no tags are read.
        skip: a regular expression of the beginning of lines that are left out.
    Raises:
        DataError: a column 0, or no regular expression.
    """

    token: int
    tag: int | None
    skip: str | None

    def __post_init__(self) -> None:
        for name, column in (("token_column", self.token), ("tag_column", self.tag)):
            if column == 0:
                raise DataError(
                    f"{name} is 0; columns are counted from 1, or from the end, -1 the last",
                    fix=f"set data.{name}",
                )
        try:
            re.compile(self.skip or "")
        except re.error as error:
            raise DataError(
                f"skip is {self.skip!r}, no regular expression: {error}", fix="set data.skip"
            ) from None


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences of a file.

    Attributes:
        words, tags: of all sentences, one behind the other; no tags where none were read.
        lines: the number of the line that each word stands in.
        counts: int64 [sentences], words of each.
    """

    words: list[str]
    tags: list[str]
    lines: list[int]
    counts: Int64

    def __len__(self) -> int:
        return len(self.counts)

    def of(self, numbers: Int64) -> Sentences:
        """Return some of them."""
        ends = np.cumsum(self.counts)
        spans = [slice(ends[n] - self.counts[n], ends[n]) for n in numbers.tolist()]

        def picked(values: list[Any]) -> list[Any]:
            return [value for span in spans for value in values[span]]

        return Sentences(
            picked(self.words), picked(self.tags), picked(self.lines), self.counts[numbers]
        )


def read_sentences(file: Path, columns: Columns) -> Sentences:
    """Read a file, gzip or not, in UTF-8; words and tags are kept as they are written.

    Raises:
        MissingDataError: the file cannot be opened.
        DataError: no sentence in it, or a line of other columns; names file and line.
    """
    stat = file.stat()
    return _read_once(file, columns, (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=2)
def _read_once(file: Path, columns: Columns, signature: tuple[int, int]) -> Sentences:
    """Read a file; the second split need not, unless `signature` changed."""
    reader = _Reader(columns)
    for number, line in _lines(file, columns.skip):
        if said := reader.take(number, line):
            raise DataError(said, where=f"{file}:{number}", fix=FORM)
    reader.end_sentence()
    if not reader.counts:
        raise DataError("holds no sentence", where=str(file), fix=FORM)
    return Sentences(reader.words, reader.tags, reader.lines, np.array(reader.counts))


def _lines(file: Path, skip: str | None) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, without their ends, and without those to skip."""
    skipped = None if skip is None else re.compile(skip)
    for number, raw in text_lines(file, blank=True):
        line = raw.rstrip("\r\n")
        if skipped is None or not skipped.match(line):
            yield number, line


@dataclass(slots=True)
class _Reader:
    """Takes the lines of a file."""

    columns: Columns
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    n_ended: int = 0
    width: int = 0
    first: int = 0

    def take(self, number: int, line: str) -> str:
        """Take a line; return what is wrong with it, or ''."""
        if not line.strip(" \t"):
            self.end_sentence()
            return ""
        # Plain spaces alone: words may hold other white space, such as a no-break space.
        parts = line.split("\t") if "\t" in line else [p for p in line.split(" ") if p]
        self.width, self.first = self.width or len(parts), self.first or number
        if len(parts) != self.width:
            return f"has {len(parts)} columns, but line {self.first} has {self.width}"
        token, tag = self.columns.token, self.columns.tag
        if tag is None and len(parts) == 1:
            token = 1
        for column in (token, *(() if tag is None else (tag,))):
            if not 0 <= self._place(column) < len(parts):
                return f"has {len(parts)} columns, none of them number {column}: {line[:40]!r}"
            if not parts[self._place(column)]:
                return f"has nothing in column {column}: {line[:40]!r}"
        if tag is not None:
            if self._place(tag) == self._place(token):
                return f"has its word and its tag in one column: {line[:40]!r}"
            self.tags.append(parts[self._place(tag)])
        self.words.append(parts[self._place(token)])
        self.lines.append(number)
        return ""

    def end_sentence(self) -> None:
        if len(self.words) > self.n_ended:
            self.counts.append(len(self.words) - self.n_ended)
            self.n_ended = len(self.words)

    def _place(self, column: int) -> int:
        return column - 1 if column > 0 else self.width + column
