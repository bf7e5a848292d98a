"""`graph CONFIG [--dot] [key=value ...]`: a model to look at."""

from __future__ import annotations

import argparse

from amp_runtime.commands import node_kinds, takes_config


def arguments(parser: argparse.ArgumentParser) -> None:
    takes_config(parser)
    parser.add_argument("--dot", action="store_true", help="DOT, for Graphviz, not Mermaid")


def command(given: argparse.Namespace) -> None:
    """Draw the graph of CONFIG as Mermaid text, which Markdown viewers show, or as DOT."""
    from amp_runtime.graph.drawing import dot, mermaid
    from amp_runtime.prepare import prepare_file

    wiring = prepare_file(given.config, given.overrides, node_kinds()).wiring
    print(dot(wiring) if given.dot else mermaid(wiring))
