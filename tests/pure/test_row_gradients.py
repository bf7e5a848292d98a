"""Gradients by row: their sums, and steps that touch these rows alone."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.optim import OPTIMIZERS, make_optimizer
from amp_runtime.optim.row_gradients import SMALL_TABLE_ROWS, RowGradient, RowSums

OPTIONS = {
    "sgd": {"name": "sgd", "lr": 0.1},
    "momentum": {"name": "sgd", "lr": 0.1, "momentum": 0.5},
    "nesterov": {"name": "sgd", "lr": 0.1, "momentum": 0.5, "nesterov": True},
    "adagrad": {"name": "adagrad", "lr": 0.1, "initial": 0.5},
    "rmsprop": {"name": "rmsprop", "lr": 0.1, "momentum": 0.5},
    "adam": {"name": "adam", "lr": 0.1},
    "adamw": {"name": "adamw", "lr": 0.1, "weight_decay": 0.0},
}
"""One of each optimiser at least; none decays weights."""


def test_every_optimizer_is_tried_here():
    assert {options["name"] for options in OPTIONS.values()} == set(OPTIMIZERS)


of_either_size = pytest.mark.parametrize("entries", [SMALL_TABLE_ROWS, SMALL_TABLE_ROWS + 1])


@of_either_size
def test_values_of_one_row_add_up_over_all_calls(entries):
    sums = RowSums(np.zeros((entries, 2)), lazy=False)
    sums.add(np.array([3, 0, 3]), np.array([[1.0, 2], [3, 4], [10, 20]]))
    sums.add(np.array([4, 0]), np.array([[5.0, 6], [100, 200]]))
    assert np.asarray(sums)[:5].tolist() == [[103, 204], [0, 0], [0, 0], [11, 22], [5, 6]]
    assert not np.asarray(sums)[5:].any()
    taken = sums.take()
    assert taken.rows.tolist() == [0, 3, 4]
    assert taken.values.tolist() == [[103, 204], [11, 22], [5, 6]]
    assert len(sums.take().rows) == 0


@of_either_size
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_values_of_any_shape_add_up_as_one_by_one(entries, shape):
    generator = np.random.default_rng(3)
    sums, expected = RowSums(np.zeros((entries, *shape)), lazy=False), np.zeros((entries, *shape))
    for n in (1, 7, 40):
        rows, values = generator.integers(0, entries, n), generator.normal(size=(n, *shape))
        sums.add(rows, values)
        np.add.at(expected, rows, values)
    np.testing.assert_allclose(np.asarray(sums), expected, rtol=1e-13, atol=1e-13)


@of_either_size
def test_what_is_added_is_not_kept(entries):
    sums = RowSums(np.zeros((entries, 1)), lazy=False)
    rows, values = np.array([1, 2]), np.array([[1.0], [2.0]])
    sums.add(rows, values)
    rows[...], values[...] = 4, 9
    assert sums.take().values.tolist() == [[1], [2]]


@of_either_size
def test_many_calls_on_few_rows_keep_no_more_than_these_rows(entries):
    sums = RowSums(np.zeros((entries, 1)), lazy=False)
    for _ in range(1000):
        sums.add(np.arange(50), np.ones((50, 1)))
    assert sum(len(rows) for rows, _ in sums._terms) <= 1024 + 50
    assert (np.asarray(sums)[:50] == 1000).all()


def steps(options, lazy):
    """Return a table and the rows that were touched, after steps on a few rows each."""
    generator = np.random.default_rng(4)
    table = generator.normal(size=(6, 3))
    optimizer = make_optimizer(options, {"table": table})
    for rows in ([0, 2], [2, 3, 5], [0], [], [2]):
        values = generator.normal(size=(len(rows), 3))
        gradient = RowGradient(np.array(rows, np.int64), values, lazy)
        optimizer.step({"table": gradient})
    return table, optimizer


@pytest.mark.parametrize("case", list(OPTIONS))
def test_dense_equal_is_the_step_on_the_whole_table(case):
    table, _ = steps(OPTIONS[case], lazy=False)
    generator = np.random.default_rng(4)
    expected = generator.normal(size=(6, 3))
    optimizer = make_optimizer(OPTIONS[case], {"table": expected})
    for rows in ([0, 2], [2, 3, 5], [0], [], [2]):
        gradient = np.zeros((6, 3))
        gradient[rows] = generator.normal(size=(len(rows), 3))
        optimizer.step({"table": gradient})
    np.testing.assert_allclose(table, expected, rtol=1e-13)


@pytest.mark.parametrize("case", list(OPTIONS))
def test_lazy_steps_a_row_as_if_the_steps_without_it_had_left_its_moments_alone(case):
    """Each row by itself, with the gradients it got: only the step count is the table's."""
    table, _ = steps(OPTIONS[case], lazy=True)
    generator = np.random.default_rng(4)
    expected = generator.normal(size=(6, 3))
    alone = [make_optimizer(OPTIONS[case], {"row": expected[row]}) for row in range(6)]
    for n, rows in enumerate(([0, 2], [2, 3, 5], [0], [], [2])):
        values = generator.normal(size=(len(rows), 3))
        for row, gradient in zip(rows, values, strict=True):
            alone[row].steps = n  # Adam corrects its bias by it
            alone[row].step({"row": gradient})
    np.testing.assert_allclose(table, expected, rtol=1e-13)
    untouched = np.random.default_rng(4).normal(size=(6, 3))[[1, 4]]
    assert (table[[1, 4]] == untouched).all()


@pytest.mark.parametrize(("case", "same"), [(case, case in ("sgd", "adagrad")) for case in OPTIONS])
def test_lazy_differs_where_a_gradient_of_zero_moves_a_parameter(case, same):
    dense, _ = steps(OPTIONS[case], lazy=False)
    lazy, optimizer = steps(OPTIONS[case], lazy=True)
    assert np.allclose(dense, lazy, rtol=1e-12) == same == optimizer.rests_at_zero


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_weight_decay_moves_rows_without_a_gradient(name):
    table = np.ones((3, 1))
    optimizer = make_optimizer({"name": name, "lr": 0.1, "weight_decay": 0.5}, {"table": table})
    optimizer.step({"table": RowGradient(np.array([1]), np.ones((1, 1)), lazy=False)})
    assert (table < 1).all()
