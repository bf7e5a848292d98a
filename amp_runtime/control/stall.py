"""Who owes answers, when nothing moves any more: from what each worker and node took and sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from amp_runtime.graph.wiring import NodeSpec, Wiring
from amp_runtime.nodes.statistics import NodeReport, WorkerReport
from amp_runtime.rows.message import Mode

JOIN_HINT = (
    "a row leaves such a node when all its input ports, or all members of its group, have come "
    "in one state: rows that take different ways at a cond meet in a phi"
)


def who_owes(
    wiring: Wiring,
    peer_of: Sequence[int],
    mode: Mode,
    before: Mapping[int, WorkerReport],
    now: Mapping[int, WorkerReport],
    controller: Mapping[str, Any],
) -> list[str]:
    """Say which nodes hold up the rows in flight, and how many.

    A worker that hangs is found by what was sent to it; which of its nodes it hangs in,
    nobody knows. One that has worked on all it got is not to blame, but a node of it may
    be: a node must have answered as many rows as it took, and be answered as many as it
    sent; one that passes addresses on sends as many as it took.

    Args:
        before: the reports at the last barrier, when nothing was in flight.
        now: the newest reports.
        controller: the accounts of the controller's channels.
    """
    given: Counter[int] = Counter()
    for channels in (controller, *(report.process.channels for report in now.values())):
        for other, _, _, rows in channels.get("sent", ()):
            given[other] += rows
    found = []
    for peer in dict.fromkeys(peer_of):
        nodes = [n for n, p in zip(wiring.nodes, peer_of, strict=True) if p == peer]
        # A worker that hangs since its first row has never reported.
        report = now.get(peer, WorkerReport({}))
        waiting = given[peer] - _received(report.process.channels) + report.queued_rows
        if waiting > 0:
            names = " or ".join(repr(node.name) for node in nodes)
            found.append(f"{names} has not worked on {waiting} rows that were sent to it")
            continue
        earlier = before.get(peer, WorkerReport({})).nodes
        for node in nodes:
            took = report.nodes.get(node.name, NodeReport())
            owed = _owed(node, mode, earlier.get(node.name, NodeReport()), took)
            if owed > 0 and not took.join_waiting:
                found.append(
                    f"{node.name!r} took {owed} rows and neither answered nor passed them on"
                )
    return found


def _owed(node: NodeSpec, mode: Mode, before: NodeReport, now: NodeReport) -> int:
    """Return the rows that a node took since `before`, and of which nothing is known."""
    took = now.rows_forward - before.rows_forward
    sent = now.rows_emitted - before.rows_emitted
    answered = now.rows_answered - before.rows_answered
    was_answered = now.rows_backward - before.rows_backward
    if node.transparent or (mode is Mode.EVALUATE and node.one_to_one):
        return took - sent - answered
    return took - answered if sent == was_answered else 0


def _received(channels: Mapping[str, Any]) -> int:
    return sum(rows for _, _, _, rows in channels.get("received", ()))
