"""`run CONFIG [key=value ...]`: one run, from a config to its folder."""

from __future__ import annotations

import argparse
import time
from contextlib import closing

from amp_runtime.commands import node_kinds, takes_config

arguments = takes_config


def command(given: argparse.Namespace) -> None:
    """Train CONFIG."""
    from amp_runtime.commands.running import place, told_to
    from amp_runtime.errors import EXIT_OK
    from amp_runtime.graph.ends import prediction_forms
    from amp_runtime.loops.controller_loop import ControllerLoop
    from amp_runtime.output.console import Console
    from amp_runtime.output.predictions import ValidationPredictions
    from amp_runtime.output.report import closing_table
    from amp_runtime.output.run_folder import RunFolder
    from amp_runtime.prepare import prepare_file

    started = time.monotonic()
    console = Console()
    kinds = node_kinds()
    prepared = prepare_file(given.config, given.overrides, kinds)
    config = prepared.config
    placed = place(prepared, kinds)
    folder = RunFolder.create(config, given.overrides, placed.cores, placed.notes)
    with told_to(folder):
        vocabularies, units = prepared.train.about.vocabularies, prepared.train.about.units
        folder.write_vocabularies(vocabularies)
        folder.write_units(units)
        console.say(
            f"{config.name}: {len(prepared.train)} training and {len(prepared.valid)} validation "
            f"examples, {placed.words}; run folder {folder.path}"
        )
        for note in placed.notes:
            console.say(note)
        predictions = ValidationPredictions(
            folder.valid_predictions, prediction_forms(prepared.wiring, kinds), vocabularies, units
        )
        loop = ControllerLoop(
            prepared,
            placed.placement,
            folder,
            console,
            on_stage=predictions.end_stage,
            on_predicted=predictions.write,
            on_rollback=predictions.close,
        )
        with closing(predictions):
            finished = loop.run()
            table = closing_table(finished.reports, placed.placement, time.monotonic() - started)
            table = "\n".join([table, *loop.failures()])
            folder.write_parameters(finished.parameters)
            folder.write_report(table + "\n")
    console.say(f"\n{table}")
    if loop.interruption is not None:
        folder.finish(finished.why, loop.interruption.exit_code)
        raise loop.interruption
    folder.finish(finished.why, EXIT_OK)
    seconds = time.monotonic() - started
    console.say(f"{finished.why}; {seconds:.1f} s in all; parameters in {folder.parameters}")
