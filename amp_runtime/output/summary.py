"""What a config makes: each node with its ports, parameters and place."""

from __future__ import annotations

from collections.abc import Mapping

from amp_runtime.control.parameters import NodeParameters
from amp_runtime.errors import AmpError, GraphError, StartError, blamed
from amp_runtime.graph.placement import Placement
from amp_runtime.graph.wiring import Wiring
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import NodeHost
from amp_runtime.nodes.node import Kinds
from amp_runtime.output.table import text_table
from amp_runtime.rows.spec import PortSpec

HEADERS = ("node", "kind", "takes", "gives", "updates with", "parameters", "core")
LEFT = 5


def parameter_shapes(
    wiring: Wiring, kinds: Kinds, seed: int, parameters: NodeParameters | None = None
) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return {node: {parameter: shape}}: the nodes are made as a worker makes them.

    Args:
        parameters: of nodes that do not begin with drawn ones.
    Raises:
        GraphError: a node cannot be made.
        ParametersError: it cannot begin with its `parameters`.
    """
    peer = 1
    try:
        host = NodeHost(wiring, kinds, HostSettings([peer] * len(wiring.nodes), seed), peer)
    except AmpError as error:
        said = blamed(error, GraphError)
        if isinstance(error, StartError):  # here none starts: it is the graph that is wrong
            said = GraphError(said.what, where=said.where, fix=said.fix)
        raise said from error.__cause__
    for node in host.parameterised():
        if parameters and node.context.ir_name in parameters:
            node.set_parameters(parameters[node.context.ir_name])
    return {
        node.name: {name: array.shape for name, array in node.parameters.items()}
        for node in host.parameterised()
    }


def graph_summary(
    wiring: Wiring,
    placement: Placement,
    shapes: Mapping[str, Mapping[str, tuple[int, ...]]],
) -> str:
    """Return a table of all nodes, and what the controller injects."""
    core_of = {
        number: ",".join(map(str, place.cores))
        for place in placement.workers
        for number in place.nodes
    }
    total, rows = 0, []
    for number, node in enumerate(wiring.nodes):
        arrays = shapes.get(node.name, {})
        size = sum(_size(shape) for shape in arrays.values())
        total += 0 if node.replica else size
        optimizer = node.training.get("optimizer", {})
        rows.append(
            (
                node.name,
                node.kind,
                _ports(node.inputs),
                _ports(node.outputs),
                f"{optimizer['name']} lr {optimizer['lr']:g}" if "lr" in optimizer else "-",
                f"{size:,}" if arrays else "-",
                core_of[number],
            )
        )
    injected = [
        f"input {spec.name}: "
        f"{'one row an example' if spec.each.startswith('@') else f'one row per {spec.each}'}, "
        f"{spec.spec}"
        for spec in wiring.inputs
    ]
    n_nodes, n_replicas = wiring.n_ir_nodes, len(wiring.nodes)
    counted = f", {n_replicas} with replicas" if n_replicas > n_nodes else ""
    ends = f"{n_nodes} nodes{counted}, {total:,} parameters in {wiring.dtype}"
    return "\n".join([*injected, "", *text_table(HEADERS, rows, LEFT), ends])


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _ports(ports: Mapping[str, PortSpec]) -> str:
    """Return as in `x [128]`, `bit [8], hidden [32]`; the rows and the usual dtype go unsaid."""
    return ", ".join(f"{name} {_arrays(spec)}" for name, spec in ports.items()) or "-"


def _arrays(spec: PortSpec) -> str:
    said = [
        f"{array.dtype if array.dtype == 'int32' else ''}{list(array.shape)}"
        for array in spec.arrays.values()
    ]
    return "+".join(said)
