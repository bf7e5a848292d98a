"""How stale the gradients of each update of a node were, from the traces of a run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from amp_runtime.delay.draws import Window
from amp_runtime.trace.events import Event, Updated

MOST_WINDOWS = 500
"""Updates are taken together where a node made more: what is told of a run stays small."""


def updates_of(events: Iterable[Event]) -> dict[int, list[Updated]]:
    """Return the updates of a worker's nodes, by node number, in order."""
    found: dict[int, list[Updated]] = {}
    for event in events:
        if isinstance(event, Updated):
            found.setdefault(event.node, []).append(event)
    return found


def windows(updates: Sequence[Updated], most: int = MOST_WINDOWS) -> list[Window]:
    """Return updates of a node as windows, of one update each if these are not too many.

    A version that is no update of its own, as where replicas are averaged, is part of the window
    before. Of a node that never had a gradient there is none.
    """
    together = -(-sum(len(update.rows) > 0 for update in updates) // most)
    found: list[tuple[int, Counter[int]]] = []
    joined = together
    for update in updates:
        counts = Counter(dict(zip(update.staleness.tolist(), update.rows.tolist(), strict=True)))
        if not counts and not found:
            continue
        if counts and joined == together:
            found.append((update.versions, counts))
            joined = 1
            continue
        versions, sofar = found[-1]
        found[-1] = (versions + update.versions, sofar + counts)
        joined += bool(counts)
    return [
        (versions, sorted(counts), [counts[s] for s in sorted(counts)])
        for versions, counts in found
    ]
