"""The command line: `python -m amp_runtime VERB CONFIG|RUN [key=value ...]`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from amp_runtime.errors import EXIT_OK, AmpError, OutputError, UnexpectedError, UsageError, blamed
from amp_runtime.processes import signals

if TYPE_CHECKING:
    from amp_runtime.nodes.node import Kinds

# What a verb needs is imported in it: `--help` and a typing error answer at once.


def node_kinds() -> Kinds:
    """Return the registry of node kinds, by name: the library never imports `workers`."""
    from amp_runtime.names import resolve

    registry: Kinds = resolve("workers.registry:Registry", what="the registry of node kinds")()
    return registry


def run(config_file: str, overrides: Sequence[str]) -> None:
    """Train CONFIG; key=value changes any key of it, as in training.max_active_keys=8."""
    from amp_runtime.config.schema import load_config
    from amp_runtime.graph.placement import process_per_node
    from amp_runtime.loops.controller_loop import ControllerLoop
    from amp_runtime.output.console import Console
    from amp_runtime.output.report import closing_table
    from amp_runtime.output.run_folder import RunFolder
    from amp_runtime.prepare import prepare
    from amp_runtime.processes.launch import usable_cores

    started = time.monotonic()
    console = Console()
    config = load_config(config_file, overrides)
    prepared = prepare(config, node_kinds())
    cores = usable_cores()
    placement = process_per_node(prepared.wiring, cores)
    n_workers, n_cores = len(placement.workers), len(cores)
    shared = f"{n_workers} workers share {n_cores} core{'s' if n_cores > 1 else ''}"
    notes = [shared] if n_workers > n_cores else []
    folder = RunFolder.create(config, overrides, cores, notes)
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


def logs(run_name: str, overrides: Sequence[str]) -> None:
    """Print the log lines of all workers of RUN, merged by time; RUN may be `last`."""
    from amp_runtime.output.logs import merged_lines
    from amp_runtime.output.run_folder import RunFolder

    for line in merged_lines(RunFolder.find(run_name).logs):
        print(line)


def report(run_name: str, overrides: Sequence[str]) -> None:
    """Print the metrics and the closing table of RUN; RUN may be `last`."""
    from amp_runtime.output.run_folder import RunFolder

    folder = RunFolder.find(run_name)
    for file in (folder.metrics, folder.report):
        if file.exists():
            print(file.read_text(), end="")


VERBS: dict[str, Callable[[str, Sequence[str]], None]] = {
    "run": run,
    "logs": logs,
    "report": report,
}


class _Parser(argparse.ArgumentParser):
    """Ends as all of our commands do: with one line, and status 64."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, fix=f"see {self.prog} --help")


def _parser() -> _Parser:
    parser = _Parser(
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
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status. An error's last line starts with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path that is no text, or a terminal without Unicode, must not end a run.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with signals.raised():
            parser = _parser()
            try:
                given = parser.parse_args(arguments)
            except SystemExit:  # --help
                return EXIT_OK
            if given.verb is None:
                parser.print_help()
                return EXIT_OK
            subject = given.subject[0] if isinstance(given.subject, list) else given.subject
            VERBS[given.verb](subject or "last", given.overrides)
            return EXIT_OK
    except BrokenPipeError:  # `make logs | head`: who reads has seen enough
        return EXIT_OK
    except BaseException as error:  # noqa: BLE001 - the last line of every command is ours
        return _tell(error)
    finally:
        _flush()


def as_error(error: BaseException) -> AmpError:
    """Return what ends a command as one of our errors: a signal, or a bug of ours."""
    match error:
        case AmpError():
            return error
        case signals.SignalReceived(number=number):
            return signals.error_of(number, "while no worker ran")
        case _:
            return blamed(error, UnexpectedError)


def _tell(error: BaseException) -> int:
    """Print an error to standard error, its code in the last line; return the exit status."""
    failure = as_error(error)
    lines = []
    if isinstance(failure, UnexpectedError):
        lines += traceback.format_exception(error)
    elif not isinstance(failure, UsageError) and failure.__cause__ is not None:
        cause = failure.__cause__
        lines.append(f"caused by {type(cause).__name__}: {cause}")
    if len(getattr(failure, "problems", ())) > 1:
        lines.append(str(failure))
    with contextlib.suppress(OSError):
        print(*(line.rstrip() for line in lines), failure.line(), sep="\n", file=sys.stderr)
    return failure.exit_code


def _flush() -> None:
    """Flush what was printed; where nobody reads it any more, let the exit not fail for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
