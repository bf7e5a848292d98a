"""`report [RUN]`: what a run did."""

from __future__ import annotations

import argparse

from amp_runtime.commands import takes_run

arguments = takes_run


def command(given: argparse.Namespace) -> None:
    """Print the metrics and the closing table of RUN."""
    from amp_runtime.output.run_folder import RunFolder

    folder = RunFolder.find(given.run)
    for file in (folder.metrics, folder.report):
        if file.exists():
            print(file.read_text(), end="")
