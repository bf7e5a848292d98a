"""A graph while it is being built, and what passes its ports.

Specs are inferred from the inputs of the graph on; in a loop, a phi can tell what
leaves it from the one input that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amp_runtime.graph.asking import infer_said
from amp_runtime.graph.checks import no_rows_reach
from amp_runtime.graph.wiring import CONTROLLER_NODE, InputSpec
from amp_runtime.nodes.node import Node
from amp_runtime.rows.spec import PortSpec


@dataclass(frozen=True, slots=True)
class OutPort:
    """An output port of a node, or a controller input (node -1)."""

    node: int
    port: str


@dataclass(frozen=True, slots=True)
class InPort:
    node: int
    port: str


@dataclass(slots=True)
class Draft:
    """A node that was added; its ports follow from its options."""

    name: str
    kind: str
    cls: type[Node]
    options: Any
    training: dict[str, Any]
    where: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def infer(
    drafts: Sequence[Draft],
    edges: Sequence[tuple[OutPort, InPort]],
    graph_inputs: Sequence[InputSpec],
    dtype: str,
) -> tuple[list[dict[str, PortSpec]], list[Mapping[str, PortSpec]]]:
    """Return what comes to each input port and what leaves each output port, by node.

    Raises:
        UnconnectedPortError: no row can reach a port.
        ShapeMismatchError, SchemaMismatchError: what comes to a node does not fit it.
    """
    inputs: list[dict[str, PortSpec]] = [{} for _ in drafts]
    outputs: list[Mapping[str, PortSpec]] = [{} for _ in drafts]
    known = {OutPort(CONTROLLER_NODE, spec.name): spec.spec for spec in graph_inputs}
    changed = True
    while changed:
        changed = False
        for out, into in edges:
            if out in known and into.port not in inputs[into.node]:
                inputs[into.node][into.port] = known[out]
                changed = True
        for number, draft in enumerate(drafts):
            complete = len(inputs[number]) == len(draft.inputs)
            enough = complete or (draft.cls.infers_from_any and inputs[number])
            if not enough or outputs[number]:
                continue
            outputs[number] = _infer_node(draft, inputs[number], dtype)
            known |= {OutPort(number, port): s for port, s in outputs[number].items()}
            changed = changed or bool(outputs[number])
    for number, draft in enumerate(drafts):
        missing = [port for port in draft.inputs if port not in inputs[number]]
        if missing:
            raise no_rows_reach(draft.where, missing)
        inputs[number] = {port: inputs[number][port] for port in draft.inputs}
        _infer_node(draft, inputs[number], dtype)  # now with every input: mismatches show
    return inputs, outputs


def _infer_node(draft: Draft, inputs: Mapping[str, PortSpec], dtype: str) -> Mapping[str, PortSpec]:
    return infer_said(draft.cls, draft.options, inputs, dtype, draft.where)
