"""Words to ids: what was seen in training has an id, everything else is unknown.

Words that look alike are one word: they are told apart by their NFC form, in which an accent is
part of its letter. Nothing else of a word is changed.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Int32

UNKNOWN = "<unk>"
"""The word of id 0; a file that holds it as a word means the same."""


@dataclass(frozen=True)
class Vocabulary:
    """The words that have an id.

    Attributes:
        words: by id; the first is `UNKNOWN`, then the most frequent first, words of equal
            frequency by their characters' code points.
    """

    words: tuple[str, ...]

    @staticmethod
    def of(words: Iterable[str], *, min_count: int = 1) -> Vocabulary:
        """Return the vocabulary of a text: its words that occur `min_count` times or more."""
        counts = Counter(map(nfc, words))
        counts.pop(UNKNOWN, None)
        kept = [word for word, count in counts.items() if count >= min_count]
        kept.sort(key=lambda word: (-counts[word], word))
        return Vocabulary((UNKNOWN, *kept))

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def ids(self, words: Sequence[str]) -> Int32:
        """Return int32 [words]: their ids, 0 for those without one."""
        get = self._ids.get
        return np.fromiter((get(nfc(word), 0) for word in words), np.int32, len(words))


def nfc(word: str) -> str:
    """Return the form by which words are told apart."""
    return word if word.isascii() else unicodedata.normalize("NFC", word)


def words_of(vocabularies: Mapping[str, Sequence[str]], field: str) -> tuple[str, ...]:
    """Return what ids of a field stood for in a finished run.

    Raises:
        DataError: the run does not say.
    """
    if field not in vocabularies:
        raise DataError(
            f"the run does not say what ids in field {field!r} stand for",
            fix="its vocabularies.json is missing: train it again",
        )
    return tuple(vocabularies[field])
