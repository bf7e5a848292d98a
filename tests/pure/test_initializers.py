"""Initialisers: moments and bounds by the formulas, and which parameters they are for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kinds import floats, make

from amp_runtime.errors import BadOptionError, UnknownOptionError
from amp_runtime.nodes.initializers import INITIALIZERS, make_initializer

N_IN, N_OUT = 300, 100


def made(**options):
    shape = (N_IN, N_OUT)
    return make_initializer(options).make(shape, np.random.default_rng(8))


BOUNDS = {
    "uniform": ({"a": -2.0, "b": 3.0}, (-2, 3)),
    "truncated_normal": ({"mean": 1.0, "std": 2.0, "a": 0.0, "b": 2.5}, (0, 2.5)),
    "xavier_uniform": ({"gain": 2.0}, 2 * math.sqrt(6 / 400)),
    "kaiming_uniform": ({}, math.sqrt(6 / 300)),
    "kaiming_uniform out": ({"mode": "fan_out", "a": 1.0}, math.sqrt(3 / 100)),
    "kaiming_uniform tanh": ({"nonlinearity": "tanh"}, 5 / 3 * math.sqrt(3 / 300)),
}


@pytest.mark.parametrize("case", list(BOUNDS))
def test_all_values_are_within_bounds_and_come_near_them(case):
    options, bounds = BOUNDS[case]
    low, high = bounds if isinstance(bounds, tuple) else (-bounds, bounds)
    values = made(name=case.split()[0], **options)
    near = 0.002 * (high - low)
    assert low <= values.min() < low + near
    assert high - near < values.max() <= high


STDS = {
    "normal": ({"mean": 3.0, "std": 0.2}, (3, 0.2)),
    "xavier_normal": ({}, (0, math.sqrt(2 / 400))),
    "kaiming_normal": ({"nonlinearity": "relu"}, (0, math.sqrt(2 / 300))),
    "kaiming_normal selu": ({"nonlinearity": "selu", "mode": "fan_out"}, (0, 0.75 / 10)),
    "truncated_normal": ({"std": 1.0, "a": -1.0, "b": 1.0}, (0, 0.5396)),  # tables of it
}


@pytest.mark.parametrize("case", list(STDS))
def test_mean_and_standard_deviation_are_those_of_the_formula(case):
    options, (mean, std) = STDS[case]
    values = made(name=case.split()[0], **options)
    assert values.mean() == pytest.approx(mean, abs=4 * std / math.sqrt(values.size))
    assert values.std() == pytest.approx(std, rel=0.02)


def test_some_need_no_chance():
    assert (made(name="zeros") == 0).all()
    assert (made(name="ones") == 1).all()
    assert (made(name="constant", value=0.5) == 0.5).all()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 3, 4)])
def test_orthogonal_rows_or_columns_whichever_are_fewer(shape):
    values = make_initializer({"name": "orthogonal", "gain": 2.0}).make(
        shape, np.random.default_rng(1)
    )
    matrix = values.reshape(-1, shape[-1])
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-12)


def test_a_normal_of_which_next_to_nothing_is_between_its_bounds_is_refused():
    with pytest.raises(ValueError, match="less than 1 %"):
        INITIALIZERS["truncated_normal"](mean=0.0, std=1.0, a=5.0, b=6.0)


# --------------------------------------------------------------------------- of a node


def linear(initializer, **given):
    return make("linear", floats(4), features=3, training={"initializer": initializer}, **given)


def test_one_for_all_weights_leaves_vectors_as_their_kind_says():
    node, plain = linear({"name": "constant", "value": 2.0}), linear("own")
    assert (node.parameters["weight"] == 2).all()
    assert (node.parameters["bias"] == plain.parameters["bias"]).all()


def test_each_parameter_may_have_its_own():
    node = linear({"weight": {"name": "ones"}, "bias": {"name": "constant", "value": 0.5}})
    assert (node.parameters["weight"] == 1).all()
    assert (node.parameters["bias"] == 0.5).all()


def test_a_default_of_all_nodes_passes_over_a_node_without_weights():
    node = make("layer_norm", floats(4), training={"initializer": {"*": {"name": "zeros"}}})
    assert (node.parameters["gain"] == 1).all()
    weight = linear({"*": {"name": "zeros"}}).parameters["weight"]
    assert (weight == 0).all()


def test_drawn_from_seed_and_node_name_alone():
    drawn = [
        linear({"name": "normal"}, name=name, seed=seed).parameters["weight"].tolist()
        for name, seed in (("a", 1), ("a", 1), ("b", 1), ("a", 2))
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert drawn[0] != drawn[3]


def test_a_parameter_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(
        UnknownOptionError,
        match=r"node 'linear-1' .kind linear.: .*no parameter 'wieght' .did you mean 'weight'.*"
        r"weight\[4, 3\], bias\[3\]",
    ):
        linear({"wieght": {"name": "zeros"}})


def test_a_vector_has_no_fans():
    with pytest.raises(BadOptionError, match=r"xavier_normal needs a fan-in .* 'bias' is a vector"):
        linear({"bias": {"name": "xavier_normal", "gain": 1.0}})
    with pytest.raises(BadOptionError, match="one for all weights, and it has vectors only"):
        make("layer_norm", floats(4), training={"initializer": {"name": "normal"}})
