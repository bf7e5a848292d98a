"""The command line: `python -m amp_runtime VERB ...`; the verbs are in `commands/`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NoReturn

from amp_runtime.commands import (
    check,
    data,
    evaluate,
    graph,
    kinds,
    logs,
    predict,
    replay,
    report,
    run,
    runs,
    schema,
    verify,
)
from amp_runtime.errors import EXIT_OK, UnexpectedError, UsageError
from amp_runtime.processes import failing, signals
from amp_runtime.processes.signals import as_error

VERBS: Mapping[str, ModuleType] = {
    "run": run,
    "evaluate": evaluate,
    "predict": predict,
    "replay": replay,
    "verify": verify,
    "check": check,
    "graph": graph,
    "runs": runs,
    "report": report,
    "logs": logs,
    "kinds": kinds,
    "schema": schema,
    "data": data,
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
    for name, verb in VERBS.items():
        doc = verb.command.__doc__
        verb.arguments(verbs.add_parser(name, help=doc, description=doc))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status. An error's last line starts with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path that is no text, or a terminal without Unicode, must not end a run.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with signals.raised():
            failing.arm(failing.CONTROLLER)
            parser = _parser()
            try:
                given = parser.parse_args(arguments)
            except SystemExit:  # --help
                return EXIT_OK
            if given.verb is None:
                parser.print_help()
                return EXIT_OK
            VERBS[given.verb].command(given)
            return EXIT_OK
    except BrokenPipeError:  # `make logs | head`: who reads has seen enough
        return EXIT_OK
    except BaseException as error:  # noqa: BLE001 - the last line of every command is ours
        return _tell(error)
    finally:
        _flush()


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
