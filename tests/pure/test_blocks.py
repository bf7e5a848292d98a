"""Blocks of rows: side by side, found by number, closed up when the store is full."""

from __future__ import annotations

import random

import numpy as np

from amp_runtime.rows.blocks import Blocks


def array(*values):
    return np.array(values, np.int64)


def test_the_rows_of_blocks_lie_side_by_side():
    blocks = Blocks({"x": ((2,), np.float64)})
    blocks.open(array(5, 0), array(2, 3))
    blocks.open(array(9), array(0))
    assert blocks.counts(array(0, 5, 9)).tolist() == [3, 2, 0]
    rows = blocks.rows(array(0, 9, 5))
    assert rows.tolist() == [2, 3, 4, 0, 1]
    assert blocks.first(array(0)).tolist() == [2]
    blocks.put(rows, {"x": np.arange(10.0).reshape(5, 2)})
    assert blocks.take("x", blocks.rows(array(5))).tolist() == [[6, 7], [8, 9]]


def test_reordered_rows_are_so_in_every_column():
    blocks = Blocks({"x": ((), np.float64), "n": ((), np.int32)})
    blocks.open(array(1), array(3))
    rows = blocks.rows(array(1))
    blocks.put(rows, {"x": np.array([0.0, 1, 2]), "n": np.array([5, 6, 7], np.int32)})
    blocks.reorder(rows, array(2, 0, 1))
    assert blocks.take("x", rows).tolist() == [2, 0, 1]
    assert blocks.take("n", rows).tolist() == [7, 5, 6]


def test_blocks_keep_their_rows_however_many_are_opened_and_closed():
    """Some thousand blocks of 0 to 40 rows, some long-lived, against a plain dict."""
    chance = random.Random(3)
    blocks, kept = Blocks({"x": ((), np.int64)}), {}
    for n in range(2000):
        number = chance.choice([i for i in range(300) if i not in kept])
        values = np.full(chance.randrange(41), n)
        blocks.open(array(number), array(len(values)))
        blocks.put(blocks.rows(array(number)), {"x": values})
        kept[number] = values
        while len(kept) > chance.randrange(150):
            gone = chance.choice(sorted(kept))
            blocks.close(array(gone))
            del kept[gone]
    numbers = array(*kept)
    found = np.split(blocks.take("x", blocks.rows(numbers)), np.cumsum(blocks.counts(numbers))[:-1])
    assert [f.tolist() for f in found] == [v.tolist() for v in kept.values()]
    assert len(blocks._columns["x"]) <= 16384  # 150 blocks of 40 rows at most, and as much room
