"""`schema`: the JSON schema of a config, for editors."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Take nothing."""


def command(given: argparse.Namespace) -> None:
    """Print the JSON schema of a config file, which editors complete and check with."""
    from amp_runtime.config.page import schema_text

    print(schema_text(), end="")
