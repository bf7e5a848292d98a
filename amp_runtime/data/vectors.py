"""Word vectors from a text file in GloVe form: a word, then its numbers, one word a line.

    the 0.418 0.24968 -0.41242
    , 0.013441 0.23682 -0.16899

Only the lines of wanted words are turned into numbers, so that a file of some gigabytes
is gone through at the speed of the disk.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from amp_runtime.data.paths import open_data_file
from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Array

FIRST_LINES = 1000
"""So many lines tell how many numbers a word has: most of them have no space in the word."""

_FORM = "each line is a word and its numbers, one space between"
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DECIMAL = re.compile(rb"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_HEADER = re.compile(rb"\d+ \d+")
_ESCAPES = (
    ("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"), ("-LCB-", "{"),
    ("-RCB-", "}"), ("\\/", "/"), ("\\*", "*"),
)  # fmt: skip
"""How trees in PTB form write characters that mean something else there."""
_NOT_FOUND = 4
"""One more than the last rank of a word's forms."""

_Lines = Iterator[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of some words.

    Attributes:
        values: float32 [words, features]; zeros where not found.
        found: bool [words].
    """

    values: NDArray[np.float32]
    found: NDArray[np.bool_]

    def table(self, seed: int) -> NDArray[np.float32]:
        """Return [words, features], new memory: words not found have random vectors.

        They are drawn from normal distributions, number by number with the mean and the
        deviation of those that were found.
        """
        known = self.values[self.found]
        table = self.values.copy()
        shape = table[~self.found].shape
        random = np.random.default_rng(seed)
        table[~self.found] = random.normal(known.mean(axis=0), known.std(axis=0), shape)
        return table


def read_vectors(path: Path, words: Sequence[str]) -> Vectors:
    """Read the vectors of `words`, gzip or not.

    A word that the file does not hold as it is written takes the vector of its lower-case
    form, else that of the word without PTB's escapes (`-LRB-`), else of that in lower
    case. A word in the file may hold spaces; of two lines for a word, the first counts.
    A first line of two whole numbers, as word2vec writes it, is skipped.

    Raises:
        MissingDataError: the file cannot be opened.
        DataError: a line of another width, a number of a wanted word that is none or not
            finite, with file and line; or none of `words`.
    """
    wanted: dict[bytes, list[tuple[int, int]]] = {}
    for row, word in enumerate(words):
        for rank, form in enumerate(_forms(word)):
            wanted.setdefault(form.encode(), []).append((rank, row))
    with open_data_file(path) as stream:
        lines, n_features = _opened(enumerate(stream, start=1), path)
        values = np.zeros((len(words), n_features), np.float32)
        rank_of = np.full(len(words), _NOT_FOUND)
        for number, line in lines:
            written = _word(line, n_features, path, number)
            if written in wanted:
                vector = _numbers(line[len(written) + 1 :], path, number)
                for rank, row in wanted[written]:
                    if rank < rank_of[row]:
                        rank_of[row], values[row] = rank, vector
    found = rank_of < _NOT_FOUND
    if not found.any():
        raise DataError(f"holds none of {len(words)} words", where=str(path), fix=_FORM)
    return Vectors(values, found)


def _forms(word: str) -> tuple[str, ...]:
    """Return how a word may be written in the file, the best first."""
    plain = word
    for escape, character in _ESCAPES:
        plain = plain.replace(escape, character)
    return word, word.lower(), plain, plain.lower()


def _opened(lines: _Lines, path: Path) -> tuple[_Lines, int]:
    """Return the lines without ends, empty ones and a header, and how many numbers each has.

    Raises:
        DataError: there is none, or most have no number.
    """
    lines = (
        (number, line)
        for number, raw in lines
        if (line := (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).rstrip(b" \r\n"))
    )
    first = list(itertools.islice(lines, FIRST_LINES))
    widths = Counter(line.count(b" ") for _, line in first)
    n_features = widths.most_common(1)[0][0] if widths else 0
    if n_features == 0:
        said = f"{first[0][1][:40]!r} is no word with numbers" if first else "is empty"
        where = f"{path}:{first[0][0]}" if first else str(path)
        raise DataError(said, where=where, fix=_FORM)
    if n_features > 1 and _HEADER.fullmatch(first[0][1]):
        del first[0]
    return itertools.chain(first, lines), n_features


def _word(line: bytes, n_features: int, path: Path, number: int) -> bytes:
    """Return the word of a line; DataError where numbers are missing or too many."""
    n_spaces = line.count(b" ")
    if n_spaces == n_features:
        return line[: line.index(b" ")]
    word = line.rsplit(b" ", n_features)[0]
    surplus = word.rsplit(b" ")[-1]
    if n_spaces < n_features or _DECIMAL.fullmatch(surplus):
        raise DataError(
            f"has {n_spaces} numbers, but other lines have {n_features}",
            where=f"{path}:{number}",
            fix=f"{_FORM}; a file that is cut must be fetched again",
        )
    return word


def _numbers(text: bytes, path: Path, number: int) -> Array:
    """Return the numbers behind a word, float32 [features]."""
    texts = text.split(b" ")
    try:
        with np.errstate(over="ignore"):  # found below
            values = np.array(texts).astype(np.float32)
    except ValueError:
        values = np.full(len(texts), np.nan, np.float32)
    if b"_" in text or not np.isfinite(values).all():
        wrong = [t for t in texts if not _NUMBER.fullmatch(t)]
        beyond = [t for t, value in zip(texts, values, strict=True) if not np.isfinite(value)]
        bad = (wrong or beyond)[0].decode(errors="replace")[:40]
        raise DataError(
            f"holds {bad!r}: {'not a finite number' if wrong else 'beyond float32'}",
            where=f"{path}:{number}",
            fix=_FORM,
        )
    return values
