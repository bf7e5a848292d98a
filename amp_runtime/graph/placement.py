"""Which node runs in which worker, and on which cores. Pure: cores are an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from amp_runtime.errors import PlacementError
from amp_runtime.graph.wiring import Wiring


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """One worker process.

    Attributes:
        name: of the worker, its log file and its title in `ps`.
        nodes: numbers of the nodes that it hosts, ascending.
        cores: that it is pinned to; as many threads has its BLAS.
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

    @property
    def shares_workers(self) -> bool:
        """Whether any worker hosts several nodes."""
        return any(len(place.nodes) > 1 for place in self.workers)


@dataclass(frozen=True, slots=True)
class Work:
    """What an example costs, estimated.

    Attributes:
        nodes_us: by node number: what the node computes, and its traffic with the controller.
        between_us: {(node, other node), the smaller first: what the rows between them cost
            each of the two, when they are in different workers}.
    """

    nodes_us: Sequence[float]
    between_us: Mapping[tuple[int, int], float] = field(default_factory=dict)

    def load_of(self, worker: int, worker_of: Sequence[int]) -> float:
        """Return what a worker does, given the worker of each node."""
        own = sum(us for us, at in zip(self.nodes_us, worker_of, strict=True) if at == worker)
        return own + sum(
            us
            for (node, other), us in self.between_us.items()
            if worker_of[node] != worker_of[other] and worker in (worker_of[node], worker_of[other])
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that somebody wants in one worker.

    Attributes:
        name: of the worker; '': to be found.
        nodes: numbers.
        cores: (): the one with the least load.
    """

    nodes: tuple[int, ...]
    cores: tuple[int, ...] = ()
    name: str = ""


def process_per_node(wiring: Wiring, cores: Sequence[int], work: Work) -> Placement:
    """Give each node a worker of its own, and deal the cores by estimated load.

    Raises:
        PlacementError: there are no cores.
    """
    return grouped(wiring, [], cores, work)


def grouped(wiring: Wiring, groups: Iterable[Group], cores: Sequence[int], work: Work) -> Placement:
    """Give each group a worker, and each node that no group names one of its own.

    Workers come in the order of their first nodes. Where no cores are given, the heaviest
    worker comes first, and each goes to the core with the least load so far: more workers
    than cores is normal.

    Args:
        cores: those that this process may use.
    Raises:
        PlacementError: there are none.
    """
    _check_some(cores)
    all_groups = list(groups)
    named = {node for group in all_groups for node in group.nodes}
    all_groups += [Group((node,)) for node in range(len(wiring.nodes)) if node not in named]
    all_groups.sort(key=lambda group: min(group.nodes))
    pairs = {node: w for w, group in enumerate(all_groups) for node in group.nodes}
    worker_of = [pairs[node] for node in range(len(pairs))]
    loads = [work.load_of(w, worker_of) for w in range(len(all_groups))]
    cores_of = _deal(all_groups, sorted(cores), loads)
    names = _names(wiring, all_groups)
    return Placement(
        tuple(
            WorkerPlace(name, tuple(sorted(group.nodes)), cores_of[w])
            for w, (name, group) in enumerate(zip(names, all_groups, strict=True))
        )
    )


def packed(wiring: Wiring, cores: Sequence[int], work: Work) -> Placement:
    """Make as many workers as cores, the busiest of them with as little to do as can be.

    Raises:
        PlacementError: there are no cores.
    """
    _check_some(cores)
    n_workers = min(len(cores), len(wiring.nodes))
    worker_of = divide(len(wiring.nodes), n_workers, work)
    groups = [
        Group(tuple(node for node, w in enumerate(worker_of) if w == worker))
        for worker in range(n_workers)
    ]
    return grouped(wiring, groups, cores, work)


def _check_some(cores: Sequence[int]) -> None:
    if not cores:
        raise PlacementError("no core to place workers on")


def divide(n_nodes: int, n_workers: int, work: Work) -> list[int]:
    """Return the worker of each node, so that the busiest has as little to do as can be.

    From two beginnings (the heaviest node first to where the load is least; the graph's
    order cut into equal loads) nodes are moved and pairs exchanged as long as that helps.
    What rows between workers cost is part of their load, so nodes that talk much come
    together.
    """
    beginnings = (_heaviest_first(n_nodes, n_workers, work), _in_order(n_nodes, n_workers, work))
    divisions = [_Division(beginning, n_workers, work) for beginning in beginnings]
    for division in divisions:
        division.improve()
    return min(divisions, key=lambda division: _cost(division.load)).worker_of


def _cost(loads: Iterable[float]) -> tuple[float, float]:
    """Return what is to be small: the largest load, and then what all do together.

    Rounded, so that the order in which a sum was made decides nothing.
    """
    known = list(loads)
    return round(max(known), 6), round(sum(known), 6)


def _heaviest_first(n_nodes: int, n_workers: int, work: Work) -> list[int]:
    load = [0.0] * n_workers
    worker_of = [0] * n_nodes
    for at, node in enumerate(sorted(range(n_nodes), key=lambda n: -work.nodes_us[n])):
        worker = at if at < n_workers else load.index(min(load))
        worker_of[node] = worker
        load[worker] += work.nodes_us[node]
    return worker_of


def _in_order(n_nodes: int, n_workers: int, work: Work) -> list[int]:
    share = sum(work.nodes_us) / n_workers
    worker_of, worker, before = [0] * n_nodes, 0, 0.0
    for node in range(n_nodes):
        full = before + work.nodes_us[node] / 2 > share * (worker + 1)
        all_needed = n_workers - 1 - worker == n_nodes - node
        if node and worker < n_workers - 1 and (full or all_needed):
            worker += 1
        worker_of[node] = worker
        before += work.nodes_us[node]
    return worker_of


class _Division:
    """Nodes divided between workers, none of which is without a node.

    Attributes:
        worker_of: by node.
        load: microseconds of an example, by worker.
    """

    def __init__(self, worker_of: list[int], n_workers: int, work: Work) -> None:
        self.worker_of = worker_of
        self._work = work
        self._talks: list[dict[int, float]] = [{} for _ in worker_of]
        for (node, other), cost in work.between_us.items():
            self._talks[node][other] = self._talks[other][node] = cost
        self.load = [work.load_of(w, worker_of) for w in range(n_workers)]
        self._size = [worker_of.count(w) for w in range(n_workers)]

    def improve(self) -> None:
        """Move and exchange nodes until nothing helps the busier of any two workers."""
        nodes, workers = range(len(self.worker_of)), range(len(self.load))
        while any(
            [
                *(self._try((node, worker)) for node in nodes for worker in workers),
                *(
                    self._try((a, self.worker_of[b]), (b, self.worker_of[a]))
                    for a in nodes
                    for b in range(a)
                ),
            ]
        ):
            pass

    def _try(self, *moves: tuple[int, int]) -> bool:
        """Move (node, worker) if that helps the busier of both workers; whether it did."""
        back = [(node, self.worker_of[node]) for node, _ in moves]
        pair = {moves[0][1], back[0][1]}
        if len(pair) == 1:
            return False
        before = _cost(self.load[w] for w in pair)
        for node, worker in moves:
            self._move(node, worker)
        if all(self._size[w] for w in pair) and _cost(self.load[w] for w in pair) < before:
            return True
        for node, worker in back:
            self._move(node, worker)
        return False

    def _move(self, node: int, worker: int) -> None:
        left, talks = self.worker_of[node], self._talks[node]
        self.worker_of[node] = worker
        for place, sign in ((left, -1), (worker, 1)):
            self._size[place] += sign
            within = sum(cost for other, cost in talks.items() if self.worker_of[other] == place)
            without = sum(talks.values()) - within
            # Who stays or was there begins, or need no longer, talk to another worker.
            self.load[place] += sign * (self._work.nodes_us[node] + without - within)


def _deal(
    groups: Sequence[Group], cores: Sequence[int], loads: Sequence[float]
) -> dict[int, tuple[int, ...]]:
    """Return the cores of each group: its own, or the one with the least load."""
    load = dict.fromkeys(cores, 0.0)
    cores_of = {}
    heaviest_first = sorted(range(len(groups)), key=lambda w: (not groups[w].cores, -loads[w]))
    for worker in heaviest_first:
        chosen = groups[worker].cores or (min(load, key=lambda core: load[core]),)
        cores_of[worker] = chosen
        for core in chosen:
            load[core] += loads[worker] / len(chosen)
    return cores_of


def _names(wiring: Wiring, groups: Sequence[Group]) -> list[str]:
    """Return a name for each worker: its own, that of its only node, or worker-1, ..."""
    taken = {node.name for node in wiring.nodes} | {group.name for group in groups}
    free = (name for n in range(1, 1 << 30) if (name := f"worker-{n}") not in taken)
    return [
        group.name or (wiring.nodes[group.nodes[0]].name if len(group.nodes) == 1 else next(free))
        for group in groups
    ]
