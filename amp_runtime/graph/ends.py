"""Where rows of a graph end: what is predicted there, and what is only measured by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from amp_runtime.graph.wiring import Wiring, fields_of
from amp_runtime.nodes.end import End, PredictionForm
from amp_runtime.nodes.node import Kinds


def prediction_forms(wiring: Wiring, kinds: Kinds) -> Mapping[str, PredictionForm]:
    """Return how the predictions of each node are told that makes some."""
    found = {}
    for node in wiring.nodes:
        cls = kinds.load(node.kind, where=f"node {node.name!r}")
        if issubclass(cls, End) and cls.predicts(options := cls.read_options(node.options)):
            found[node.name] = cls.prediction_form(options)
    return found


def without_labels(wiring: Wiring, kinds: Kinds) -> Wiring:
    """Return the same graph for examples without the fields that losses only measure by."""
    nodes = []
    for node in wiring.nodes:
        cls = kinds.load(node.kind, where=f"node {node.name!r}")
        if issubclass(cls, End):
            labels = set(cls.label_fields(cls.read_options(node.options)))
            node = replace(node, fields=tuple(f for f in node.fields if f not in labels))
        nodes.append(node)
    fields = {name: wiring.fields[name] for name in fields_of(nodes)}
    return replace(wiring, nodes=tuple(nodes), fields=fields)
