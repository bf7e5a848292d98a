"""The command line: `python -m amp_runtime VERB CONFIG|RUN [key=value ...]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from amp_runtime.errors import EXIT_OK, EXIT_USAGE, AmpError, UsageError

if TYPE_CHECKING:
    from amp_runtime.node import Kinds

# What a verb needs is imported in it: `--help` and a typing error answer at once.


def node_kinds() -> Kinds:
    """Return the registry of node kinds, by name: the library never imports `workers`."""
    from amp_runtime.names import resolve

    registry: Kinds = resolve("workers.registry:Registry", what="the registry of node kinds")()
    return registry


def run(config_file: str, overrides: Sequence[str]) -> None:
    """Train CONFIG; key=value changes any key of it, as in training.max_active_keys=8."""
    from amp_runtime.config import load_config
    from amp_runtime.console import Console
    from amp_runtime.controller_loop import ControllerLoop
    from amp_runtime.launch import usable_cores
    from amp_runtime.placement import process_per_node
    from amp_runtime.prepare import prepare
    from amp_runtime.report import closing_table
    from amp_runtime.run_folder import RunFolder

    started = time.monotonic()
    console = Console()
    config = load_config(config_file, overrides)
    prepared = prepare(config, node_kinds())
    cores = usable_cores()
    placement = process_per_node(prepared.wiring, cores)
    folder = RunFolder.create(config, overrides, cores)
    console.say(
        f"{config.name}: {len(prepared.train)} training and {len(prepared.valid)} validation "
        f"examples, {len(prepared.wiring.nodes)} nodes, one process each, on cores "
        f"{', '.join(map(str, cores))}; run folder {folder.path}"
    )
    loop = ControllerLoop(prepared, placement, folder, console)
    try:
        finished = loop.run()
        table = closing_table(finished.reports, placement, time.monotonic() - started)
        folder.write_parameters(finished.parameters)
        folder.write_report(table + "\n")
    except AmpError as error:
        folder.finish(error.line(), error.exit_code)
        raise
    console.say(f"\n{table}")
    if loop.interruption is not None:
        folder.finish(finished.why, loop.interruption.exit_code)
        raise loop.interruption
    folder.finish(finished.why, EXIT_OK)
    seconds = time.monotonic() - started
    console.say(f"{finished.why}; {seconds:.1f} s in all; parameters in {folder.parameters}")


def logs(run_name: str, overrides: Sequence[str]) -> None:
    """Print the log lines of all workers of RUN, merged by time; RUN may be `last`."""
    from amp_runtime.logs import merged_lines
    from amp_runtime.run_folder import RunFolder

    for line in merged_lines(RunFolder.find(run_name).logs):
        print(line)


def report(run_name: str, overrides: Sequence[str]) -> None:
    """Print the metrics and the closing table of RUN; RUN may be `last`."""
    from amp_runtime.run_folder import RunFolder

    folder = RunFolder.find(run_name)
    for file in (folder.metrics, folder.report):
        if file.exists():
            print(file.read_text(), end="")


VERBS: dict[str, Callable[[str, Sequence[str]], None]] = {
    "run": run,
    "logs": logs,
    "report": report,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status. An error's last line starts with its code."""
    parser = argparse.ArgumentParser(
        prog="python -m amp_runtime",
        description="Asynchronous model-parallel training of dynamic neural networks.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, function in VERBS.items():
        doc = (function.__doc__ or "").strip()
        verb = verbs.add_parser(name, help=doc, description=doc)
        what = "CONFIG" if name == "run" else "RUN"
        verb.add_argument("subject", metavar=what, nargs=1 if name == "run" else "?")
        verb.add_argument("overrides", metavar="key=value", nargs="*")
    try:
        given = parser.parse_args(arguments)
    except SystemExit as exit_:  # argparse exits by itself, with 2 for an error
        return EXIT_USAGE if exit_.code else EXIT_OK
    if given.verb is None:
        parser.print_help()
        return EXIT_OK
    try:
        subject = given.subject[0] if isinstance(given.subject, list) else given.subject or "last"
        VERBS[given.verb](subject, given.overrides)
    except AmpError as error:
        if not isinstance(error, UsageError) and error.__cause__ is not None:
            print(f"caused by {type(error.__cause__).__name__}: {error.__cause__}", file=sys.stderr)
        if len(getattr(error, "problems", ())) > 1:
            print(error, file=sys.stderr)
        print(error.line(), file=sys.stderr)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
