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
    """Run once; return the line for RESULTS."""
    result = run_seed(CONFIG, seed, [*settings, *variant.settings])
    accuracies = [stage["accuracy"] for stage in result.valid]
    return {
        **key(variant, seed, settings),
        "epochs": result.epochs,
        "seconds": round(result.seconds, 1),
        "accuracy": result.accuracy,
        "best": max(accuracies),
        "staleness": round(result.staleness, 2),
    }


def key(variant: Variant, seed: int, settings: Sequence[str]) -> dict[str, Any]:
    """Return what tells one run from all others."""
    return {"variant": asdict(variant), "seed": seed, "settings": list(settings)}


def known(results: Path) -> list[dict[str, Any]]:
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


def is_of(line: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(line[name] == value for name, value in wanted.items())


def table(lines: Sequence[Mapping[str, Any]]) -> str:
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
    results, seeds, *settings = Path(sys.argv[1]), *sys.argv[2:]
    numbers = [int(seed) for seed in seeds.split()]
    for seed in numbers:  # all variants of one seed first: what is there can be compared
        for variant in variants():
            if any(is_of(line, key(variant, seed, settings)) for line in known(results)):
                continue
            line = run(variant, seed, settings)
            results.parent.mkdir(parents=True, exist_ok=True)
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), file=sys.stderr, flush=True)
    lines = [li for li in known(results) if li["settings"] == settings and li["seed"] in numbers]
    print(f"{CONFIG} {' '.join(settings)}, seeds {seeds}\n\n{table(lines)}")


if __name__ == "__main__":
    main()
