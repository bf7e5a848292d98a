"""`check CONFIG [key=value ...]`: what a run would be, without one."""

from __future__ import annotations

import argparse

from amp_runtime.commands import node_kinds, takes_config

arguments = takes_config


def command(given: argparse.Namespace) -> None:
    """Print the resolved CONFIG, its graph and its placement; rehearse one instance."""
    from amp_runtime.commands.running import place
    from amp_runtime.errors import AmpError
    from amp_runtime.output.recorded_delays import with_recorded_delays
    from amp_runtime.output.summary import graph_summary, parameter_shapes
    from amp_runtime.prepare import prepare_file
    from amp_runtime.rehearsal import rehearse

    kinds = node_kinds()
    prepared = with_recorded_delays(prepare_file(given.config, given.overrides, kinds))
    placed = place(prepared, kinds)
    config, wiring = prepared.config, prepared.wiring
    try:
        shapes = parameter_shapes(wiring, kinds, config.seed, prepared.parameters)
    except AmpError as error:
        raise error.at(config.place("model")) from error.__cause__
    print(config.to_yaml())
    print(f"training examples    {prepared.train}")
    print(f"validation examples  {prepared.valid}")
    print(graph_summary(wiring, placed.placement, shapes))
    for words in (placed.words, *placed.notes):
        print(words)
    print(rehearse(prepared, kinds).words())
    print(f"{given.config}: all is right")
