"""`logs [RUN]`: one story out of all log files."""

from __future__ import annotations

import argparse

from amp_runtime.commands import takes_run

arguments = takes_run


def command(given: argparse.Namespace) -> None:
    """Print the log lines of all workers of RUN, merged by time."""
    from amp_runtime.output.logs import merged_lines
    from amp_runtime.output.run_folder import RunFolder

    for line in merged_lines(RunFolder.find(given.run).logs):
        print(line)
