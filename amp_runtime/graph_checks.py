"""Checks on a whole graph: paths to an end, cycles, branches that meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amp_runtime.errors import (
    BranchesMeetError,
    NoPathToLossError,
    StatelessCycleError,
    UnconnectedPortError,
)
from amp_runtime.wiring import Wiring


def no_rows_reach(where: str, ports: list[str]) -> UnconnectedPortError:
    """Return the error for input ports that no injected row can reach."""
    return UnconnectedPortError(
        f"no row can reach input port {ports[0]!r}",
        where=where,
        fix="draw a path to it from an input of the graph",
    )


def check_paths(wiring: Wiring) -> None:
    """Every node must lead to a loss or a sink.

    Raises:
        NoPathToLossError: a node's rows could never be answered.
    """
    successors = _successors(wiring)
    reaches = {i for i, node in enumerate(wiring.nodes) if node.is_end}
    while more := {i for i, next_ in successors.items() if i not in reaches and next_ & reaches}:
        reaches |= more
    for i, node in enumerate(wiring.nodes):
        if i not in reaches:
            raise NoPathToLossError(
                "no path leads from here to a loss or a sink",
                where=f"node {node.name!r} (kind {node.kind})",
                fix="rows must end in a loss or a sink",
            )


def check_cycles(wiring: Wiring, changing: frozenset[int]) -> None:
    """Every cycle must hold a node that changes the state.

    Args:
        changing: the nodes that do.
    Raises:
        StatelessCycleError: one does not; the cycle is shown.
    """
    cycle = _find_cycle(
        {i: next_ - changing for i, next_ in _successors(wiring).items() if i not in changing}
    )
    if cycle:
        path = " -> ".join(wiring.nodes[i].name for i in (*cycle, cycle[0]))
        raise StatelessCycleError(
            f"no node changes the state in the cycle {path}",
            fix="put an isu into it: a state must be unique per visit of a node",
        )


def check_branches(wiring: Wiring, changing: frozenset[int]) -> None:
    """Two branches of a bcast must not meet in a phi with their states unchanged.

    Raises:
        BranchesMeetError: they do; the bcast, the branches and the phi are named.
    """
    for number, node in enumerate(wiring.nodes):
        if node.kind != "bcast":
            continue
        reached: dict[int, tuple[str, str]] = {}  # phi -> (its port, our branch)
        for branch in node.outputs:
            for phi, port in _phi_ports(wiring, wiring.target[number, branch], changing):
                other_port, other_branch = reached.setdefault(phi, (port, branch))
                if other_branch != branch and other_port != port:
                    raise BranchesMeetError(
                        f"its branches {other_branch!r} and {branch!r} meet in phi "
                        f"{wiring.nodes[phi].name!r} (ports {other_port!r} and {port!r})",
                        where=f"node {node.name!r} (kind bcast)",
                        fix="join them with concat or add, or change the state of one",
                    )


def _phi_ports(wiring: Wiring, start: int, changing: frozenset[int]) -> Iterable[tuple[int, str]]:
    seen, to_visit, found = set(), [start], set()
    while to_visit:
        port = to_visit.pop()
        if port in seen:
            continue
        seen.add(port)
        node, name = wiring.input_ports[port]
        if node in changing:
            continue
        if wiring.nodes[node].kind == "phi":
            found.add((node, name))
        to_visit += [wiring.target[node, output] for output in wiring.nodes[node].outputs]
    return sorted(found)


def _successors(wiring: Wiring) -> dict[int, set[int]]:
    successors: dict[int, set[int]] = {i: set() for i in range(len(wiring.nodes))}
    for source, target in wiring.forward_channels():
        if source >= 0:
            successors[source].add(target)
    return successors


def _find_cycle(successors: Mapping[int, set[int]]) -> list[int]:
    """Return the nodes of one cycle in order, or []; iterative depth-first search."""
    finished: set[int] = set()
    for root in successors:
        path: list[int] = []
        on_path: set[int] = set()
        stack = [(root, iter(sorted(successors[root])))] if root not in finished else []
        if stack:
            path, on_path = [root], {root}
        while stack:
            node, remaining = stack[-1]
            child = next(remaining, None)
            if child is None:
                stack.pop()
                path.pop()
                on_path.discard(node)
                finished.add(node)
            elif child in on_path:
                return path[path.index(child) :]
            elif child not in finished and child in successors:
                stack.append((child, iter(sorted(successors[child]))))
                path.append(child)
                on_path.add(child)
    return []
