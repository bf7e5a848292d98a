"""`run CONFIG [key=value ...]`, `run --resume RUN [key=value ...]`: from a config, or a
checkpoint, to a run folder."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from amp_runtime.commands import node_kinds

if TYPE_CHECKING:
    from amp_runtime.checkpoint.store import CheckpointStore


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="CONFIG",
        nargs="*",
        help="a YAML file, then key=value for any key of it, as in training.max_active_keys=8",
    )
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="go on from the newest checkpoint of a run, in its folder and with its config: a run "
        "folder, its name within runs/, or `last`",
    )
    parser.add_argument(
        "--allow-older",
        action="store_true",
        help="go on from the newest checkpoint that is whole, if the newest is not",
    )


def command(given: argparse.Namespace) -> None:
    """Train CONFIG, or go on with a RUN that has ended."""
    from amp_runtime.commands.resuming import open_store, resume_run
    from amp_runtime.commands.running import place, told_to
    from amp_runtime.errors import EXIT_OK
    from amp_runtime.graph.ends import prediction_forms
    from amp_runtime.loops.controller_loop import ControllerLoop
    from amp_runtime.output.console import Console
    from amp_runtime.output.predictions import ValidationPredictions
    from amp_runtime.output.recorded_delays import with_recorded_delays
    from amp_runtime.output.report import closing_table
    from amp_runtime.output.run_folder import RunFolder
    from amp_runtime.prepare import prepare_file

    started = time.monotonic()
    console = Console()
    kinds = node_kinds()
    config_file, overrides = _sorted_out(given.words, given.resume)
    run = RunFolder.find(given.resume) if given.resume else None
    prepared = prepare_file(run.config if run else config_file, overrides, kinds)
    prepared = with_recorded_delays(prepared)
    config = prepared.config
    placed = place(prepared, kinds)
    notes = list(placed.notes)
    with ExitStack() as held:
        store: CheckpointStore | None = None
        if run is not None:
            folder, older = run, given.allow_older
            store, going_on = resume_run(prepared, run, overrides, console.say, allow_older=older)
            notes += going_on
        else:
            folder = RunFolder.create(config, overrides, placed.cores, placed.notes)
        held.enter_context(told_to(folder))
        if run is None and config.checkpoint.every != "never":
            store = open_store(prepared, folder, console.say)
        if store is not None:
            held.callback(store.close)
        vocabularies, units = prepared.train.about.vocabularies, prepared.train.about.units
        folder.write_vocabularies(vocabularies)
        folder.write_units(units)
        console.say(
            f"{config.name}: {len(prepared.train)} training and {len(prepared.valid)} validation "
            f"examples, {placed.words}; run folder {folder.path}"
        )
        for note in notes:
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
            store=store,
        )
        with closing(predictions):
            finished = loop.run()
            table = closing_table(finished.reports, placed.placement, time.monotonic() - started)
            table = "\n".join([table, *loop.failures()])
            folder.write_parameters(finished.parameters)
            folder.write_report(table + "\n")
    console.say(f"\n{table}")
    if loop.interruption is not None:
        if store is not None and store.number:
            console.say(f"run --resume {folder.path} goes on from checkpoint {store.number}")
        folder.finish(finished.why, loop.interruption.exit_code)
        raise loop.interruption
    folder.finish(finished.why, EXIT_OK)
    seconds = time.monotonic() - started
    console.say(f"{finished.why}; {seconds:.1f} s in all; parameters in {folder.parameters}")


def _sorted_out(words: Sequence[str], resume: str | None) -> tuple[str, list[str]]:
    """Return the config file, '' where a run goes on, and the overrides.

    Raises:
        UsageError: no config is named, or one beside a run.
    """
    from amp_runtime.errors import UsageError

    files = [word for word in words[:1] if resume is None or "=" not in word]
    if resume is not None and files:
        raise UsageError(
            f"--resume goes on with the run's own config, but {files[0]} is named too",
            fix="leave it out, and set single keys: key=value",
        )
    if resume is None and not files:
        raise UsageError("no CONFIG is named", fix="name a YAML file, or --resume RUN")
    return "".join(files), list(words[len(files) :])
