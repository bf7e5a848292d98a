"""What stands for a node while its graph is built, and what an edge is drawn between."""

from __future__ import annotations

from collections.abc import Sequence

from amp_runtime.errors import GraphError, UnknownPortError, nearest
from amp_runtime.graph.draft import Draft, InPort, OutPort


class NodeHandle:
    """A node while the graph is being built: `handle["port"]` is an output port.

    Attributes:
        number: of the node in its graph.

    Args:
        drafts: all nodes of its graph, those that are still to be added too.
    """

    def __init__(self, drafts: Sequence[Draft], number: int) -> None:
        self._drafts = drafts
        self.number = number

    @property
    def draft(self) -> Draft:
        return self._drafts[self.number]

    def __getitem__(self, port: str) -> OutPort:
        _check_port(port, self.draft.outputs, "output", self.draft.where)
        return OutPort(self.number, port)

    def port(self, name: str) -> InPort:
        """Return input port `name`, to connect it later (a loop's way back)."""
        _check_port(name, self.draft.inputs, "input", self.draft.where)
        return InPort(self.number, name)

    def is_of(self, drafts: Sequence[Draft]) -> bool:
        """Whether it is of the graph with these nodes."""
        return self._drafts is drafts


def source_of(end: OutPort | NodeHandle, drafts: Sequence[Draft], target: object) -> OutPort:
    """Return the output port that an edge to `target` begins at; a handle's only one.

    Raises:
        GraphError: it is none of the graph with the nodes `drafts`, or one of several.
    """
    _check_end(end, OutPort, 'handle["port"]', f"an edge to {target!r:.80}", drafts)
    if isinstance(end, OutPort):
        return end
    return OutPort(end.number, _only(end.draft, end.draft.outputs, "output", "handle['port']"))


def target_of(end: InPort | NodeHandle, drafts: Sequence[Draft], source: object) -> InPort:
    """Return the input port that an edge from `source` ends at; a handle's only one.

    Raises:
        GraphError: it is none of the graph with the nodes `drafts`, or one of several.
    """
    _check_end(end, InPort, 'handle.port("port")', f"an edge from {source!r:.80}", drafts)
    if isinstance(end, InPort):
        return end
    return InPort(end.number, _only(end.draft, end.draft.inputs, "input", "handle.port('port')"))


def _check_end(end: object, cls: type, written: str, what: str, drafts: Sequence[Draft]) -> None:
    """Assert that an end of an edge is a port of `cls`, or a node, of this graph."""
    foreign = isinstance(end, NodeHandle) and not end.is_of(drafts)
    if foreign or not isinstance(end, NodeHandle | cls):
        raise GraphError(
            f"{what}: {end!r:.80} is {'of another graph' if foreign else 'no such end'}",
            fix=f"draw from what graph.input, graph.add or handle[...] return; here: {written}",
        )


def _only(draft: Draft, ports: tuple[str, ...], way: str, written: str) -> str:
    if len(ports) != 1:
        raise UnknownPortError(
            f"has {way} ports {list(ports)}, so name one",
            where=draft.where,
            fix=f"write {written}",
        )
    return ports[0]


def _check_port(name: str, ports: tuple[str, ...], way: str, where: str) -> None:
    if name not in ports:
        raise UnknownPortError(
            f"no {way} port {name!r}{nearest(name, ports)}",
            where=where,
            fix=f"its {way} ports are {list(ports)}",
        )
