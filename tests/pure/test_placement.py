"""Which node goes where: workers and cores by estimated work, traffic between them included."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wirings import chain, recurrent

from amp_runtime.errors import PlacementError
from amp_runtime.graph.placement import (
    Group,
    Placement,
    Work,
    WorkerPlace,
    divide,
    grouped,
    packed,
    process_per_node,
)

NAMES = [node.name for node in recurrent().nodes]
EQUAL = Work([1.0] * len(NAMES))


def cores_of(placement):
    return [place.cores for place in placement.workers]


def named(placement):
    """Return [(worker, names of its nodes, cores)]."""
    return [(w.name, [NAMES[n] for n in w.nodes], w.cores) for w in placement.workers]


def test_every_node_has_a_worker_of_its_name():
    placement = process_per_node(recurrent(), [0, 1, 2], EQUAL)
    assert [(w.name, w.nodes) for w in placement.workers] == [
        (n, (i,)) for i, n in enumerate(NAMES)
    ]
    assert placement.peer_of() == list(range(1, 9))
    assert not placement.shares_workers


def test_the_heaviest_worker_comes_first_and_each_goes_where_the_load_is_least():
    # 9 -> core 2, 5 -> core 4, 4 -> core 4 (5 < 9), 3 -> core 2 (9 = 9), 1 -> core 4, 0 ...
    work = Work([1, 9, 3, 5, 4, 0, 0, 0])
    assert cores_of(process_per_node(recurrent(), [4, 2], work))[:5] == [
        (4,), (2,), (2,), (4,), (4,),
    ]  # fmt: skip


def test_traffic_is_load_of_both_ends():
    # node 0: 1 + 8, node 1: 1 + 8, node 2: 7, node 3: 2
    work = Work([1, 1, 7, 2, 0, 0, 0, 0], {(0, 1): 8.0})
    assert cores_of(process_per_node(recurrent(), [0, 1], work))[:4] == [(0,), (1,), (0,), (1,)]


def test_nodes_of_a_kind_with_more_work_weigh_more():
    load = {n.name: n.load for n in recurrent().nodes}
    assert load["linear-1"] > load["linear-2"] > load["joined"] > load["loop"]
    assert load["loop"] == load["step"] == load["more"]


def test_one_core_takes_all_and_no_core_is_refused():
    assert set(cores_of(process_per_node(recurrent(), [7], EQUAL))) == {(7,)}
    for place in (process_per_node, packed):
        with pytest.raises(PlacementError, match="no core to place workers on"):
            place(recurrent(), [], EQUAL)


# ------------------------------------------------------------------------------- groups


def test_a_group_shares_a_worker_and_all_others_have_their_own():
    groups = [Group((3, 6), (1, 0), "heavy"), Group((2, 0))]
    placement = grouped(recurrent(), groups, [0, 1], EQUAL)
    assert named(placement) == [
        ("worker-1", ["embedding", "joined"], (0,)),
        ("loop", ["loop"], (1,)),
        ("heavy", ["linear-1", "linear-2"], (1, 0)),
        ("step", ["step"], (1,)),
        ("more", ["more"], (0,)),
        ("loss", ["loss"], (1,)),
    ]
    assert placement.peer_of() == [1, 2, 1, 3, 4, 5, 3, 6]
    assert placement.shares_workers


def test_a_made_up_name_is_none_that_a_group_has():
    groups = [Group((0, 1)), Group((2, 3), name="worker-1")]
    workers = grouped(recurrent(), groups, [0], EQUAL).workers
    assert [w.name for w in workers][:2] == ["worker-2", "worker-1"]


def test_groups_with_cores_are_dealt_first_and_the_rest_goes_where_there_is_room():
    # core 0 has the group's 3; 2 -> core 1, 2 -> core 1, 1 -> core 0
    work = Work([1, 1, 1, 2, 2, 1, 0, 0])
    placement = grouped(recurrent(), [Group((0, 1, 2), (0,))], [0, 1], work)
    assert cores_of(placement)[:4] == [(0,), (1,), (1,), (0,)]


# ------------------------------------------------------------------------------- packed


def test_packed_makes_as_many_workers_as_cores_and_no_more_than_nodes():
    for n_cores, n_workers in ((1, 1), (2, 2), (3, 3), (8, 8), (20, 8)):
        placement = packed(recurrent(), range(n_cores), EQUAL)
        assert len(placement.workers) == n_workers
        assert len({place.cores for place in placement.workers}) == n_workers
        assert sorted(n for place in placement.workers for n in place.nodes) == list(range(8))


def test_packed_deals_work_evenly():
    work = Work([4, 1, 5, 6, 1, 1, 1, 1])
    placement = packed(recurrent(), [0, 1], work)
    worker_of = [peer - 1 for peer in placement.peer_of()]
    assert [work.load_of(w, worker_of) for w in (0, 1)] == [10, 10]


def test_packed_keeps_together_who_talks_much():
    # a ring of equal nodes: two arcs cut it twice, and everything else more often
    work = Work([1.0] * 8, {(min(n, (n + 1) % 8), max(n, (n + 1) % 8)): 0.5 for n in range(8)})
    placement = packed(recurrent(), [0, 1], work)
    worker_of = [peer - 1 for peer in placement.peer_of()]
    assert [work.load_of(w, worker_of) for w in (0, 1)] == [5, 5]


@pytest.mark.parametrize(
    ("traffic_us", "together"),
    [(0.9, ["linear-1"]), (1.1, ["joined", "linear-1", "step"])],  # 31.8 and not 32; 32, not 32.2
)
def test_packed_joins_a_heavy_node_with_others_where_that_spares_it_work(traffic_us, together):
    work = Work([1, 1, 1, 30, 1, 1, 1, 1], {(2, 3): traffic_us, (3, 4): traffic_us})
    placement = packed(recurrent(), [0, 1], work)
    assert together in [nodes for _, nodes, _ in named(placement)]


@st.composite
def works(draw) -> Work:
    n = draw(st.integers(2, 6))
    numbers = st.integers(0, 9).map(float)
    pairs = list(itertools.combinations(range(n), 2))
    return Work(
        draw(st.lists(numbers, min_size=n, max_size=n)),
        draw(st.dictionaries(st.sampled_from(pairs), numbers)),
    )


@given(works(), st.integers(1, 6))
def test_loads_are_kept_right_and_no_move_of_one_node_would_help(work, n_workers):
    n_nodes = len(work.nodes_us)
    n_workers = min(n_workers, n_nodes)
    worker_of = divide(n_nodes, n_workers, work)
    assert sorted(set(worker_of)) == list(range(n_workers))
    busiest = max(work.load_of(w, worker_of) for w in range(n_workers))
    for node, worker in itertools.product(range(n_nodes), range(n_workers)):
        moved = [*worker_of]
        moved[node] = worker
        pair = {worker, worker_of[node]}
        if len(pair) == 2 and worker_of[node] in moved:
            before = max(work.load_of(w, worker_of) for w in pair)
            assert max(work.load_of(w, moved) for w in pair) >= before - 1e-6, (node, worker)
    assert busiest <= sum(work.nodes_us) + 2 * sum(work.between_us.values())


def test_a_division_of_a_hundred_nodes_is_found_at_once():
    n = 100
    work = Work(
        [1.0 + (7 * i) % 11 for i in range(n)], {(i, i + 1): 0.5 + i % 3 for i in range(n - 1)}
    )
    worker_of = divide(n, 4, work)
    loads = [work.load_of(w, worker_of) for w in range(4)]
    assert max(loads) < 1.05 * sum(work.nodes_us) / 4 + 6


def test_peers_are_numbered_from_one_and_found_by_node():
    placement = Placement((WorkerPlace("a", (2, 0), (0,)), WorkerPlace("b", (1,), (1,))))
    assert placement.peer_of() == [1, 2, 1]


def test_a_peer_is_called_by_its_worker():
    placement = process_per_node(chain(), [0], Work([1.0, 1.0]))
    assert placement.peer_name(0) == "the controller"
    assert placement.peer_name(2) == "worker 'loss'"
    assert placement.peer_name(3) == "peer 3"
