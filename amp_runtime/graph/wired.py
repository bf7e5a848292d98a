"""From nodes and edges as they were drawn to a checked `Wiring`, still without replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from amp_runtime.errors import ShapeMismatchError, UnconnectedPortError
from amp_runtime.graph.asking import asking, load_said, names_said
from amp_runtime.graph.checks import check_branches, check_cycles, check_paths
from amp_runtime.graph.draft import Draft, InPort, OutPort, infer
from amp_runtime.graph.example_fields import ExampleFields
from amp_runtime.graph.training_options import plain_options
from amp_runtime.graph.wiring import CONTROLLER_NODE, Edge, InputSpec, NodeSpec, Wiring, fields_of
from amp_runtime.names import state_function, structure_fields
from amp_runtime.rows.spec import PortSpec

Edges: TypeAlias = Sequence[tuple[OutPort, InPort]]


def check_connected(
    drafts: Sequence[Draft], edges: Edges, graph_inputs: Sequence[InputSpec]
) -> None:
    """Assert that an edge is drawn to and from each port, and from each input.

    Raises:
        UnconnectedPortError: none is.
    """
    drawn_to = {into for _, into in edges}
    drawn_from = {out for out, _ in edges}
    for number, draft in enumerate(drafts):
        for port in draft.inputs:
            if InPort(number, port) not in drawn_to:
                raise UnconnectedPortError(
                    f"nothing is drawn to input port {port!r}", where=draft.where
                )
        for port in draft.outputs:
            if OutPort(number, port) not in drawn_from:
                raise UnconnectedPortError(
                    f"output port {port!r} leads nowhere",
                    where=draft.where,
                    fix="connect it, to a sink if nobody needs its rows",
                )
    for spec in graph_inputs:
        if OutPort(CONTROLLER_NODE, spec.name) not in drawn_from:
            raise UnconnectedPortError("leads nowhere", where=f"input {spec.name!r}")


def wired(
    drafts: Sequence[Draft],
    edges: Edges,
    graph_inputs: Sequence[InputSpec],
    examples: ExampleFields,
    dtype: str,
    batch: int,
) -> Wiring:
    """Infer what passes each port, and check the whole graph.

    Raises:
        GraphError: a subclass names the check that failed.
    """
    inputs, outputs = infer(drafts, edges, graph_inputs, dtype)
    nodes = []
    for number, draft in enumerate(drafts):
        needed = _needed_fields(draft, inputs[number], examples)
        nodes.append(
            NodeSpec(
                name=draft.name,
                kind=draft.kind,
                options=plain_options(draft.options),
                inputs=inputs[number],
                outputs=outputs[number],
                fields=needed,
                training=draft.training,
                transparent=draft.cls.transparent,
                one_to_one=draft.cls.one_to_one,
                parameterised=draft.cls.parameterised,
                is_end=draft.cls.is_end,
                load=load_said(draft.cls, draft.options, inputs[number], draft.where),
            )
        )
    drawn = tuple(Edge(o.node, o.port, i.node, i.port) for o, i in edges)
    wiring = Wiring(
        nodes=tuple(nodes),
        inputs=tuple(graph_inputs),
        edges=drawn,
        fields={name: examples.spec(name) for name in fields_of(nodes)},
        dtype=dtype,
        batch=batch,
    )
    changing = frozenset(
        number
        for number, (node, port) in enumerate(wiring.input_ports)
        if (cls := drafts[node].cls).changes_state and port not in cls.keeps_state
    )
    check_paths(wiring)
    check_cycles(wiring, changing)
    check_branches(wiring, changing)
    return wiring


def _needed_fields(
    draft: Draft, inputs: Mapping[str, PortSpec], examples: ExampleFields
) -> tuple[str, ...]:
    """Return the structure fields that a node needs, checked by its kind."""
    cls = draft.cls
    needed = list(names_said(cls, "fields", draft.options, draft.where))
    for name in names_said(cls, "state_functions", draft.options, draft.where):
        needed += structure_fields(state_function(name, draft.where))
    fields = {field: examples.spec(field, draft.where) for field in needed}
    try:
        with asking(cls, "check_fields", draft.where):
            cls.check_fields(draft.options, inputs, fields)
    except ShapeMismatchError as error:
        raise error.at(draft.where) from None
    return tuple(fields)
