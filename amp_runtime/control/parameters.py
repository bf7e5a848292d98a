"""Parameters of all nodes that have any, from a file or to one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from amp_runtime.errors import ParametersError, nearest
from amp_runtime.rows.spec import Array

NodeParameters: TypeAlias = Mapping[str, Mapping[str, Array]]
"""{node: {parameter: array}}."""


def check_nodes(
    parameters: NodeParameters, nodes: Collection[str], *, all_of_them: bool = True
) -> None:
    """Assert that there are parameters for each of `nodes` (or for some), and for no other.

    Raises:
        ParametersError: names all that are missing, and all that are too many.
    """
    missing = [node for node in nodes if all_of_them and node not in parameters]
    extra = [node for node in parameters if node not in nodes]
    faults = [f"no parameters for node {node!r}" for node in missing]
    faults += [f"parameters for {node!r}, which is no node{nearest(node, nodes)}" for node in extra]
    if faults:
        raise ParametersError(
            "; ".join(faults), fix="the model must be the one that the parameters come from"
        )
