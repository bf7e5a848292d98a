"""What each verb of the command line does, one file a verb.

A verb's module has `arguments(parser)`, which declares what it is given, and
`command(given)`, which does it; the docstring of `command` is its help. All of them are
imported for `--help`, so what a verb needs is imported in its `command`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amp_runtime.nodes.node import Kinds


def takes_config(parser: argparse.ArgumentParser) -> None:
    """Declare `CONFIG [key=value ...]`: `given.config`, `given.overrides`."""
    parser.add_argument("config", metavar="CONFIG", help="a YAML file")
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="sets any key of it, as in training.max_active_keys=8",
    )


def takes_run(parser: argparse.ArgumentParser) -> None:
    """Declare `[RUN]`: `given.run`."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default="last",
        help="a run folder, its name within runs/, or `last`, which is the default",
    )


def node_kinds() -> Kinds:
    """Return the registry of node kinds, by name: the library never imports `workers`."""
    from amp_runtime.names import resolve

    registry: Kinds = resolve("workers.registry:Registry", what="the registry of node kinds")()
    return registry
