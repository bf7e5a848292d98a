"""Slots: issued once, answered once, reused oldest first, and refused by name otherwise."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.errors import InvariantError, UnmatchedBackwardError
from amp_runtime.rows.stash import MAX_POSITIONS, POSITION_BITS, Stash


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_positions_are_reused_oldest_first():
    stash = Stash("n", capacity=4)
    first = stash.allocate(3)
    assert first.tolist() == [0, 1, 2]
    stash.free(stash.answer(stash.slots(first[[2, 0]])))
    assert stash.allocate(3).tolist() == [3, 2, 0]  # never used, then as they were freed
    assert (stash.used, stash.peak, stash.capacity) == (4, 4, 4)


def test_positions_that_nobody_will_answer_are_closed_at_once_and_their_slots_are_dead():
    stash = Stash("n", capacity=4)
    positions = stash.allocate(3)
    slots = stash.slots(positions)
    stash.close(positions[:2])
    assert stash.open_positions().tolist() == [2]
    assert stash.allocate(3).tolist() == [3, 0, 1]  # round the end of the ring
    with pytest.raises(UnmatchedBackwardError, match=r"slot 0 .*now at use 1"):
        stash.answer(slots[:1])


def test_a_slot_carries_position_and_use():
    stash = Stash("n", capacity=2)
    for use in range(3):
        slots = stash.slots(stash.allocate(2))
        assert slots.dtype == np.int32
        assert slots.tolist() == [use << POSITION_BITS, 1 | use << POSITION_BITS]
        stash.free(stash.answer(slots))


def test_the_use_counter_wraps_and_a_slot_stays_positive():
    stash = Stash("n", capacity=1)
    for use in range(1030):
        (slot,) = slots = stash.slots(stash.allocate(1))
        assert slot >> POSITION_BITS == use % 512
        assert slot >= 0
        stash.free(stash.answer(slots))


def test_columns_keep_their_values_while_the_stash_grows():
    stash = Stash("n", capacity=2)
    first = stash.allocate(2)
    stash.put(first, {"x": np.array([[1.0, 2.0], [3.0, 4.0]])})
    second = stash.allocate(5)
    stash.put(second, {"x": np.arange(10.0).reshape(5, 2)})
    assert stash.capacity == 8
    assert stash.take("x", first).tolist() == [[1, 2], [3, 4]]
    assert stash.take("x", second[[4, 0]]).tolist() == [[8, 9], [0, 1]]
    assert stash.open_positions().tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_take_returns_new_memory():
    stash = Stash("n")
    at = stash.allocate(1)
    stash.put(at, {"x": np.array([5.0])})
    stash.take("x", at)[0] = 0
    assert stash.take("x", at).tolist() == [5]


def test_values_stay_readable_between_answer_and_free():
    stash = Stash("n", capacity=1)
    at = stash.allocate(1)
    stash.put(at, {"x": np.array([5.0])})
    answered = stash.answer(stash.slots(at))
    assert stash.used == 1
    assert stash.open_positions().tolist() == []
    assert stash.allocate(1).tolist() == [1]  # grows rather than overwrite
    assert stash.take("x", answered).tolist() == [5]


@pytest.mark.parametrize(
    ("slot", "why"),
    [
        (3, "slot 3 .use 0., which is free"),
        (1, "slot 1 .use 0., which is answered already"),
        (1 << POSITION_BITS, "slot 0 .use 1., which is now at use 0"),
        (4, "slot 4 .use 0., which is outside the stash"),
        (-1, "slot 4194303 .use -1., which is outside the stash"),
        (-2, "slot 4194302 .use -1., which is outside the stash"),
        (2, "slot 2 .use 0., which is now at use 1"),
    ],
)
def test_an_answer_to_a_slot_that_owes_none_is_refused_by_name(slot, why):
    stash = Stash("linear-1", capacity=4)
    stash.allocate(3)
    stash.answer(i32(1))
    stash.free(stash.answer(i32(2)))
    with pytest.raises(UnmatchedBackwardError, match=f"node 'linear-1': an answer to {why}"):
        stash.answer(i32(0, slot))


def test_a_slot_named_twice_in_one_message_is_refused():
    stash = Stash("n", capacity=4)
    slots = stash.slots(stash.allocate(2))
    with pytest.raises(UnmatchedBackwardError, match=r"slot 0 .*named twice in one message"):
        stash.answer(slots[[0, 1, 0]])


def test_a_refused_answer_leaves_the_good_slots_of_its_message_open():
    stash = Stash("n", capacity=4)
    slots = stash.slots(stash.allocate(2))
    with pytest.raises(UnmatchedBackwardError):
        stash.answer(i32(0, 3))
    assert stash.answer(slots).tolist() == [0, 1]


def test_freeing_an_open_position_is_refused():
    stash = Stash("linear-1")
    with pytest.raises(InvariantError, match="freed twice, or before it was answered"):
        stash.free(stash.allocate(1))


def test_freeing_a_free_position_is_refused():
    stash = Stash("linear-1")
    at = stash.allocate(1)
    stash.free(stash.answer(stash.slots(at)))
    with pytest.raises(InvariantError, match="linear-1: a stash position is freed twice"):
        stash.free(at)


def test_more_rows_than_slots_can_number_are_refused_with_what_to_do():
    stash = Stash("n", capacity=2)
    with pytest.raises(InvariantError, match=r"n: 4194305 rows in flight.*max_active_keys"):
        stash.allocate(MAX_POSITIONS + 1)
    assert stash.used == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60), st.integers(1, 5))
def test_a_stash_is_a_queue_of_free_positions(steps, capacity):
    stash = Stash("n", capacity)
    free, taken, values = deque(range(capacity)), deque(), {}
    for number, (allocate, n) in enumerate(steps):
        if allocate:
            if n > len(free):
                before = stash.capacity
                positions = stash.allocate(n)
                free.extend(range(before, stash.capacity))
            else:
                positions = stash.allocate(n)
            assert positions.tolist() == [free.popleft() for _ in range(n)]
            stash.put(positions, {"x": np.full(n, number)})
            taken.extend(positions.tolist())
            values |= dict.fromkeys(positions.tolist(), number)
        else:
            taken.rotate(n)
            chosen = [taken.popleft() for _ in range(min(n, len(taken)))]
            positions = np.array(chosen, np.int64)
            assert stash.answer(stash.slots(positions)).tolist() == chosen
            if chosen:
                assert stash.take("x", positions).tolist() == [values[c] for c in chosen]
            stash.free(positions)
            free.extend(chosen)
        assert stash.used == len(taken)
        assert stash.open_positions().tolist() == sorted(taken)
