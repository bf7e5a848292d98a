"""List reduction with replicas of its recurrent node: epochs and seconds to the target, by scheme.

    python benchmarks/replicas.py RESULTS SEEDS [key=value ...]
    make replicas SEEDS="0 1 2 3 4"

Each run is appended to RESULTS (JSON lines) when it is done, and not run again: what was
interrupted goes on. Printed is a Markdown table of the medians of all that RESULTS has for
these seeds and settings. Seconds are those of training and validation stages together.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from results_file import Line, ResultsFile
from seeds import run_seed

CONFIG = "configs/list_reduction.yaml"
NODE = "linear-1"
UPDATE_EVERY = 200
"""Examples, of that config. A replica that updates after its share of them makes as many
updates an epoch as the node alone does."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A number of replicas, and how they become one.

    Attributes:
        update_every: of each replica, in its own examples.
    """

    replicas: int
    scheme: str
    update_every: int
    average_every: int | str
    options: Mapping[str, Any]

    @property
    def settings(self) -> list[str]:
        """Return the settings of a run."""
        if self.replicas == 1:
            return []
        averaging = json.dumps({"name": self.scheme, **self.options})
        return [
            f"nodes.{NODE}.replicas={self.replicas}",
            f"nodes.{NODE}.update_every={self.update_every}",
            f"nodes.{NODE}.average_every={self.average_every}",
            f"nodes.{NODE}.averaging={averaging}",
        ]

    @property
    def words(self) -> str:
        options = "".join(f", {name}: {json.dumps(v)}" for name, v in self.options.items())
        return f"{self.scheme}{options}" if self.replicas > 1 else "-"


def variants() -> list[Variant]:
    """Return the node alone, then all schemes with 2 and with 4 replicas."""
    found = [Variant(1, "", UPDATE_EVERY, "-", {})]
    for r in (2, 4):
        share = UPDATE_EVERY // r
        found += [
            Variant(r, "mean", UPDATE_EVERY, "epoch", {}),
            Variant(r, "mean", share, "epoch", {}),
            Variant(r, "mean", share, 20, {}),
            Variant(r, "mean", share, 2, {}),
            Variant(r, "mean", share, 20, {"optimizer_state": "kept"}),
            Variant(r, "mean", share, 20, {"optimizer_state": "reset"}),
            Variant(r, "elastic", share, 20, {}),
            Variant(r, "block_momentum", UPDATE_EVERY, 20, {}),
            Variant(r, "block_momentum", share, 20, {"momentum": 0.2}),
            Variant(r, "block_momentum", UPDATE_EVERY, 20, {"nesterov": True}),
        ]
    return found


def run(variant: Variant, seed: int, settings: Sequence[str]) -> dict[str, Any]:
    result = run_seed(CONFIG, seed, [*settings, *variant.settings])
    return {
        "epochs": result.epochs,
        "seconds": round(result.seconds, 1),
        "accuracy": result.accuracy,
        "best": max(stage["accuracy"] for stage in result.valid),
        "staleness": round(result.staleness, 2),
    }


def table(lines: Sequence[Line]) -> str:
    """Return the medians of each variant as Markdown."""
    rows = [
        "| replicas | averaging | every, updates | update_every | runs | epochs | of one replica | "
        "seconds | accuracy | staleness |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    epochs_of_one = None
    for variant in variants():
        found = [line for line in lines if line["variant"] == asdict(variant)]
        if not found:
            continue
        middle = {
            name: statistics.median(line[name] for line in found)
            for name in ("epochs", "seconds", "accuracy", "staleness")
        }
        if variant.replicas == 1:
            epochs_of_one = middle["epochs"]
        ratio = f"{middle['epochs'] / epochs_of_one:.2f}" if epochs_of_one else "-"
        rows.append(
            f"| {variant.replicas} | {variant.words} | {variant.average_every} | "
            f"{variant.update_every} | {len(found)} | {middle['epochs']:g} | {ratio} | "
            f"{middle['seconds']:.0f} | {middle['accuracy']:.4f} | {middle['staleness']:.1f} |"
        )
    return "\n".join(rows)


def main() -> None:
    results, seeds, *settings = ResultsFile(Path(sys.argv[1])), *sys.argv[2:]
    lines: list[Line] = []
    for seed in map(int, seeds.split()):  # all variants of one seed first: they can be compared
        for variant in variants():
            key = {"variant": asdict(variant), "seed": seed, "settings": settings}
            lines.append(results.get(key, lambda v=variant, s=seed: run(v, s, settings)))
    print(f"{CONFIG} {' '.join(settings)}, seeds {seeds}\n\n{table(lines)}")


if __name__ == "__main__":
    main()
