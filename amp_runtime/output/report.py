"""The closing table: what each node did, and how busy each core was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amp_runtime.graph.placement import Placement, WorkerPlace
from amp_runtime.nodes.statistics import Histogram, NodeReport, WorkerReport
from amp_runtime.output.table import text_table

HEADERS = (
    "node", "worker", "core", "rows", "batches", "rows/batch",
    "updates", "staleness", "p95", "busy",
)  # fmt: skip


def closing_table(reports: Mapping[int, WorkerReport], placement: Placement, seconds: float) -> str:
    """Return a table of all nodes, as text.

    Args:
        reports: the last report of each peer.
        seconds: how long the run took, for the busy shares.
    """
    rows, busy_of_core = [], dict[int, float]()
    for number, place in enumerate(placement.workers):
        report = reports[number + 1]
        for name, node in report.nodes.items():
            rows.append(_row(name, node, place, seconds))
        for core in place.cores:
            share = report.process.cpu_s / len(place.cores)
            busy_of_core[core] = busy_of_core.get(core, 0.0) + share
    busiest = max(busy_of_core, key=lambda core: busy_of_core[core])
    cores = ", ".join(
        f"core {core} {cpu_s / seconds:.0%}" for core, cpu_s in sorted(busy_of_core.items())
    )
    headers: tuple[str, ...] = HEADERS
    if not placement.shares_workers:  # each worker is called as its node
        headers, *rows = ((name, *rest) for name, _, *rest in (HEADERS, *rows))
    lines = text_table(headers, rows, 1 + placement.shares_workers)
    if dropped := _dropped(reports.values()):
        lines.append(f"rows whose gradients were too stale to be used: {dropped}")
    if not_applied := _not_applied(reports.values()):
        lines.append(f"updates not applied, as their gradients were not finite: {not_applied}")
    lines.append(f"busiest core: {busiest}; CPU of the workers: {cores}")
    return "\n".join(lines)


def _dropped(reports: Iterable[WorkerReport]) -> str:
    """Return `node 3 (1%), ...` of all nodes that dropped rows; '' if none did."""
    return ", ".join(
        f"{name} {node.dropped} ({node.dropped / max(sum(node.staleness), 1):.0%})"
        for report in reports
        for name, node in report.nodes.items()
        if node.dropped
    )


def _not_applied(reports: Iterable[WorkerReport]) -> str:
    """Return `node 3 (first update 7 of instance 2), ...`; '' if all nodes applied theirs."""
    return ", ".join(
        f"{name} {node.not_applied} (first {node.not_finite})"
        for report in reports
        for name, node in report.nodes.items()
        if node.not_applied
    )


def _row(name: str, node: NodeReport, place: WorkerPlace, seconds: float) -> tuple[str, ...]:
    parameterised = bool(node.staleness)
    staleness = Histogram(node.staleness or None)
    return (
        name,
        place.name,
        ",".join(map(str, place.cores)),
        str(node.rows),
        str(node.batches),
        f"{node.rows / max(node.batches, 1):.1f}",
        str(node.updates) if parameterised else "-",
        f"{staleness.mean:.2f}" if parameterised else "-",
        str(staleness.percentile(0.95)) if parameterised else "-",
        f"{node.busy_s / seconds:.0%}",
    )
