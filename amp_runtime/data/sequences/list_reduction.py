"""List reduction: apply one of four operators to a list of digits, modulo 10.

    tokens  12 4 9 1     ->  label 8        (12 is max - min: 9 - 1)

The first token is the operator, so a recurrent net must keep it in mind while it
reads. Lengths are uniform and mix freely within a batch.

Source: AMPNet, arXiv:1705.09786, the list reduction data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.paths import text_lines
from amp_runtime.errors import DataError, nearest
from amp_runtime.limits import Ge
from amp_runtime.rows.spec import Array, Int32

N_DIGITS = 10
OPERATORS = ("mean", "alternating", "range", "length")
N_TOKENS = N_DIGITS + len(OPERATORS)
N_LABELS = 10
_FORM = "a line is an operator and digits, as in `range 4 9 1`, or `12 4 9 1`; or JSON"
ABOUT = About({"tokens": (*"0123456789", *OPERATORS), "label": tuple("0123456789")})


def source(
    split: str,
    seed: int,
    *,
    train: Annotated[int, Ge(0)] = 100_000,
    valid: Annotated[int, Ge(0)] = 10_000,
    max_digits: Annotated[int, Ge(1)] = 9,
) -> Dataset:
    """Return `train` or `valid` random examples.

    Fields: `tokens` int32 [2 to 1 + max_digits rows], operator first; `label` int32,
    0 to 9. Training examples are drawn from `seed`, validation ones from `seed + 1`.

    Args:
        split: `train` or `valid`.
        seed: the run's.
        train: how many examples to train on.
        valid: how many to validate on.
        max_digits: the longest list.
    """
    random = np.random.default_rng(seed if split == "train" else seed + 1)
    n = train if split == "train" else valid
    operators = random.integers(0, len(OPERATORS), n, dtype=np.int32)
    lengths = random.integers(1, max_digits + 1, n, dtype=np.int32)
    digits = random.integers(0, N_DIGITS, (n, max_digits), dtype=np.int32)

    tokens = np.concatenate([N_DIGITS + operators[:, None], digits], axis=1)
    present = np.arange(1 + max_digits) <= lengths[:, None]
    return Dataset.from_columns(
        {"tokens": (tokens[present], 1 + lengths), "label": answers(operators, digits, lengths)},
        about=ABOUT,
    )


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return the lists of a file, one a line, to be answered: `range 4 9 1` or `12 4 9 1`.

    Raises:
        DataError: no list, or a line that is none; names file and line.
    """
    ids = {word: number for number, word in enumerate(ABOUT.vocabularies["tokens"])}
    ids |= {str(number): number for number in range(N_TOKENS)}
    tokens: list[int] = []
    counts: list[int] = []
    for number, line in text_lines(file):
        words = line.split()
        for word in words:
            if word not in ids:
                raise DataError(
                    f"{word[:40]!r} is no token{nearest(word, ids)}",
                    where=f"{file}:{number}",
                    fix=_FORM,
                )
        numbers = [ids[word] for word in words]
        if len(numbers) < 2 or numbers[0] < N_DIGITS or max(numbers[1:]) >= N_DIGITS:
            raise DataError("is no list", where=f"{file}:{number}", fix=_FORM)
        tokens += numbers
        counts.append(len(numbers))
    if not counts:
        raise DataError("holds no list", where=str(file), fix=_FORM)
    columns = {"tokens": (np.array(tokens, np.int32), np.array(counts))}
    return Dataset.from_columns(columns, where=str(file))


def answer(operator: int, digits: Sequence[int]) -> int:
    """Return the answer to one example: the definition, slow and plain.

    Args:
        operator: 0 to 3, index into `OPERATORS`.
        digits: at least one.
    """
    value: float
    if OPERATORS[operator] == "mean":
        value = float(np.mean(digits))
    elif OPERATORS[operator] == "alternating":
        # One digit has no odd places, and the mean of nothing is nan: the digit itself.
        odd = float(np.mean(digits[1::2])) if len(digits) > 1 else 0.0
        value = float(np.mean(digits[0::2])) - odd
    elif OPERATORS[operator] == "range":
        value = max(digits) - min(digits)
    else:
        value = len(digits)
    return int(np.round(value)) % N_LABELS  # of a negative number too: -3 -> 7


def answers(operators: Int32, digits: Int32, lengths: Int32) -> Int32:
    """Return `answer` of many examples at once.

    Sums of digits are exact and each mean is one division, as in numpy.mean, so
    halves round to the same even number.

    Args:
        operators: int32 [n].
        digits: int32 [n, max_digits], meaningless beyond `lengths`.
        lengths: int32 [n], 1 to max_digits.
    Returns:
        int32 [n], 0 to 9.
    """
    present = np.arange(digits.shape[1]) < lengths[:, None]
    kept = np.where(present, digits, 0)
    even = kept[:, 0::2].sum(axis=1)
    odd = kept[:, 1::2].sum(axis=1)
    n_odd = lengths // 2
    values: tuple[Array, ...] = (
        (even + odd) / lengths,
        even / (lengths - n_odd) - odd / np.maximum(n_odd, 1),
        kept.max(axis=1) - np.where(present, digits, N_DIGITS).min(axis=1),
        lengths,
    )
    chosen = np.choose(operators, values)
    return (np.round(chosen).astype(np.int64) % N_LABELS).astype(np.int32)
