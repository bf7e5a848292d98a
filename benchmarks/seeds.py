"""Run one config with several seeds; print epochs, seconds and metrics, and their medians.

    python benchmarks/seeds.py CONFIG SEEDS [key=value ...]
    make seeds CONFIG=configs/list_reduction.yaml SEEDS="0 1 2 3 4"

Seconds are those of training and validation stages together, start-up left out; the
last column is the whole command.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One run: its validation stages, and how long the command took.

    Attributes:
        node_staleness: mean staleness of each node with parameters, as of the closing table.
    """

    seed: int
    valid: list[dict[str, Any]]
    stages: list[dict[str, Any]]
    command_s: float
    node_staleness: dict[str, float]

    @property
    def epochs(self) -> int:
        return int(self.valid[-1]["epoch"])

    @property
    def seconds(self) -> float:
        return float(sum(stage["seconds"] for stage in self.stages))

    @property
    def examples_per_s(self) -> float:
        train = [stage for stage in self.stages if stage["split"] == "train"]
        return float(sum(s["examples"] for s in train) / sum(s["seconds"] for s in train))

    @property
    def accuracy(self) -> float:
        return float(self.valid[-1]["accuracy"])

    @property
    def best(self) -> float:
        return max(float(stage["accuracy"]) for stage in self.valid)

    @property
    def staleness(self) -> float:
        values = [s["staleness"] for s in self.stages if s["staleness"] is not None]
        return statistics.fmean(values) if values else 0.0


def run_seed(config: str, seed: int, settings: list[str]) -> SeedResult:
    """Run `config` once.

    Raises:
        subprocess.CalledProcessError: the run failed.
    """
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "amp_runtime", "run", config]
        started = time.monotonic()
        subprocess.run(
            [*command, *settings, f"seed={seed}", f"runtime.runs={runs}"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        command_s = time.monotonic() - started
        (metrics,) = Path(runs).glob("*/metrics.jsonl")
        stages = [json.loads(line) for line in metrics.read_text().splitlines()]
        staleness = _node_staleness((metrics.parent / "report.txt").read_text())
    valid = [stage for stage in stages if stage["split"] == "valid"]
    return SeedResult(seed, valid, stages, command_s, staleness)


def _node_staleness(report: str) -> dict[str, float]:
    """Return a closing table's column `staleness`, by node."""
    headers, _, *rows = (line.split() for line in report.splitlines())
    column = headers.index("staleness")
    table = itertools.takewhile(lambda row: row[1] not in ("core:", "whose"), rows)
    return {row[0]: float(row[column]) for row in table if row[column] != "-"}


def table(results: list[SeedResult]) -> str:
    """Return the results as Markdown, the medians last."""
    columns = ("epochs", "seconds", "examples_per_s", "staleness", "accuracy", "best", "command_s")
    rows = [[r.seed, *(getattr(r, name) for name in columns)] for r in results]
    middle = [statistics.median(row[i] for row in rows) for i in range(1, len(columns) + 1)]
    lines = [
        "| seed | epochs | seconds | examples/s | staleness | last validation accuracy | best | "
        "command, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, epochs, seconds, rate, staleness, last, best, command_s in (
        *rows,
        ["median", *middle],
    ):
        lines.append(
            f"| {name} | {epochs:g} | {seconds:.0f} | {rate:.0f} | {staleness:.1f} | "
            f"{last:.4f} | {best:.4f} | {command_s:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    config, seeds, *settings = sys.argv[1:]
    results = []
    for seed in map(int, seeds.split()):
        results.append(run_seed(config, seed, settings))
        print(table(results[-1:]).splitlines()[2], flush=True)
    print(f"\n{config} {' '.join(settings)}\n\n{table(results)}")


if __name__ == "__main__":
    main()
