"""When a node steps, what it divides by, and what it carries over."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.nodes.updates import LocalUpdates, Schedule, UpdatePolicy


def updates(frequency="auto", every=2, schedule=Schedule.ASYNCHRONOUS):
    return LocalUpdates(UpdatePolicy(schedule, every, frequency))


def rows(instance: int, n: int = 1) -> np.ndarray:
    return np.full(n, instance, np.int32)


def retire(local, instances, n_examples=None):
    n = [1] * len(instances) if n_examples is None else n_examples
    local.on_retired(np.array(instances, np.int32), np.array(n, np.int32))


def learnt(rate: int, every=2):
    """Return updates of a node that has seen `every` examples bring `rate` rows each."""
    local = updates(every=every)
    for i in range(every):
        local.add(rows(i, rate))
    retire(local, range(every))
    assert local.due() is not None
    local.stepped()
    return local


# ------------------------------------------------------------------------------ integers


def test_an_integer_is_a_plain_count_and_the_mean_over_rows():
    local = updates(3)
    local.add(rows(1, 2))
    assert local.due() is None
    local.add(rows(2))
    assert local.due() == 3


def test_a_batch_is_never_cut_and_its_surplus_is_carried():
    local = updates(3)
    local.add(rows(1, 5))
    assert local.due() == 5  # one step, over all five
    local.stepped()
    assert local.rows == 0
    assert local.due() is None
    local.add(rows(1))  # 2 carried + 1
    assert local.due() == 1
    local.stepped()
    local.add(rows(1, 2))
    assert local.due() is None


def test_whole_steps_beyond_the_first_are_not_owed():
    local = updates(3)
    local.add(rows(1, 11))  # 11 = 3 * 3 + 2
    local.stepped()
    local.add(rows(1))
    assert local.due() == 1
    local.stepped()
    local.add(rows(1, 2))
    assert local.due() is None


def test_left_over_rows_are_divided_as_a_full_steps():
    local = updates(3)
    assert local.left_over() is None
    local.add(rows(1, 2))
    assert local.left_over() == 3
    local.stepped(left_over=True)
    local.add(rows(1, 2))
    assert local.due() is None  # nothing is carried behind a left-over


# ---------------------------------------------------------------------------------- auto


def test_auto_waits_until_as_many_examples_as_an_update_have_retired():
    local = updates(every=2)
    local.add(rows(1, 3))
    local.add(rows(2, 5))
    retire(local, [1])
    assert local.rows_per_example == 3
    assert local.due() is None
    retire(local, [2])
    assert local.rows_per_example == 4
    assert local.due() == 2  # 8 rows stand for 2 examples


def test_auto_steps_at_the_rows_of_update_every_examples():
    local = learnt(rate=3)
    local.add(rows(10, 5))
    assert local.due() is None
    local.add(rows(11))
    assert local.due() == 2


def test_auto_divides_by_the_examples_that_the_rows_stand_for():
    local = learnt(rate=3)
    local.add(rows(10, 9))
    assert local.due() == 3
    local.stepped()
    local.add(rows(11, 2))  # 3 carried + 2 of 6
    assert local.due() is None
    local.add(rows(11))
    assert local.due() == 1


def test_rows_per_example_counts_every_row_of_a_retired_instance_and_no_other():
    local = updates(every=4)
    local.add(np.array([1, 2, 1, 3], np.int32))
    retire(local, [1, 2], [2, 2])
    assert local.rows_per_example == 0.75
    retire(local, [3], [1])
    assert local.rows_per_example == 0.8


def test_an_example_that_brings_no_row_here_counts_as_an_example():
    local = updates(every=2)
    local.add(rows(1, 4))
    retire(local, [1, 2])
    assert local.rows_per_example == 2


def test_evaluation_instances_change_nothing():
    local = updates(every=2)
    local.add(rows(1, 4))
    retire(local, [1])
    retire(local, [2, 3], [0, 0])
    assert local.rows_per_example == 4


def test_no_row_means_no_step_whatever_has_retired():
    local = updates(every=1)
    retire(local, [1, 2, 3])
    assert local.due() is None
    assert local.left_over() is None


def test_auto_left_over_is_divided_as_a_full_steps():
    local = learnt(rate=3)
    local.add(rows(10, 2))
    assert local.left_over() == 2  # not 2/3 of an example
    local = updates(every=5)
    local.add(rows(1, 2))
    assert local.left_over() == 5  # the rate is unknown
    retire(local, [1])
    assert local.left_over() == 5
    local.add(rows(2, 18))
    assert local.left_over() == 10  # 20 rows stand for 10 examples


@pytest.mark.parametrize(
    ("every", "n_rows", "n_examples"),
    # In floats 100 examples of 1.1 rows are 110.00000000000001 rows, 49 of 20/49 are 20 - 4e-15.
    [(100, 110, 100), (49, 20, 49), (3, 7, 3), *((n, 3 * n + 1, n) for n in range(2, 60))],
)
def test_a_step_that_comes_exactly_at_its_threshold_carries_nothing(every, n_rows, n_examples):
    local = updates(every=every)
    local.add(rows(0, n_rows))
    retire(local, [0], [n_examples])
    assert local.due() == pytest.approx(every)
    local.stepped()
    local.add(rows(1, n_rows - 1))
    assert local.due() is None
    local.add(rows(2))
    assert local.due() == pytest.approx(every)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 20))
def test_carrying_the_surplus_keeps_the_pace(batches, frequency):
    """Steps come as often as thresholds are passed, however the rows are merged."""
    local, steps, passed, total = updates(frequency), 0, 0, 0
    for n in batches:
        local.add(rows(1, n))
        total += n
        if total // frequency > passed:
            passed = total // frequency
            assert local.due() == local.rows
            local.stepped()
            steps += 1
        else:
            assert local.due() is None
    assert local.rows <= frequency


# --------------------------------------------------------------------------- synchronous


def test_a_synchronous_node_never_steps_by_itself():
    local = updates(1, every=1, schedule=Schedule.SYNCHRONOUS)
    local.add(rows(1, 50))
    retire(local, [1])
    assert local.due() is None
    assert local.left_over() is None
    assert local.rows == 50
    local.stepped()
    assert local.rows == 0
