"""Clipping: the gradient of the mean loss per example, by norm or by value."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import f64, floats, make, only, rows, slots

from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.optim.clip import Clip
from amp_runtime.rows.message import Mode


def test_the_norm_is_that_of_all_arrays_together():
    weight, bias = f64([[3.0], [0.0]]), f64([4.0])  # norm 5
    assert Clip(norm=1.0).apply([weight, bias])
    np.testing.assert_allclose(weight, [[0.6], [0.0]], rtol=1e-6)
    np.testing.assert_allclose(bias, [0.8], rtol=1e-6)


def test_what_is_within_the_bound_is_left_as_it_is():
    weight, bias = f64([[3.0], [0.0]]), f64([4.0])
    assert not Clip(norm=5.1).apply([weight, bias])
    assert not Clip(value=4.0).apply([weight, bias])
    assert (weight.tolist(), bias.tolist()) == ([[3.0], [0.0]], [4.0])


def test_a_value_bounds_every_component_on_both_sides():
    gradient = f64([0.25, -0.75, 2.0])
    assert Clip(value=0.5).apply([gradient])
    assert gradient.tolist() == [0.25, -0.5, 0.5]


def test_a_gradient_without_rows_is_within_every_bound():
    empty = np.empty((0, 3))
    assert not Clip(value=0.5).apply([empty])
    assert not Clip(norm=0.5).apply([empty])


@pytest.mark.parametrize("given", [{}, {"norm": 1.0, "value": 1.0}])
def test_one_of_norm_and_value_is_given(given):
    with pytest.raises(ValueError, match="give norm or value"):
        Clip(**given)


def stepped(clip) -> tuple:
    """Return a linear node after a step with the gradients [[6], [8]] and [2] of 2 rows."""
    node = make(
        "linear",
        floats(2),
        features=1,
        updates=UpdatePolicy(min_update_frequency=2),
        optimizer={"name": "sgd", "lr": 1.0},
        training={"clip": clip},
    )
    before = {name: array.copy() for name, array in node.parameters.items()}
    emitted = only(node.forward("x", rows(x=[[2.0, 3.0], [4.0, 5.0]]), Mode.TRAIN))
    node.backward("y", slots(emitted), {"x": f64([[1.0], [1.0]])})
    node.accumulate()
    assert node.version == 1
    return node, {name: (before[name] - a).ravel().tolist() for name, a in node.parameters.items()}


def test_a_node_clips_what_it_has_divided_and_counts_the_steps_it_clipped():
    # [6, 8, 2] / 2 rows
    node, step = stepped({"value": 3.5})
    assert step["weight"] == pytest.approx([3.0, 3.5])
    assert step["bias"] == pytest.approx([1.0])
    assert node.clipped == 1
    node, step = stepped({"norm": 10.0})
    assert step["weight"] == pytest.approx([3.0, 4.0])
    assert node.clipped == 0
    node, step = stepped({"norm": 0.1})
    norm = np.sqrt(9 + 16 + 1)
    assert step["weight"] == pytest.approx([0.3 / norm, 0.4 / norm], rel=1e-5)
    assert step["bias"] == pytest.approx([0.1 / norm], rel=1e-5)
    assert node.clipped == 1
