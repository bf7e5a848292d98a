"""Rows and messages: columns by name, and merging keeps every row."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.rows.message import Direction, Message, Mode, Rows, merge


def rows(verify: bool) -> Rows:
    columns = np.arange(12 if not verify else 18, dtype=np.int32).reshape(3, -1)
    return Rows(columns, {"x": np.arange(6.0).reshape(3, 2)}, 2)


def test_columns_are_address_then_state_then_origin():
    plain, verified = rows(False), rows(True)
    assert plain.addresses.tolist() == [[0, 1], [4, 5], [8, 9]]
    assert plain.state.tolist() == [[2, 3], [6, 7], [10, 11]]
    assert plain.origin.shape == (3, 0)
    assert plain.return_to.tolist() == plain.addresses.tolist()
    assert verified.state.tolist() == [[2, 3], [8, 9], [14, 15]]
    assert verified.origin.tolist() == [[4, 5], [10, 11], [16, 17]]
    assert verified.return_to.tolist() == [[0, 1, 4, 5], [6, 7, 10, 11], [12, 13, 16, 17]]


@pytest.mark.parametrize("index", [np.array([2, 0]), np.array([True, False, True])])
def test_take_gives_rows_in_new_memory(index):
    whole = rows(False)
    part = whole.take(index)
    assert sorted(part.columns[:, 0].tolist()) == [0, 8]
    part.columns[...] = 0
    part.payload["x"][...] = 0
    assert whole.columns[2, 0] == 8
    assert whole.payload["x"][2].tolist() == [4, 5]


def message(n, payload=True, port=1, mode=Mode.TRAIN):
    arrays = {"x": np.full((n, 2), n, np.float32), "t": np.full(n, n, np.int32)}
    return Message(
        Direction.BACKWARD, mode, port, np.full((n, 1), n, np.int32), arrays if payload else None
    )


def test_merging_keeps_all_rows_in_order_and_all_dtypes():
    merged = merge([message(2), message(1), message(3)])
    assert merged.columns[:, 0].tolist() == [2, 2, 1, 3, 3, 3]
    assert merged.payload["x"][:, 0].tolist() == [2, 2, 1, 3, 3, 3]
    assert merged.payload["t"].tolist() == [2, 2, 1, 3, 3, 3]
    assert (merged.payload["x"].dtype, merged.payload["t"].dtype) == (np.float32, np.int32)
    assert merged.merge_key == message(1).merge_key


def test_merging_one_message_gives_it_back():
    one = message(2)
    assert merge([one]) is one


def test_null_rows_merge_to_null_rows():
    merged = merge([message(2, payload=False), message(1, payload=False)])
    assert merged.payload is None
    assert len(merged) == 3


def test_merge_keys_tell_direction_mode_port_and_arrays():
    others = [
        message(1, payload=False),
        message(1, port=2),
        message(1, mode=Mode.EVALUATE),
        Message(Direction.FORWARD, Mode.TRAIN, 1, np.zeros((1, 1), np.int32), message(1).payload),
        Message(Direction.BACKWARD, Mode.TRAIN, 1, np.zeros((1, 1), np.int32), {"x": np.zeros(1)}),
    ]
    assert len({m.merge_key for m in [message(1), message(5), *others]}) == 1 + len(others)
