"""Arithmetic on rows that lie one behind the other."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.rows.segments import (
    counted,
    distinct,
    numbered_within,
    ranges,
    reduce_segments,
    repeated,
    run_lengths,
    run_starts,
)


def array(*values):
    return np.array(values, np.int64)


def test_ranges_follow_each_other():
    assert ranges(array(5, 0, 9), array(2, 0, 3)).tolist() == [5, 6, 9, 10, 11]
    assert ranges(array(), array()).tolist() == []


@pytest.mark.parametrize(
    ("values", "starts"),
    [((), []), ((4,), [0]), ((4, 4, 7, 7, 4), [0, 2, 4]), ((1, 2, 3), [0, 1, 2])],
)
def test_runs_start_where_the_value_changes(values, starts):
    assert run_starts(array(*values)).tolist() == starts


@pytest.mark.parametrize(
    ("starts", "n", "lengths"), [((), 0, []), ((0,), 3, [3]), ((0, 2, 4), 5, [2, 2, 1])]
)
def test_a_run_ends_where_the_next_begins_and_the_last_at_the_end(starts, n, lengths):
    assert run_lengths(array(*starts), n).tolist() == lengths


def test_values_that_are_there_twice_are_found_and_left_out():
    assert distinct(array(5, 7, 5, 1)).tolist() == [1, 5, 7]
    assert distinct(array()).tolist() == []
    found, counts = counted(array(5, 7, 5, 1))
    assert (found.tolist(), counts.tolist()) == ([1, 5, 7], [1, 2, 1])
    assert [part.tolist() for part in counted(array())] == [[], []]
    assert repeated(array(5, 7, 5))
    assert not repeated(array(7, 5))
    assert not repeated(array())


def test_equal_values_are_numbered_in_their_order():
    assert numbered_within(array(5, 7, 5, 5, 7, 1)).tolist() == [0, 0, 1, 2, 1, 0]
    assert numbered_within(array()).tolist() == []


@pytest.mark.parametrize("counts", [(2, 0, 3, 0), (0, 0, 5), (5,), (1, 1, 1, 1, 1)])
def test_segments_are_reduced_one_by_one_and_empty_ones_are_zero(counts):
    values = np.random.default_rng(1).normal(size=(5, 2))
    found = reduce_segments(np.maximum, values, array(*counts))
    parts = np.split(values, np.cumsum(counts)[:-1])
    expected = [p.max(axis=0) if len(p) else np.zeros(2) for p in parts]
    assert found.tolist() == np.array(expected).tolist()


@pytest.mark.parametrize("counts", [[2, 0, 5, 1], [1, 1, 1], [0, 0], [3, 17, 2], [16] * 3])
@pytest.mark.parametrize("function", [np.add, np.maximum])
def test_segments_of_wide_rows_are_reduced_alike(function, counts):
    values = np.random.default_rng(0).normal(size=(sum(counts), 3, 4))
    pieces = np.split(values, np.cumsum(counts)[:-1])
    expected = [function.reduce(p) if len(p) else np.zeros((3, 4)) for p in pieces]
    found = reduce_segments(function, values, np.array(counts))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_no_segments_give_no_rows():
    assert reduce_segments(np.add, np.zeros((0, 3)), array()).shape == (0, 3)
    assert reduce_segments(np.add, np.zeros((0, 3)), array(0, 0)).tolist() == [[0] * 3] * 2
