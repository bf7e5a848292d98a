"""Which node runs in which worker, and on which core. Pure: cores are an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amp_runtime.errors import PlacementError
from amp_runtime.graph.wiring import Wiring


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """One worker process.

    Attributes:
        name: of the worker, its log file and its title in `ps`.
        nodes: numbers of the nodes that it hosts.
        cores: that it is pinned to.
    """

    name: str
    nodes: tuple[int, ...]
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    workers: tuple[WorkerPlace, ...]

    def peer_of(self) -> list[int]:
        """Return the peer number (worker number + 1) by node number."""
        pairs = {
            node: worker + 1 for worker, place in enumerate(self.workers) for node in place.nodes
        }
        return [pairs[node] for node in range(len(pairs))]

    def peer_name(self, peer: int) -> str:
        """Return what to call a peer in an error: the controller is peer 0, worker w w + 1."""
        if peer == 0:
            return "the controller"
        known = peer <= len(self.workers)
        return f"worker {self.workers[peer - 1].name!r}" if known else f"peer {peer}"


def process_per_node(wiring: Wiring, cores: Sequence[int]) -> Placement:
    """Give each node a worker of its own, and deal the cores by estimated load.

    The heaviest node comes first, and each goes to the core with the least load so
    far. More nodes than cores is normal.

    Args:
        cores: those that this process may use.
    Raises:
        PlacementError: there are none.
    """
    if not cores:
        raise PlacementError("no core to place workers on")
    load = dict.fromkeys(sorted(cores), 0.0)
    core_of = {}
    by_weight = sorted(range(len(wiring.nodes)), key=lambda i: -wiring.nodes[i].load)
    for number in by_weight:
        core = min(load, key=lambda c: load[c])
        core_of[number] = core
        load[core] += wiring.nodes[number].load
    return Placement(
        tuple(
            WorkerPlace(node.name, (number,), (core_of[number],))
            for number, node in enumerate(wiring.nodes)
        )
    )
