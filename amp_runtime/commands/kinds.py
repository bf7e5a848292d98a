"""`kinds [NAME [CONFIG]]`: what can be named in a model and in a config."""

from __future__ import annotations

import argparse
from pathlib import Path

from amp_runtime.commands import node_kinds


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a node kind, an optimizer, a model or a data source; package.module:name for "
        "one of yours; without it, all are listed",
    )
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", help="yours are found beside it, too"
    )


def command(given: argparse.Namespace) -> None:
    """List node kinds, optimizers, models and data sources; of NAME: ports and options."""
    from amp_runtime import names
    from amp_runtime.output.kinds import described, listed

    if given.name is None:
        print(listed(node_kinds()))
        return
    names.search_also(".")
    if given.config is not None:
        names.search_also(Path(given.config).parent)
    print(described(given.name, node_kinds()))
