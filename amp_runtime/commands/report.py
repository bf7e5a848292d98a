"""`report [RUN]`: what a run did."""

from __future__ import annotations

import argparse

from amp_runtime.commands import takes_run

arguments = takes_run


def command(given: argparse.Namespace) -> None:
    """Print what RUN did: a table of its stages, one of its nodes, and how it ended."""
    from amp_runtime.output.past_runs import run_report
    from amp_runtime.output.run_folder import RunFolder

    print(run_report(RunFolder.find(given.run)))
