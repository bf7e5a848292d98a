"""List reduction at a given staleness, with and without compensation, beside the synchronous run.

    python benchmarks/staleness.py RESULTS SEEDS [key=value ...]
    make staleness SEEDS="0 1 2 3 4"

Epochs to the target of the config, one process per node; of the synchronous schedule by learning
rate, in one worker (placement changes nothing but rounding). What RESULTS (JSON lines) holds is
not run again. Printed is a Markdown table: medians over seeds, with the least and the most. A run
that does not reach the target counts with the epochs that it was given.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from results_file import Line, ResultsFile
from seeds import run_seed

CONFIG = "configs/list_reduction.yaml"
NODES = "embedding, loop, joined, linear-1, step, more, linear-2, loss"
NODE = "linear-1"
"""The recurrent node: that of which staleness is told."""

COMMON = ("data.batch=50", "training.update_every=50", "training.max_epochs=20")
LR, TARGET = 0.001, 0.97


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to train.

    Attributes:
        keys: instances in flight; 0: the synchronous schedule.
    """

    keys: int
    lr: float = LR
    compensation: str = "auto"

    @property
    def settings(self) -> list[str]:
        lr = f"training.optimizer.lr={self.lr}"
        if not self.keys:
            one_worker = f"runtime.placement={{host: [{{nodes: [{NODES}]}}]}}"
            return [lr, "training.schedule=synchronous", one_worker]
        asynchronous = [f"training.max_active_keys={self.keys}"]
        return [lr, *asynchronous, f"training.compensation={self.compensation}"]

    @property
    def words(self) -> str:
        return f"asynchronous, {self.compensation}" if self.keys else "synchronous"


SYNCHRONOUS = [Variant(0, lr) for lr in (0.0007, LR, 0.0014, 0.002)]
ASYNCHRONOUS = [Variant(keys, compensation=c) for keys in (14, 32) for c in ("auto", "none")]


def run(variant: Variant, seed: int, settings: Sequence[str]) -> dict[str, Any]:
    result = run_seed(CONFIG, seed, [*COMMON, *settings, *variant.settings])
    return {
        "epochs": result.epochs,
        "accuracy": result.accuracy,
        "seconds": round(result.seconds, 1),
        "staleness": result.node_staleness[NODE],
    }


def table(lines: Sequence[Line]) -> str:
    rows = [
        f"| | in flight | lr | staleness of {NODE} | reached {TARGET} | after epochs | "
        "of synchronous | accuracy | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    best = None
    for variant in (*SYNCHRONOUS, *ASYNCHRONOUS):
        found = [line for line in lines if line["variant"] == asdict(variant)]
        if not found:
            continue
        middle = {
            name: statistics.median(line[name] for line in found)
            for name in ("epochs", "staleness", "accuracy", "seconds")
        }
        epochs = [line["epochs"] for line in found]
        reached = sum(line["accuracy"] >= TARGET for line in found)
        if not variant.keys:
            best = min(best or middle["epochs"], middle["epochs"])
        ratio = f"{middle['epochs'] / best:.2f}" if best else "-"
        rows.append(
            f"| {variant.words} | {variant.keys or '-'} | {variant.lr} | "
            f"{middle['staleness']:.1f} | {reached} of {len(found)} | "
            f"{middle['epochs']:g} ({min(epochs)} to {max(epochs)}) | {ratio} | "
            f"{middle['accuracy']:.4f} | {middle['seconds']:.0f} |"
        )
    return "\n".join(rows)


def main() -> None:
    results, seeds, *settings = ResultsFile(Path(sys.argv[1])), *sys.argv[2:]
    numbers = [int(seed) for seed in seeds.split()]
    lines: list[Line] = []
    for seed in numbers:  # all variants of one seed first: what is there can be compared
        for variant in (*SYNCHRONOUS, *ASYNCHRONOUS):
            key = {"variant": asdict(variant), "seed": seed, "settings": settings}
            lines.append(results.get(key, lambda v=variant, s=seed: run(v, s, settings)))
    print(f"{CONFIG} {' '.join([*COMMON, *settings])}, seeds {seeds}\n\n{table(lines)}")


if __name__ == "__main__":
    main()
