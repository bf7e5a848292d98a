"""`data fetch NAME`: data files that others publish, brought to where configs look for them."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    doc = "Bring data files into AMP_DATA (./data where it is not set), by pinned hash."
    fetch = actions.add_parser("fetch", help=doc, description=doc)
    fetch.add_argument("name", metavar="NAME", help="mnist5k or qm9")


def command(given: argparse.Namespace) -> None:
    """Fetch data files that others publish."""
    from amp_runtime.data.fetch import fetch
    from amp_runtime.data.known_files import PACKAGED
    from amp_runtime.errors import UsageError, nearest

    known = PACKAGED.get(given.name)
    if known is None:
        raise UsageError(
            f"no data {given.name!r} to fetch{nearest(given.name, PACKAGED)}",
            fix=f"known are {', '.join(PACKAGED)}",
        )
    paths, fetched = fetch(known)
    listed = ", ".join(map(str, paths))
    if fetched:
        print(f"{listed}: {known.origin}; licence in {known.licence_file}")
    else:
        print(f"{listed}: there already; {known.origin}")
