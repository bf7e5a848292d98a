"""Rows of several ports are matched by key, whatever their order and company."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.errors import DuplicateStateError
from amp_runtime.rows.join import Join, KeyIndex
from amp_runtime.rows.stash import Stash


def keys(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_a_key_index_finds_what_was_inserted_and_not_removed():
    index = KeyIndex()
    assert index.find(keys(5))[1].tolist() == [False]
    index.insert(keys(2, 7, 9), keys(20, 70, 90))
    index.insert(keys(1, 8), keys(10, 80))
    index.remove(keys(2, 9))
    values, found = index.find(keys(9, 8, 7, 100, 1, 0))
    assert found.tolist() == [False, True, True, False, True, False]
    assert values.tolist() == [0, 80, 70, 0, 10, 0]
    assert len(index) == 3


def test_the_row_that_comes_last_completes_its_entry():
    join = Join(("a", "b", "c"), Stash("n"))
    a = join.arrive(0, keys(30, 10, 20))
    assert a.complete.tolist() == [False] * 3
    b = join.arrive(1, keys(10, 30))
    assert b.positions.tolist() == a.positions[[1, 0]].tolist()
    c = join.arrive(2, keys(20, 30))
    assert c.complete.tolist() == [False, True]
    assert join.waiting == 2
    assert join.arrive(1, keys(20)).complete.tolist() == [True]
    assert join.arrive(2, keys(10)).complete.tolist() == [True]
    assert join.waiting == 0


def test_a_key_may_come_again_after_its_entry_is_complete():
    stash = Stash("n")
    join = Join(("a", "b"), stash)
    first = join.arrive(0, keys(4)).positions
    join.arrive(1, keys(4))
    again = join.arrive(0, keys(4))
    assert again.positions.tolist() != first.tolist()
    assert not again.complete.any()


@pytest.mark.parametrize("batches", [[[1, 2, 1]], [[1, 2], [3, 1]]])
def test_a_second_row_with_one_key_on_one_port_is_refused_by_node_and_port(batches):
    join = Join(("left", "right"), Stash("joined"))
    *earlier, last = batches
    for batch in earlier:
        join.arrive(1, keys(*batch))
    with pytest.raises(DuplicateStateError, match="node 'joined', port 'right': a second row"):
        join.arrive(1, keys(*last))


def test_an_entry_starts_empty_where_its_position_was_used_before():
    stash = Stash("n", capacity=1)
    join = Join(("a", "b"), stash)
    join.arrive(0, keys(1))
    position = join.arrive(1, keys(1)).positions
    stash.free(stash.answer(stash.slots(position)))
    arrival = join.arrive(0, keys(2))
    assert arrival.positions.tolist() == position.tolist()
    assert not arrival.complete.any()


@given(st.randoms(use_true_random=False), st.integers(1, 12), st.integers(1, 4))
def test_any_order_of_arrival_completes_each_key_once(random, n_keys, n_ports):
    arrivals = [(port, key) for port in range(n_ports) for key in range(n_keys)]
    random.shuffle(arrivals)
    stash = Stash("n", capacity=2)
    join = Join(tuple(map(str, range(n_ports))), stash)
    position_of, seen = {}, dict.fromkeys(range(n_keys), 0)
    while arrivals:
        port = arrivals[0][0]
        size = random.randint(1, 4)
        batch = [a for a in arrivals if a[0] == port][:size]
        arrivals = [a for a in arrivals if a not in batch]
        arrival = join.arrive(port, keys(*(key for _, key in batch)))
        for (_, key), position, complete in zip(
            batch, arrival.positions.tolist(), arrival.complete.tolist(), strict=True
        ):
            assert position_of.setdefault(key, position) == position
            seen[key] += 1
            assert complete == (seen[key] == n_ports)
        assert join.waiting == sum(0 < n < n_ports for n in seen.values())
    assert len(set(position_of.values())) == n_keys
    assert join.waiting == 0
