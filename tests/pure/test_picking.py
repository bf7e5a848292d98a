"""Rows picked out and put in equal numpy's own indexing, whatever they are made of."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.rows.picking import as_whole_rows, picked, whole_rows
from amp_runtime.rows.stash import Stash

SHAPES = [(), (1,), (2,), (3, 4), (0,)]
DTYPES = [np.bool_, np.int32, np.int64, np.float32, np.float64]


def drawn(n: int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    generator = np.random.default_rng(n)
    return (generator.normal(0, 100, (n, *shape)) > 0 if dtype is np.bool_ else
            generator.normal(0, 100, (n, *shape))).astype(dtype)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [[], [4], [4, 0, 4, 2]])
def test_picked_rows_are_those_of_indexing(shape, dtype, rows):
    array, index = drawn(5, shape, dtype), np.array(rows, np.int64)
    found = picked(array, index)
    np.testing.assert_array_equal(found, array[index], strict=True)
    assert not np.shares_memory(found, array)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_put_in_as_a_whole_are_those_of_indexing(shape, dtype):
    column, values = np.zeros((6, *shape), dtype), drawn(3, shape, dtype)
    rows = whole_rows(column)
    if rows is None:
        assert shape in {(), (0,)}
        return
    rows[[5, 0, 2]] = as_whole_rows(values, rows.dtype)
    rows[np.zeros(0, np.int64)] = as_whole_rows(values[:0], rows.dtype)
    np.testing.assert_array_equal(column[[5, 0, 2]], values)
    assert not column[[1, 3, 4]].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_of_rows_are_put_in_side_by_side_also_when_the_stash_grows(dtype):
    stash = Stash("it", capacity=4)
    stash.column("x", (5,), dtype)
    values, put = drawn(4, (5,), dtype), []
    for n in (3, 1):
        put.append(stash.allocate(n))
        at = slice(0, 3) if n > 1 else slice(3, 4)
        for start, end in ((0, 2), (2, 5)):
            stash.put_part("x", put[-1], start, values[at, start:end])
    np.testing.assert_array_equal(stash.take("x", np.concatenate(put)), values)
    more = stash.allocate(6)
    stash.put_part("x", more[:1], 2, values[:1, 2:])
    np.testing.assert_array_equal(stash.take("x", more[:1])[0, 2:], values[0, 2:])
    np.testing.assert_array_equal(stash.take("x", np.concatenate(put)), values)


def test_a_stash_takes_rows_that_are_no_contiguous_array_or_of_another_dtype():
    stash = Stash("it")
    positions = stash.allocate(3)
    wide = drawn(3, (6,), np.float32)
    stash.put(positions, {"part": wide[:, 1:3], "turned": wide.T[:3]})
    np.testing.assert_array_equal(stash.take("part", positions), wide[:, 1:3])
    np.testing.assert_array_equal(stash.take("turned", positions), wide.T[:3])
    stash.put(positions, {"part": np.ones((3, 2))})
    assert stash.take("part", positions).dtype == np.float32
    assert stash.take("part", positions).tolist() == [[1, 1]] * 3
    stash.allocate(1000)  # it grows: what was put in is there, and what follows goes in
    np.testing.assert_array_equal(stash.take("turned", positions), wide.T[:3])
    stash.put(positions, {"turned": wide[:, 2:5]})
    np.testing.assert_array_equal(stash.take("turned", positions), wide[:, 2:5])
