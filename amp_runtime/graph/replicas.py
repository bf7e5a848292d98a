"""Replicas of nodes with parameters: as many nodes, whose instances are dealt by number."""

from __future__ import annotations

from dataclasses import replace

from amp_runtime.graph.wiring import CONTROLLER_NODE, Edge, NodeSpec, Wiring


def replicated(wiring: Wiring) -> Wiring:
    """Return a graph that holds each node as often as its `replicas` say, one behind the other."""
    nodes: list[NodeSpec] = []
    copies: dict[int, range] = {CONTROLLER_NODE: range(CONTROLLER_NODE, 0)}
    for number, node in enumerate(wiring.nodes):
        copies[number] = range(len(nodes), len(nodes) + node.replicas)
        if node.replicas == 1:
            nodes.append(node)
        else:
            nodes += [
                replace(node, name=f"{node.name}.{n}", replica=n) for n in range(node.replicas)
            ]
    # The targets of an output stand in order of replica: `Wiring.targets` tells them so.
    edges = [
        Edge(source, edge.source_port, target, edge.target_port)
        for edge in wiring.edges
        for source in copies[edge.source]
        for target in copies[edge.target]
    ]
    return replace(wiring, nodes=tuple(nodes), edges=tuple(edges))
