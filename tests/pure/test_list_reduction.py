"""The paper's list reduction task, held to its definition."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.data import load_split
from amp_runtime.data.sequences import list_reduction
from amp_runtime.data.sequences.list_reduction import N_DIGITS, answer, answers

MEAN, ALTERNATING, RANGE, LENGTH = range(4)


@pytest.mark.parametrize(
    ("operator", "digits", "expected"),
    [
        (MEAN, [4, 9, 1], 5),  # 4.67
        (MEAN, [2, 3], 2),  # 2.5 rounds to the even number
        (MEAN, [3, 4], 4),  # 3.5 as well
        (ALTERNATING, [7], 7),  # one digit: the digit
        (ALTERNATING, [9, 1, 4], 6),  # 6.5 - 1 = 5.5, to even
        (ALTERNATING, [0, 3], 7),  # -3 modulo 10
        (ALTERNATING, [0, 1, 1], 0),  # 0.5 - 1 = -0.5, to even
        (RANGE, [4, 9, 1], 8),
        (RANGE, [5], 0),
        (LENGTH, [0, 0, 0, 0], 4),
    ],
)
def test_answer_by_hand(operator, digits, expected):
    assert answer(operator, digits) == expected
    padded = np.array([digits + [99] * (9 - len(digits))], np.int32)
    got = answers(np.array([operator], np.int32), padded, np.array([len(digits)], np.int32))
    assert got.tolist() == [expected]


@pytest.mark.parametrize(("seed", "max_digits"), [(0, 9), (1, 9), (2, 25), (3, 1)])
def test_generated_labels_are_the_slow_answers(seed, max_digits):
    data = load_split("list_reduction", "train", seed, {"train": 5000, "max_digits": max_digits})
    tokens, label = data.field("tokens"), data.field("label").values
    for i in range(len(data)):
        operator, *digits = tokens.values[tokens.offsets[i] : tokens.offsets[i + 1]].tolist()
        assert label[i] == answer(operator - N_DIGITS, digits), (operator, digits)


def test_operators_lengths_and_digits_are_uniform():
    data = load_split("list_reduction", "train", 0, {})
    tokens = data.field("tokens")
    first = tokens.offsets[:-1]
    assert len(data) == 100_000
    assert (tokens.counts.min(), tokens.counts.max()) == (2, 10)
    for values, n_values in (
        (tokens.values[first] - N_DIGITS, 4),
        (tokens.counts - 2, 9),
        (np.delete(tokens.values, first), 10),
    ):
        share = np.bincount(values, minlength=n_values) / len(values)
        assert share == pytest.approx(np.full(n_values, 1 / n_values), abs=0.005)


def test_valid_is_what_the_next_seed_would_train_on():
    sizes = {"train": 50, "valid": 50}
    valid = load_split("list_reduction", "valid", 4, sizes)
    train = load_split("list_reduction", "train", 5, sizes)
    other = load_split("list_reduction", "train", 4, sizes)
    assert valid.field("tokens").values.tolist() == train.field("tokens").values.tolist()
    assert valid.field("tokens").values.tolist() != other.field("tokens").values.tolist()


def test_default_sizes_are_a_hundred_and_ten_thousand():
    assert [len(list_reduction.source(split, 0)) for split in ("train", "valid")] == [
        100_000,
        10_000,
    ]
