"""A config's `runtime.placement` to a checked placement of a model's nodes on cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amp_runtime.checking.rules import ConfigProblemsError, Path, Problem
from amp_runtime.config.schema import Config, PlacementSection
from amp_runtime.errors import nearest
from amp_runtime.graph.placement import (
    Group,
    Placement,
    Work,
    grouped,
    packed,
    process_per_node,
)
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.node import Kinds
from amp_runtime.prepare import Prepared
from amp_runtime.traffic import estimated_work

_HOST: Path = ("runtime", "placement", "host")


@dataclass(frozen=True, slots=True)
class Planned:
    """A placement, and what is expected of it.

    Attributes:
        shares: of the estimated work, traffic included, by worker; 1 in all.
    """

    placement: Placement
    shares: tuple[float, ...]

    def summary(self) -> str:
        """Return `8 nodes, one process each`, or in how many workers they are."""
        workers = self.placement.workers
        n_nodes = sum(len(place.nodes) for place in workers)
        if not self.placement.shares_workers:
            return f"{n_nodes} nodes, one process each"
        return f"{n_nodes} nodes in {len(workers)} worker{'s'[: len(workers) > 1]}"

    def lines(self, names: Sequence[str]) -> list[str]:
        """Return a line for each worker, if any hosts several nodes; `names` of all nodes."""
        if not self.placement.shares_workers:
            return []
        return [
            f"{place.name} on core{'s'[: len(place.cores) > 1]} "
            f"{', '.join(map(str, place.cores))}: "
            f"{', '.join(names[node] for node in place.nodes)}; "
            f"{share:.0%} of the work, as estimated"
            for place, share in zip(self.placement.workers, self.shares, strict=True)
        ]


def plan_placement(prepared: Prepared, kinds: Kinds, cores: Sequence[int]) -> Planned:
    """Place the nodes as the config says.

    Args:
        cores: those that this process may use.
    Raises:
        ConfigProblemsError: with all that is wrong with the groups of `host`.
        PlacementError: there are no cores.
    """
    config, wiring = prepared.config, prepared.wiring
    chosen = config.runtime.placement
    groups = _groups(config, chosen, wiring, cores) if isinstance(chosen, PlacementSection) else []
    examples = prepared.train if len(prepared.train) else prepared.valid
    work = estimated_work(wiring, kinds, examples, config.seed)
    match chosen:
        case "packed":
            placement = packed(wiring, cores, work)
        case "process_per_node":
            placement = process_per_node(wiring, cores, work)
        case _:
            placement = grouped(wiring, groups, cores, work)
    return Planned(placement, _shares(placement, work))


def _shares(placement: Placement, work: Work) -> tuple[float, ...]:
    worker_of = [peer - 1 for peer in placement.peer_of()]
    loads = [work.load_of(worker, worker_of) for worker in range(len(placement.workers))]
    return tuple(load / sum(loads) for load in loads)


def _groups(
    config: Config, chosen: PlacementSection, wiring: Wiring, cores: Sequence[int]
) -> list[Group]:
    if found := [Problem(path, said) for path, said in _problems(chosen, wiring, cores)]:
        raise ConfigProblemsError.of(config.placed(_HOST, found), config.place(""))
    return [
        Group(
            tuple(wiring.number[name] for name in host.nodes),
            tuple(host.cores or ()),
            host.name or "",
        )
        for host in chosen.host
    ]


def _problems(
    chosen: PlacementSection, wiring: Wiring, cores: Sequence[int]
) -> Iterator[tuple[Path, str]]:
    """Yield what is wrong with the groups, by position within `host`."""
    group_of: dict[str, int] = {}
    group_named: dict[str, int] = {}
    for g, host in enumerate(chosen.host):
        for n, node in enumerate(host.nodes):
            if node not in wiring.number:
                close, names = nearest(node, wiring.number), ", ".join(wiring.number)
                yield (g, "nodes", n), f"no node {node!r} in the model{close}; its nodes: {names}"
            elif node in group_of:
                yield (g, "nodes", n), f"node {node!r} is in host.{group_of[node]} already"
            group_of.setdefault(node, g)
        given = host.cores or ()
        for n, core in enumerate(given):
            if core not in cores:
                allowed = ", ".join(map(str, cores))
                said = f"this process may not use core {core}; it may use {allowed}"
                yield (g, "cores", n), said
            elif core in given[:n]:
                yield (g, "cores", n), f"core {core} is named twice"
        if host.name is None:
            continue
        if host.name in group_named:
            said = f"{host.name!r} is the name of host.{group_named[host.name]} already"
            yield (g, "name"), said
        elif host.name in wiring.number and host.nodes != [host.name]:
            yield (g, "name"), f"{host.name!r} is a node: a worker of its name hosts it alone"
        group_named.setdefault(host.name, g)
