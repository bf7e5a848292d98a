"""What nodes and workers count, and the reports that carry it to the controller."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, TypeAlias, TypedDict

import numpy as np

from amp_runtime.limits import Ge
from amp_runtime.rows.spec import Array, Int64

Count: TypeAlias = Annotated[int, Ge(0)]

MOST_COUNTED = 4095
"""A larger value counts as this one: a report is a record, whose lists are bounded."""


class Histogram:
    """Counts of non-negative integers, grown on demand; used for staleness.

    Its last bin, of MOST_COUNTED, holds all larger values too: the mean of such counts is
    a lower bound.
    """

    def __init__(self, counts: Array | list[int] | None = None) -> None:
        self.counts: Int64 = np.asarray([0] if counts is None else counts, np.int64)

    def add(self, values: Array) -> None:
        """Count every entry of `values`, int [rows], each >= 0."""
        counts = np.bincount(np.minimum(values, MOST_COUNTED), minlength=len(self.counts))
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean of all values; 0 of none."""
        total = self.total
        return float(self.counts @ np.arange(len(self.counts))) / total if total else 0.0

    def percentile(self, share: float) -> int:
        """Smallest value that at least `share` (0 to 1) of all values do not exceed."""
        return int(np.searchsorted(np.cumsum(self.counts), share * self.total))


@dataclass(slots=True)
class MetricSum:
    """A metric as a sum and what it is divided by.

    Attributes:
        total: the sum.
        count: rows that it was summed over; 0: divide by the stage's examples.
    """

    total: float = 0.0
    count: Count = 0


Metrics = dict[str, MetricSum]


def add_metrics(into: Metrics, other: Mapping[str, MetricSum]) -> None:
    for name, metric in other.items():
        entry = into.setdefault(name, MetricSum())
        entry.total += metric.total
        entry.count += metric.count


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node's counters since the run began; metrics since they were last reset.

    Attributes:
        rows_forward, rows_backward: rows handled, all modes.
        rows_emitted, rows_answered: rows that it sent, all modes.
        batches_forward, batches_backward: merged batches they came in.
        updates: local updates made.
        staleness: histogram: index = local updates between a row's forward and its
            gradient, at most MOST_COUNTED; value = rows.
        busy_s: seconds spent in this node.
        stash_used: rows that wait for their answer now.
        stash_peak: the most rows that waited at once.
        stash_bytes: memory of what is kept of waiting rows; it grows with the peak.
        join_waiting: keys that wait for rows on other ports.
        gradient_rows: rows accumulated towards the next update.
        metrics: {mode name: {metric: its sum}}.
        lr: learning rate of the last update.
        clipped: updates whose gradient was clipped; None where none is to be.
        not_applied: updates that were not made, as their gradient was not finite.
        not_finite: the first of them, or the first loss that was not finite, in words; '':
            none was.
        dropped: rows whose gradient was too stale to be used; None where none is dropped.
        horizon: updates ahead that its weights were last predicted; None: they are not.
        averagings: how often a replica went on from what it was sent; None: no replica.
        weight_copies_peak: past versions of its weights that were held at once, at most;
            None unless backward_weights is stashed.
        weight_copies_peak_bytes: what they took.
        delay_bytes: memory of the past weights that an injected delay needs; None: none is.
    """

    rows_forward: Count = 0
    rows_backward: Count = 0
    rows_emitted: Count = 0
    rows_answered: Count = 0
    batches_forward: Count = 0
    batches_backward: Count = 0
    updates: Count = 0
    staleness: list[Count] = field(default_factory=list)
    busy_s: float = 0.0
    stash_used: Count = 0
    stash_peak: Count = 0
    stash_bytes: Count = 0
    join_waiting: Count = 0
    gradient_rows: Count = 0
    metrics: dict[str, dict[str, MetricSum]] = field(default_factory=dict)
    lr: float = 0.0
    clipped: int | None = None
    not_applied: Count = 0
    not_finite: str = ""
    dropped: int | None = None
    horizon: float | None = None
    averagings: int | None = None
    weight_copies_peak: int | None = None
    weight_copies_peak_bytes: Count = 0
    delay_bytes: int | None = None

    @property
    def batches(self) -> int:
        return self.batches_forward + self.batches_backward

    @property
    def rows(self) -> int:
        return self.rows_forward + self.rows_backward

    def mode_metrics(self, mode: str) -> Metrics:
        return self.metrics.get(mode, {})

    def diverged_loss(self) -> float | None:
        """Return the sum of its training loss if that is infinite or no number, else None."""
        loss = self.mode_metrics("train").get("loss")
        return None if loss is None or math.isfinite(loss.total) else loss.total


class ChannelCount(NamedTuple):
    """What was sent on one channel, or received: to or from `peer`."""

    peer: Count
    lane: str
    messages: Count
    rows: Count


class ChannelCounts(TypedDict, total=False):
    """The accounts of one process, in this generation.

    Attributes:
        sent, received: by peer and lane.
        dropped: {verdict: frames}, verdicts that occurred only.
    """

    generation: Count
    sent: list[ChannelCount]
    received: list[ChannelCount]
    dropped: dict[str, Count]


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What the loop around the nodes knows.

    Attributes:
        channels: messages and rows of each channel.
        cpu_s: CPU seconds of the process.
        rss_bytes: resident memory.
    """

    channels: ChannelCounts = field(default_factory=ChannelCounts)
    cpu_s: float = 0.0
    rss_bytes: Count = 0


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker sends at a barrier and once a second.

    Attributes:
        nodes: {node name: its report}.
        process: of the process that hosts them.
        queued_rows: rows waiting to be worked on, parked ones included.
        parked_rows: rows waiting for their structure.
        live_structures: instances whose structure is held.
    """

    nodes: dict[str, NodeReport]
    process: ProcessFacts = field(default_factory=ProcessFacts)
    queued_rows: Count = 0
    parked_rows: Count = 0
    live_structures: Count = 0

    @property
    def rows(self) -> int:
        """Rows that its nodes have handled."""
        return sum(node.rows for node in self.nodes.values())
