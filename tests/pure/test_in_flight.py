"""Admission, and counting injected rows back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.control.accounts import Accounts
from amp_runtime.control.in_flight import InFlight
from amp_runtime.errors import InvariantError, UnmatchedBackwardError, VerifyError


def i32(values) -> np.ndarray:
    return np.array(values, np.int32)


def rows(*n: int) -> np.ndarray:
    return np.array(n, np.int64)


def admit(flight, instance, n_rows, n_examples=1):
    """Return the slots of an instance's rows."""
    flight.admit(i32([instance]), rows(n_rows), i32([n_examples]))
    state = np.array([[instance, step] for step in range(n_rows)], np.int32)
    return flight.stamp(state)


def answer(flight, slots):
    return flight.answer(np.asarray(slots, np.int32).reshape(-1, 1))


def test_instances_are_admitted_up_to_keys_and_rows():
    flight = InFlight(3, 10)
    assert flight.admissible(rows(1, 1, 1, 1)) == 3
    assert flight.admissible(rows(4, 5, 2, 1)) == 2
    admit(flight, 1, 4)
    assert flight.admissible(rows(5, 2, 1)) == 1
    assert flight.admissible(rows(6)) == 1
    assert flight.admissible(rows(7)) == 0
    admit(flight, 2, 6)
    assert flight.admissible(rows(1)) == 0


def test_order_is_kept_a_small_instance_does_not_overtake_a_large_one():
    flight = InFlight(5, 10)
    admit(flight, 1, 4)
    assert flight.admissible(rows(7, 1)) == 0


def test_an_instance_is_always_admitted_when_none_is_in_flight():
    flight = InFlight(5, 10)
    assert flight.admissible(rows(11, 1)) == 1
    assert flight.admissible(rows()) == 0
    admit(flight, 1, 11)
    assert flight.admissible(rows(1)) == 0


def test_an_instance_retires_with_its_last_row_in_any_order():
    flight = InFlight(5, 100)
    one, two = admit(flight, 1, 3, n_examples=2), admit(flight, 2, 2, n_examples=4)
    assert len(answer(flight, [one[2], two[0]]).instances) == 0
    assert (flight.instances, flight.rows) == (2, 3)
    retired = answer(flight, [two[1]])
    assert (retired.instances.tolist(), retired.n_examples.tolist()) == ([2], [4])
    retired = answer(flight, one[:2])
    assert (retired.instances.tolist(), retired.n_examples.tolist()) == ([1], [2])
    flight.assert_drained()


def test_several_instances_may_retire_in_one_message():
    flight = InFlight(5, 100)
    slots = np.concatenate([admit(flight, n, 2, n_examples=n) for n in (4, 5)])
    retired = answer(flight, slots[::-1])
    assert (retired.instances.tolist(), retired.n_examples.tolist()) == ([4, 5], [4, 5])


def test_a_row_is_answered_once():
    flight = InFlight(5, 100)
    slots = admit(flight, 1, 2)
    answer(flight, slots[:1])
    with pytest.raises(UnmatchedBackwardError, match="node 'controller': an answer to slot 0"):
        answer(flight, slots[:1])
    with pytest.raises(UnmatchedBackwardError, match="slot 77"):
        answer(flight, [77])


def test_what_is_in_flight_is_counted_when_nothing_should_be():
    flight = InFlight(5, 100)
    admit(flight, 1, 2)
    with pytest.raises(InvariantError, match="controller: 1 instances and 2 rows are in flight"):
        flight.assert_drained()


def test_the_oldest_are_named_first_and_at_most_five():
    flight = InFlight(9, 100)
    for n in (300, 7, 12, 400, 8, 9):
        admit(flight, n, 1)
    assert flight.oldest() == [7, 8, 9, 12, 300]


def test_under_verify_an_answer_brings_back_the_injected_state():
    flight = InFlight(5, 100, verify=True)
    slots = admit(flight, 1, 2)
    right = np.array([[slots[1], 1, 1]], np.int32)
    assert len(flight.answer(right).instances) == 0
    for wrong in ([[slots[0], 1, 1]], [[slots[0]]]):
        fresh = InFlight(5, 100, verify=True)
        admit(fresh, 1, 2)
        with pytest.raises(VerifyError, match="another state than was injected"):
            fresh.answer(i32(wrong))


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=20),
    st.integers(1, 4),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_bounds_hold_and_everything_retires_in_any_order_of_answers(sizes, keys, most, random):
    flight = InFlight(keys, most)
    waiting, slots_of, retired = list(enumerate(sizes)), {}, []
    while waiting or flight.instances:
        count = flight.admissible(rows(*(n for _, n in waiting)))
        assert count or flight.instances  # else nothing would ever move
        for instance, n in waiting[:count]:
            slots_of |= dict.fromkeys(admit(flight, instance, n).tolist(), instance)
        waiting = waiting[count:]
        assert flight.instances <= keys
        assert flight.rows <= most or flight.instances == 1
        assert flight.rows == len(slots_of)
        chosen = random.sample(sorted(slots_of), random.randint(1, len(slots_of)))
        retired += answer(flight, chosen).instances.tolist()
        for slot in chosen:
            del slots_of[slot]
    assert sorted(retired) == list(range(len(sizes)))
    flight.assert_drained()


def test_every_instance_that_was_admitted_retired_or_is_lost_with_its_generation():
    accounts = Accounts()
    for _ in range(2):
        flight = InFlight(10, 10)
        flight.admit(np.array([1, 2, 3], np.int32), np.array([1, 1, 2]), np.array([1, 1, 1]))
        slots = flight.stamp(np.array([[1], [2], [3], [3]], np.int32))
        flight.answer(slots[:3, None])
        accounts.close(flight)
    assert (accounts.injected, accounts.retired, accounts.lost) == (6, 4, 2)
    given = [
        {"dropped": {"stale_generation": 2}},
        {},
        {"dropped": {"stale_generation": 1, "gap": 1}},
    ]
    assert accounts.words(1, 3, given) == (
        "instances: 6 injected = 4 retired + 2 lost; left out: 1; workers started again: 3; "
        "frames dropped: gap 1, stale_generation 3"
    )
    assert Accounts().words(0, 0, [{}]).endswith("frames dropped: 0")
