"""A finished run and a file of examples to what predicting needs; labels are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from amp_runtime.config.schema import Config
from amp_runtime.control.parameters import NodeParameters, check_nodes
from amp_runtime.control.stages import Split
from amp_runtime.data import OwnReader, read_examples, read_examples_with
from amp_runtime.data.about import SILENT
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.errors import UsageError
from amp_runtime.graph.ends import prediction_forms, without_labels
from amp_runtime.graph.wiring import PerExample, Wiring
from amp_runtime.nodes.node import Evaluation, Kinds
from amp_runtime.prepare import Prepared, check_state_fits, controller_settings
from amp_runtime.rows.spec import POSITION, ArraySpec

_NUMBER = ArraySpec((), "int32")


def prepare_predictions(
    config: Config,
    wiring: Wiring,
    parameters: NodeParameters,
    vocabularies: Mapping[str, Sequence[str]],
    file: Path,
    kinds: Kinds,
    reader: OwnReader | None = None,
) -> Prepared:
    """Read a file of examples, and make a run of them that predicts.

    Args:
        config, wiring, parameters, vocabularies: of the finished run.
        file: see `data.read_examples`.
        reader: a function of the user's that reads it.
    Raises:
        ParametersError: the parameters are those of another graph.
        UsageError: no node of the graph predicts.
        DataError: the file is wrong, with its line.
        GraphError: an example's state does not fit the bits declared for it.
    """
    check_nodes(parameters, wiring.parameterised)
    if not prediction_forms(wiring, kinds):
        raise UsageError(
            "the model has no loss, nor a sink with `predict: true`, whose rows would be told",
            fix="add one to the model, and train it",
        )
    wiring = without_labels(wiring, kinds)
    form = example_form(wiring)
    if reader is not None:
        read = read_examples_with(reader, file, form, vocabularies)
    else:
        read = read_examples(config.data.source, config.data.options, file, form, vocabularies)
    dataset = read.astype(wiring.dtype)
    check_state_fits(config, wiring, dataset)
    settings = replace(
        controller_settings(config), evaluate=Split.FILE, evaluation=Evaluation.PREDICTIONS
    )
    quiet = replace(dataset, about=SILENT)
    return Prepared(config, wiring, quiet, dataset, settings, parameters)


def example_form(wiring: Wiring) -> ExampleForm:
    """Return what an example must hold to go through a graph."""
    fields: dict[str, ArraySpec | None] = {}
    alike, single = [], []

    def declare(name: str, spec: ArraySpec) -> None:
        if name.startswith("len("):
            fields.setdefault(name[4:-1], None)
        else:
            fields[name] = spec

    for spec in wiring.inputs:
        arrays = {f: spec.spec.arrays[a] for a, f in spec.payload.items() if f is not None}
        columns = [c for c in spec.state.values() if isinstance(c, str) and c != POSITION]
        sources = {**dict.fromkeys(columns, _NUMBER), **arrays}
        for name, array_spec in sources.items():
            declare(name, array_spec)
        own = [name for name in sources if not name.startswith("len(")]
        if spec.each == PerExample:
            single += own
        else:
            fields.setdefault(spec.each, None)
            alike.append(list(dict.fromkeys([spec.each, *own])))
    for name, array_spec in wiring.fields.items():
        declare(name, array_spec)
    at_least = {spec.each: spec.at_least for spec in wiring.inputs if spec.at_least}
    return ExampleForm(fields, alike, single, at_least)
