"""Checks on a whole graph: paths to an end, cycles, branches that meet; before replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amp_runtime.errors import (
    BranchesMeetError,
    NoPathToLossError,
    StatelessCycleError,
    UnconnectedPortError,
)
from amp_runtime.graph.wiring import Wiring


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
        changing: input ports, by number, whose rows leave with another state.
    Raises:
        StatelessCycleError: one does not; the cycle is shown.
    """
    cycle = _find_cycle(_successors(wiring, but_for=changing))
    if cycle:
        path = " -> ".join(wiring.nodes[i].name for i in (*cycle, cycle[0]))
        raise StatelessCycleError(
            f"no node changes the state in the cycle {path}",
            fix="put an isu into it: a state must be unique per visit of a node",
        )


def check_branches(wiring: Wiring, changing: frozenset[int]) -> None:
    """Two branches of a bcast must not meet in a phi with their states unchanged.

    Branches that a join has made one row again are one branch from there on. A split
    branches as a bcast does.

    Args:
        changing: input ports, by number, whose rows leave with another state.
    Raises:
        BranchesMeetError: they do; the bcast, the branches and the phi are named.
    """
    for number, node in enumerate(wiring.nodes):
        if node.kind not in ("bcast", "split"):
            continue
        came_by: dict[int, dict[str, _Stream]] = {}  # node -> its port -> whose rows come there
        order = _downstream(wiring, number, changing)
        for reached in (number, *order):
            arrived = came_by.get(reached, {})
            here = _Stream.together(reached, list(arrived.values()))
            if here.merged_at == reached and wiring.nodes[reached].kind == "phi":
                raise _branches_meet(wiring, number, reached, arrived)
            for output in wiring.nodes[reached].outputs:
                (into,) = wiring.targets[reached, output]
                if into in changing:
                    continue
                target, port = wiring.input_ports[into]
                stream = here if reached != number else _Stream((output,))
                came_by.setdefault(target, {})[port] = stream


@dataclass(frozen=True, slots=True)
class _Stream:
    """Rows downstream of a bcast: by which branches they came, and the node that joined them."""

    branches: tuple[str, ...]
    merged_at: int = -1

    @staticmethod
    def together(node: int, streams: Sequence[_Stream]) -> _Stream:
        """Return what leaves a node that these streams come to."""
        branches = tuple(dict.fromkeys(b for stream in streams for b in stream.branches))
        one = len(set(streams)) == 1
        return streams[0] if one else _Stream(branches, node)


def _branches_meet(
    wiring: Wiring, bcast: int, phi: int, arrived: Mapping[str, _Stream]
) -> BranchesMeetError:
    (port, stream), *others = arrived.items()
    other_port, other = next((p, s) for p, s in others if s != stream)
    branch, other_branch = next((a, b) for a in stream.branches for b in other.branches if a != b)
    return BranchesMeetError(
        f"its branches {branch!r} and {other_branch!r} meet in phi "
        f"{wiring.nodes[phi].name!r} (ports {port!r} and {other_port!r})",
        where=f"node {wiring.nodes[bcast].name!r} (kind {wiring.nodes[bcast].kind})",
        fix="join them with concat or add, or change the state of one",
    )


def _downstream(wiring: Wiring, start: int, changing: frozenset[int]) -> list[int]:
    """Return the nodes that rows of `start` reach with their state, each behind those before it.

    There is no cycle among them: `check_cycles` was here before.
    """
    successors = _successors(wiring, but_for=changing)
    order: list[int] = []
    seen = {start}
    stack = [(start, iter(sorted(successors[start])))]
    while stack:
        _, remaining = stack[-1]
        child = next((c for c in remaining if c not in seen), None)
        if child is None:
            order.append(stack.pop()[0])
        else:
            seen.add(child)
            stack.append((child, iter(sorted(successors[child]))))
    return order[-2::-1]


def _successors(wiring: Wiring, but_for: frozenset[int] = frozenset()) -> dict[int, set[int]]:
    """Return the nodes that each node's rows go to, other than by the input ports `but_for`."""
    successors: dict[int, set[int]] = {i: set() for i in range(len(wiring.nodes))}
    for (source, _), ports in wiring.targets.items():
        if source >= 0:
            successors[source] |= {wiring.input_ports[p][0] for p in ports if p not in but_for}
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
