"""`run CONFIG [key=value ...]`: one run, from a config to its folder."""

from __future__ import annotations

import argparse
import contextlib
import time

from amp_runtime.commands import node_kinds, takes_config

arguments = takes_config


def command(given: argparse.Namespace) -> None:
    """Train CONFIG."""
    from amp_runtime.errors import EXIT_OK, OutputError
    from amp_runtime.graph.placement import process_per_node
    from amp_runtime.loops.controller_loop import ControllerLoop
    from amp_runtime.output.console import Console
    from amp_runtime.output.report import closing_table
    from amp_runtime.output.run_folder import RunFolder
    from amp_runtime.prepare import prepare_file
    from amp_runtime.processes.launch import usable_cores
    from amp_runtime.processes.signals import as_error

    started = time.monotonic()
    console = Console()
    prepared = prepare_file(given.config, given.overrides, node_kinds())
    config = prepared.config
    cores = usable_cores()
    placement = process_per_node(prepared.wiring, cores)
    n_workers, n_cores = len(placement.workers), len(cores)
    shared = f"{n_workers} workers share {n_cores} core{'s' if n_cores > 1 else ''}"
    notes = [shared] if n_workers > n_cores else []
    folder = RunFolder.create(config, given.overrides, cores, notes)
    console.say(
        f"{config.name}: {len(prepared.train)} training and {len(prepared.valid)} validation "
        f"examples, {len(prepared.wiring.nodes)} nodes, one process each, on cores "
        f"{', '.join(map(str, cores))}; run folder {folder.path}"
    )
    for note in notes:
        console.say(note)
    loop = ControllerLoop(prepared, placement, folder, console)
    try:
        finished = loop.run()
        table = closing_table(finished.reports, placement, time.monotonic() - started)
        folder.write_parameters(finished.parameters)
        folder.write_report(table + "\n")
    except BaseException as error:
        failure = as_error(error)
        with contextlib.suppress(OutputError):  # the first failure is the one to be told
            folder.finish(failure.line(), failure.exit_code)
        raise
    console.say(f"\n{table}")
    if loop.interruption is not None:
        folder.finish(finished.why, loop.interruption.exit_code)
        raise loop.interruption
    folder.finish(finished.why, EXIT_OK)
    seconds = time.monotonic() - started
    console.say(f"{finished.why}; {seconds:.1f} s in all; parameters in {folder.parameters}")
