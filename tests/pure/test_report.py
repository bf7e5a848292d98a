"""The closing table."""

from __future__ import annotations

from amp_runtime.graph.placement import Placement, WorkerPlace
from amp_runtime.nodes.statistics import NodeReport, ProcessFacts, WorkerReport
from amp_runtime.output.report import closing_table


def test_each_node_has_a_line_and_each_core_its_share():
    placement = Placement((WorkerPlace("linear-1", (0,), (4,)), WorkerPlace("end", (1, 2), (4, 5))))
    linear = NodeReport(
        rows_forward=60, rows_backward=40, batches_forward=15, batches_backward=10,
        updates=3, staleness=[10, 20, 10], busy_s=5.0,
    )  # fmt: skip
    loss = NodeReport(rows_forward=50, batches_forward=50, busy_s=1.0)
    reports = {
        1: WorkerReport({"linear-1": linear}, ProcessFacts(cpu_s=6.0)),
        2: WorkerReport({"loss": loss, "loop": NodeReport()}, ProcessFacts(cpu_s=4.0)),
    }
    assert closing_table(reports, placement, seconds=10.0).splitlines() == [
        "node      worker    core  rows  batches  rows/batch  updates  staleness  p95  busy",
        "--------  --------  ----  ----  -------  ----------  -------  ---------  ---  ----",
        "linear-1  linear-1     4   100       25         4.0        3       1.00    2   50%",
        "loss      end        4,5    50       50         1.0        -          -    -   10%",
        "loop      end        4,5     0        0         0.0        -          -    -    0%",
        "busiest core: 4; CPU of the workers: core 4 80%, core 5 20%",
    ]


def test_dropped_rows_are_told_where_there_are_any():
    placement = Placement((WorkerPlace("linear", (0, 1, 2), (0,)),))
    nodes = {
        "linear": NodeReport(staleness=[150, 50], dropped=50),
        "other": NodeReport(staleness=[200], dropped=0),
        "loss": NodeReport(),
    }
    *_, line, _ = closing_table({1: WorkerReport(nodes)}, placement, 1.0).splitlines()
    assert line == "rows whose gradients were too stale to be used: linear 50 (25%)"


def test_a_node_that_has_made_no_update_has_no_staleness_yet():
    placement = Placement((WorkerPlace("linear", (0,), (0,)),))
    reports = {1: WorkerReport({"linear": NodeReport(staleness=[0])})}
    headers, _, line, _ = closing_table(reports, placement, seconds=1.0).splitlines()
    assert headers.split()[:2] == ["node", "core"]  # no worker: each is called as its node
    assert line.split() == ["linear", "0", "0", "0", "0.0", "0", "0.00", "0", "0%"]
