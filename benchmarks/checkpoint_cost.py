"""Throughput of sentiment with a checkpoint every five seconds, beside that with none.

    AMP_DATA=<folder> python benchmarks/checkpoint_cost.py RESULTS SEEDS [key=value ...]
    AMP_DATA=<folder> make checkpoint-cost SEEDS="0 1 2 3 4"

A pair of runs of one epoch for each seed, and the one that is first changes from pair to pair,
as a machine may be busier at one time than at another. Throughput is that of the stages of
training, in which all checkpoints but the last are made. Each run is appended to RESULTS (JSON
lines) when it is done, and not run again.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results_file import ResultsFile
from seeds import run_seed

CONFIG = "configs/sentiment.yaml"
EVERY_S = 5
NEVER, OFTEN = "never", f"{{seconds: {EVERY_S}}}"
MOST_LOSS = 0.03
"""Of the throughput without checkpoints."""


def measure(every: str, seed: int, settings: Sequence[str]) -> dict[str, Any]:
    """Train once; return the seconds of training, and examples a second."""
    result = run_seed(
        CONFIG, seed, ["training.max_epochs=1", *settings, f"checkpoint.every={every}"]
    )
    seconds = sum(stage["seconds"] for stage in result.stages if stage["split"] == "train")
    return {"seconds": round(seconds, 2), "examples_per_s": round(result.examples_per_s, 2)}


def pairs(results: ResultsFile, seeds: Sequence[int], settings: Sequence[str]) -> list[list[Any]]:
    """Return [seed, seconds, examples/s without, examples/s with checkpoints] for each seed."""
    rows = []
    for number, seed in enumerate(seeds):
        found = {}
        for every in (NEVER, OFTEN) if number % 2 == 0 else (OFTEN, NEVER):
            key = {"every": every, "seed": seed, "settings": list(settings)}
            found[every] = results.get(
                key, lambda every=every, seed=seed: measure(every, seed, settings)
            )
        without, often = found[NEVER], found[OFTEN]
        rows.append([seed, often["seconds"], without["examples_per_s"], often["examples_per_s"]])
    return rows


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Return the pairs as Markdown, their medians last, and what checkpoints cost."""
    lines = [
        f"| seed | seconds | checkpoints | trees/s, none | trees/s, every {EVERY_S} s | cost |",
        "|---|---|---|---|---|---|",
    ]
    for seed, seconds, without, often in rows:
        n_checkpoints, cost = int(seconds // EVERY_S), 1 - often / without
        lines.append(
            f"| {seed} | {seconds:.0f} | {n_checkpoints} | {without:.1f} | {often:.1f} | "
            f"{cost:+.1%} |"
        )
    middle = statistics.median(1 - often / without for _, _, without, often in rows)
    verdict = "within" if middle <= MOST_LOSS else "more than"
    said = f"median cost {middle:+.1%}: {verdict} {MOST_LOSS:.0%}"
    return "\n".join([*lines, "", said])


def main() -> None:
    path, seeds, *settings = sys.argv[1:]
    print(table(pairs(ResultsFile(Path(path)), [*map(int, seeds.split())], settings)))


if __name__ == "__main__":
    main()
