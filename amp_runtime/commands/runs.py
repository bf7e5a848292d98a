"""`runs [FOLDER]`: what ran, and what came of it."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="runs", help="of run folders; runs/"
    )


def command(given: argparse.Namespace) -> None:
    """List the runs in a folder: when, how far, how well, and how each ended."""
    from amp_runtime.output.past_runs import runs_table

    print(runs_table(given.folder))
