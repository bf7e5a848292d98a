"""Who owes answers, when nothing moves any more: from what each worker took and sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.statistics import WorkerReport
from amp_runtime.rows.message import Mode


def who_owes(
    wiring: Wiring,
    peer_of: Sequence[int],
    mode: Mode,
    before: Mapping[int, WorkerReport],
    now: Mapping[int, WorkerReport],
    controller: Mapping[str, Any],
) -> list[str]:
    """Say which nodes hold up the rows in flight, and how many.

    A node must have answered as many rows as it took, and be answered as many as it
    sent; one that passes addresses on sends as many as it took. Only of a node with
    a worker of its own can this be told.

    Args:
        before: the reports at the last barrier, when nothing was in flight.
        now: the newest reports.
        controller: the accounts of the controller's channels.
    """
    found = []
    given: Counter[int] = Counter()
    for channels in (controller, *(report.process.channels for report in now.values())):
        for other, _, _, rows in channels.get("sent", ()):
            given[other] += rows
    for node, peer in zip(wiring.nodes, peer_of, strict=True):
        if peer_of.count(peer) > 1:
            continue
        # A worker that hangs since its first row has never reported.
        report = now.get(peer, WorkerReport({}))
        waiting = given[peer] - _rows(report.process.channels, "received") + report.queued_rows
        if waiting > 0:
            found.append(f"{node.name!r} has not worked on {waiting} rows that were sent to it")
            continue
        earlier = before[peer].process.channels if peer in before else {}
        took, sent, answered, was_answered = (
            _rows(report.process.channels, way, lane) - _rows(earlier, way, lane)
            for way, lane in (
                ("received", "forward"),
                ("sent", "forward"),
                ("sent", "backward"),
                ("received", "backward"),
            )
        )
        if node.transparent or (mode is Mode.EVALUATE and node.one_to_one):
            owed = took - sent - answered
        else:
            owed = took - answered if sent == was_answered else 0
        if owed > 0 and not any(n.join_waiting for n in report.nodes.values()):
            found.append(f"{node.name!r} took {owed} rows and neither answered nor passed them on")
    return found


def _rows(channels: Mapping[str, Any], way: str, only_lane: str = "") -> int:
    """Return the rows that were `sent` or `received` on all channels, or those of one lane."""
    return sum(
        rows for _, lane, _, rows in channels.get(way, ()) if not only_lane or lane == only_lane
    )
