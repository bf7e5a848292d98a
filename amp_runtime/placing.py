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
        n_ir_nodes: of the model, replicas counted once.
    """

    placement: Placement
    shares: tuple[float, ...]
    n_ir_nodes: int

    def summary(self) -> str:
        """Return `8 nodes, one process each`, or in how many workers they are."""
        workers = self.placement.workers
        n_nodes = sum(len(place.nodes) for place in workers)
        counted = f", {n_nodes} with replicas" if n_nodes > self.n_ir_nodes else ""
        if not self.placement.shares_workers:
            return f"{self.n_ir_nodes} nodes{counted}, one process each"
        joint = f"{counted}," if counted else ""
        return f"{self.n_ir_nodes} nodes{joint} in {len(workers)} worker{'s'[: len(workers) > 1]}"

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
    return Planned(placement, _shares(placement, work), wiring.n_ir_nodes)


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
            tuple(number for name in host.nodes for number in wiring.named(name)),
            tuple(host.cores or ()),
            host.name or "",
        )
        for host in chosen.host
    ]


def _problems(
    chosen: PlacementSection, wiring: Wiring, cores: Sequence[int]
) -> Iterator[tuple[Path, str]]:
    """Yield what is wrong with the groups, by position within `host`."""
    group_of: dict[int, int] = {}
    group_named: dict[str, int] = {}
    for g, host in enumerate(chosen.host):
        for n, node in enumerate(host.nodes):
            numbers = wiring.named(node)
            taken = next((number for number in numbers if number in group_of), None)
            if not numbers:
                close, names = nearest(node, wiring.number), ", ".join(wiring.number)
                yield (g, "nodes", n), f"no node {node!r} in the model{close}; its nodes: {names}"
            elif taken is not None:
                named = wiring.nodes[taken].name
                yield (g, "nodes", n), f"node {named!r} is in host.{group_of[taken]} already"
            for number in numbers:
                group_of.setdefault(number, g)
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
        elif wiring.named(host.name) and host.nodes != [host.name]:
            yield (g, "name"), f"{host.name!r} is a node: a worker of its name hosts it alone"
        group_named.setdefault(host.name, g)
