"""Averaging schemes against numbers worked by hand, and small oracles over many meetings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from amp_runtime.optim.averaging import AVERAGING, Averaging, make_averaging
from amp_runtime.optim.snapshot import Snapshot


def scheme(name: str, n: int = 2, begin: Sequence[float] = (0.0,), **options: Any) -> Averaging:
    made = AVERAGING[name].Options(**options)
    values = {field: getattr(made, field) for field in made.__dataclass_fields__}
    return make_averaging({"name": name, **values}, n, {"w": np.array(begin)})


def held(*w: float, count: int = 1, steps: int = 0, **beside: list[float]) -> Snapshot:
    kept = {f"{name}@w": np.array(value) for name, value in beside.items()}
    return Snapshot({"w": np.array(w)}, kept, count, steps)


def ws(snapshots: Sequence[Snapshot]) -> list[list[float]]:
    return [s.arrays["w"].tolist() for s in snapshots]


def test_mean_is_the_mean_of_parameters_and_of_what_optimisers_keep():
    mean = scheme("mean", 3)
    told = mean.meet(
        [held(1.0, steps=4, mean=[2.0]), held(5.0, steps=5, mean=[4.0]), held(0.0, mean=[0.0])]
    )
    assert ws(told) == [[2.0]] * 3
    assert [s.beside["mean@w"].tolist() for s in told] == [[2.0]] * 3
    assert [s.steps for s in told] == [3] * 3
    assert mean.centre["w"].tolist() == [2.0]
    assert not mean.apart


@pytest.mark.parametrize("name", ["mean", "block_momentum"])
def test_a_replica_without_an_update_is_told_and_not_counted(name):
    made = scheme(name, 3, momentum=0.0) if name == "block_momentum" else scheme(name, 3)
    told = made.meet([held(1.0), held(0.0, count=0), held(3.0)])
    assert ws(told) == [[2.0]] * 3


@pytest.mark.parametrize("name", list(AVERAGING))
def test_where_none_has_updated_nothing_moves(name):
    made = scheme(name, 2, begin=[3.0])
    made.meet([held(4.0), held(5.0)])
    before = made.centre["w"].tolist()
    told = made.meet([held(*before, count=0), held(*before, count=0)])
    assert made.centre["w"].tolist() == before
    assert ws(told) == [before, before]


def test_elastic_pulls_one_replica_to_the_centre_and_the_centre_to_it():
    elastic = scheme("elastic", 2, beta=0.5)  # alpha = 0.25
    (told,) = elastic.meet([held(8.0, steps=7)])
    assert (told.arrays["w"].tolist(), elastic.centre["w"].tolist()) == ([6.0], [2.0])
    assert (told.steps, dict(told.beside)) == (7, {})
    (told,) = elastic.meet([held(-2.0)])
    assert (told.arrays["w"].tolist(), elastic.centre["w"].tolist()) == ([-1.0], [1.0])
    assert elastic.apart


def test_elastic_together_moves_the_centre_by_all_pulls_from_where_it_was():
    elastic = scheme("elastic", 2, begin=[1.0], beta=0.5)
    told = elastic.meet([held(5.0), held(-3.0, count=0)])
    assert ws(told) == [[4.0], [-2.0]]  # 5 - 4/4, -3 + 4/4
    assert elastic.centre["w"].tolist() == [2.0]  # the one without an update does not pull


def test_block_momentum_goes_on_by_its_last_move():
    block = scheme("block_momentum", 2, momentum=0.5)
    assert ws(block.meet([held(2.0), held(6.0)])) == [[4.0]] * 2
    # the mean has not moved from 4, so half of the last move, 4, remains
    assert ws(block.meet([held(4.0), held(4.0)])) == [[6.0]] * 2
    assert scheme("block_momentum", 4).momentum == 0.75  # type: ignore[attr-defined]


def test_nesterov_block_momentum_begins_ahead_of_the_centre():
    block = scheme("block_momentum", 2, momentum=0.5, nesterov=True)
    assert ws(block.meet([held(2.0), held(6.0)])) == [[6.0]] * 2  # 4 + 0.5 * 4
    assert block.centre["w"].tolist() == [4.0]
    # from 6 the mean moved to 7: d = 0.5 * 4 + 1 = 3, c = 4 + 3, ahead 7 + 1.5
    assert ws(block.meet([held(6.5), held(7.5)])) == [[8.5]] * 2
    assert block.centre["w"].tolist() == [7.0]
    assert block.apart


@pytest.mark.parametrize("nesterov", [False, True])
def test_block_momentum_over_many_meetings_is_what_its_paper_writes(nesterov):
    random = np.random.default_rng(3)
    n, momentum, lr = 3, 0.6, 0.8
    begin = random.normal(size=4)
    block = scheme("block_momentum", n, begin, momentum=momentum, lr=lr, nesterov=nesterov)
    w = w_g = begin  # Chen and Huo: W(t-1), and W_g(t-1), from which all begin block t
    delta = np.zeros(4)
    for _ in range(20):
        x = w_g + random.normal(size=(n, 4))
        told = block.meet([held(*own) for own in x])
        delta = momentum * delta + lr * (x.mean(axis=0) - w_g)
        w = w + delta
        w_g = w + momentum * delta if nesterov else w
        np.testing.assert_allclose(block.centre["w"], w, rtol=1e-12)
        np.testing.assert_allclose([s.arrays["w"] for s in told], [w_g] * n, rtol=1e-12)


def test_elastic_keeps_the_sum_of_centre_and_replicas():
    # What a replica loses the centre gains: x~ + sum x_j moves by gradients alone.
    random = np.random.default_rng(4)
    elastic = scheme("elastic", 3, beta=0.9)
    x = random.normal(size=(3, 1))
    total = x.sum() + elastic.centre["w"].sum()
    for at in random.integers(0, 3, 50):
        (told,) = elastic.meet([held(*x[at])])
        x[at] = told.arrays["w"]
        assert x.sum() + elastic.centre["w"].sum() == pytest.approx(total)
    assert np.ptp([*x, elastic.centre["w"]]) < 0.1  # and all have come together


def test_a_scheme_writes_to_nothing_that_it_was_given():
    for name in AVERAGING:
        made, x = scheme(name, 2, begin=[1.0]), held(2.0, mean=[1.0])
        for array in (*made.centre.values(), *x.arrays.values(), *x.beside.values()):
            array.flags.writeable = False
        made.meet([x, x])
        made.meet([x, x])
