"""A stage is one pass over one split: its progress, its metrics, its result."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from amp_runtime.control.in_flight import Retirement
from amp_runtime.nodes.statistics import Histogram, Metrics, WorkerReport, add_metrics
from amp_runtime.rows.message import Mode
from amp_runtime.rows.spec import Int64


class Split(enum.StrEnum):
    TRAIN = "train"
    VALID = "valid"
    FILE = "file"
    """Examples that are neither trained on nor held out: of a file, to predict."""


@dataclass(frozen=True, slots=True)
class Target:
    """A validation metric that ends the run when it is reached."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None

    def reached(self, metrics: Mapping[str, float]) -> bool:
        value = metrics.get(self.metric)
        if value is None:
            return False
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is.

    Attributes:
        metrics: so far, from the newest reports; may be empty.
        staleness: mean over the stage's gradient rows so far; None without any.
    """

    split: Split
    epoch: int
    max_epochs: int
    examples: int
    n_examples: int
    seconds: float
    in_flight: int
    metrics: Mapping[str, float]
    staleness: float | None

    @property
    def examples_per_s(self) -> float:
        return self.examples / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end of the stage at the present rate; None while unknown."""
        rate = self.examples_per_s
        return (self.n_examples - self.examples) / rate if rate else None


@dataclass(frozen=True, slots=True)
class StageResult:
    """A finished stage; a line of `metrics.jsonl`.

    Attributes:
        epoch: from 1; 0: an evaluation, outside of training.
        complete: whether all examples of the split were handled.
    """

    split: Split
    epoch: int
    seconds: float
    examples: int
    metrics: Mapping[str, float]
    staleness: float | None
    complete: bool = True

    @property
    def examples_per_s(self) -> float:
        return self.examples / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Tally:
    """What a stage has counted; reports of workers are differences to its start."""

    examples: int = 0
    instances: int = 0
    staleness_before: Int64 = field(default_factory=lambda: np.zeros(1, np.int64))

    @staticmethod
    def since(reports: Mapping[int, WorkerReport]) -> Tally:
        return Tally(staleness_before=_staleness_counts(reports))

    def retire(self, retirement: Retirement) -> None:
        self.examples += int(retirement.n_examples.sum())
        self.instances += len(retirement.instances)

    def metrics(self, reports: Mapping[int, WorkerReport], mode: Mode) -> dict[str, float]:
        """Return the metrics of all losses so far.

        `loss` is the sum of all losses per example. Another metric keeps its name
        where one node has it, and is `<node>.<metric>` where several have.
        """
        by_node = {
            name: node.mode_metrics(mode.name.lower())
            for report in reports.values()
            for name, node in report.nodes.items()
        }
        owners: dict[str, list[str]] = {}
        for node, sums in by_node.items():
            for metric in sums:
                owners.setdefault(metric, []).append(node)
        result: dict[str, float] = {}
        for metric, nodes in owners.items():
            total: Metrics = {}
            for node in nodes:
                add_metrics(total, {metric: by_node[node][metric]})
                if len(nodes) > 1:
                    result[f"{node}.{metric}"] = self._value(by_node[node], metric)
            if len(nodes) == 1 or metric == "loss":
                result[metric] = self._value(total, metric)
        return result

    def _value(self, sums: Metrics, metric: str) -> float:
        entry = sums[metric]
        count = entry.count or self.examples
        return entry.total / count if count else 0.0

    def staleness(self, reports: Mapping[int, WorkerReport]) -> float | None:
        now = _staleness_counts(reports)
        now[: len(self.staleness_before)] -= self.staleness_before
        histogram = Histogram(now)
        return histogram.mean if histogram.total else None

    def result(
        self,
        split: Split,
        epoch: int,
        seconds: float,
        reports: Mapping[int, WorkerReport],
        mode: Mode,
        n_examples: int,
    ) -> StageResult:
        return StageResult(
            split,
            epoch,
            seconds,
            self.examples,
            self.metrics(reports, mode),
            self.staleness(reports) if mode is Mode.TRAIN else None,
            complete=self.examples == n_examples,
        )


def _staleness_counts(reports: Mapping[int, WorkerReport]) -> Int64:
    """Return one histogram of all nodes' staleness."""
    counts = [node.staleness for r in reports.values() for node in r.nodes.values()]
    total = np.zeros(max([1, *map(len, counts)]), np.int64)
    for some in counts:
        total[: len(some)] += np.asarray(some, np.int64)
    return total
