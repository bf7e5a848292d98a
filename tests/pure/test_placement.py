"""Which node goes where: the heaviest first, each to the core with the least load."""

from __future__ import annotations

from dataclasses import replace

import pytest
from wirings import chain, recurrent

from amp_runtime.errors import PlacementError
from amp_runtime.graph.placement import Placement, WorkerPlace, process_per_node


def loaded(*loads):
    wiring = recurrent()
    nodes = [replace(n, load=load) for n, load in zip(wiring.nodes, loads, strict=False)]
    return replace(wiring, nodes=tuple(nodes))


def cores_of(placement):
    return [place.cores for place in placement.workers]


def test_every_node_has_a_worker_of_its_name():
    placement = process_per_node(recurrent(), [0, 1, 2])
    names = [node.name for node in recurrent().nodes]
    assert [(w.name, w.nodes) for w in placement.workers] == [
        (n, (i,)) for i, n in enumerate(names)
    ]
    assert placement.peer_of() == list(range(1, 9))


def test_the_heaviest_node_comes_first_and_each_goes_where_the_load_is_least():
    # 9 -> core 2, 5 -> core 4, 4 -> core 4 (5 < 9), 3 -> core 2 (9 = 9), 1 -> core 4
    assert cores_of(process_per_node(loaded(1, 9, 3, 5, 4), [4, 2])) == [
        (4,), (2,), (2,), (4,), (4,),
    ]  # fmt: skip


def test_nodes_of_a_kind_with_more_work_weigh_more():
    load = {n.name: n.load for n in recurrent().nodes}
    assert load["linear-1"] > load["linear-2"] > load["loss"]
    assert load["loop"] == load["step"] == 1.0


def test_one_core_takes_all_and_no_core_is_refused():
    assert set(cores_of(process_per_node(recurrent(), [7]))) == {(7,)}
    with pytest.raises(PlacementError, match="no core to place workers on"):
        process_per_node(recurrent(), [])


def test_peers_are_numbered_from_one_and_found_by_node():
    placement = Placement((WorkerPlace("a", (2, 0), (0,)), WorkerPlace("b", (1,), (1,))))
    assert placement.peer_of() == [1, 2, 1]


def test_a_peer_is_called_by_its_worker():
    placement = process_per_node(chain(), [0])
    assert placement.peer_name(0) == "the controller"
    assert placement.peer_name(2) == "worker 'loss'"
    assert placement.peer_name(3) == "peer 3"
