"""Ours beside its peers: examples a second in training and in evaluation, on the same two cores.

    AMP_DATA=<folder> python -m benchmarks.bench RESULTS [EXPERIMENT ...] [key=value ...]
    AMP_DATA=<folder> make bench EXPERIMENT="trees images" REPEATS=5 SET='key=value ...'

Repeats are interleaved: all contestants once, then all again. Each is a process of its own, which
has the machine to itself. RESULTS is a file of JSON lines, one a contestant and repeat; what it
holds is not measured again. Printed, and written beside it as .md and .json, are medians with the
least and the most, and each as a multiple of the best peer that is batched by hand. What is equal
for all, and what is not, docs/benchmarks.md tells.

Environment: REPEATS (5), SECONDS (5) of training and of evaluation of a peer, after WARM_UP (2).
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from amp_runtime.errors import nearest
from amp_runtime.processes.blas import blas_kernel
from amp_runtime.processes.launch import usable_cores
from benchmarks.experiments import EXPERIMENTS, Contestant, Experiment
from benchmarks.results_file import Line, ResultsFile

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 1200
VERSIONS_OF = ("amp_runtime", "numpy", "pyzmq", "torch", "torch_geometric", "dynet38")
MEASURES = {"train_per_s": "training", "evaluate_per_s": "forward only"}


def measure(
    name: str, experiment: Experiment, contestant: Contestant, settings: Sequence[str], seed: int
) -> dict[str, Any]:
    """Run one contestant once.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on standard error.
    """
    config = str(ROOT / "configs" / experiment.config)
    common = [*experiment.settings, *settings, f"seed={seed}"]
    if contestant.who == "ours":
        return ours(config, experiment, contestant, common)
    given = {
        "experiment": name,
        "config": config,
        "settings": common,
        "contestant": contestant.plain(),
        "warm_up_s": float(os.environ.get("WARM_UP", "2")),
        "seconds": float(os.environ.get("SECONDS", "5")),
    }
    command = [sys.executable, "-m", "benchmarks.contestant", json.dumps(given)]
    done = subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ours(
    config: str, experiment: Experiment, contestant: Contestant, settings: Sequence[str]
) -> dict[str, Any]:
    """Train a few epochs, the first of which is warm-up; no checkpoint, as the peers make none."""
    keys = [f"training.max_active_keys={contestant.size}"] if contestant.size else []
    with tempfile.TemporaryDirectory() as runs:
        own = [
            f"training.max_epochs={experiment.epochs}",
            f"runtime.placement={contestant.way}",
            "checkpoint.every=never",
            f"runtime.runs={runs}",
        ]
        command = [sys.executable, "-m", "amp_runtime", "run", config]
        subprocess.run(
            [*command, *own, *keys, *settings],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
        (metrics,) = Path(runs).glob("*/metrics.jsonl")
        stages = [json.loads(line) for line in metrics.read_text().splitlines()]
    return rates_of(stages)


def rates_of(stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rates of all epochs but the first, and what the last validation came to."""

    def rate(split: str) -> float:
        of_split = [s for s in stages if s["split"] == split and s["epoch"] > 1]
        return float(sum(s["examples"] for s in of_split) / sum(s["seconds"] for s in of_split))

    last = [stage for stage in stages if stage["split"] == "valid"][-1]
    told = {name: last[name] for name in ("loss", "accuracy", "error_ratio") if name in last}
    return {
        "train_per_s": rate("train"),
        "evaluate_per_s": rate("valid"),
        "examples": sum(s["examples"] for s in stages if s["split"] == "train"),
        "staleness": [s["staleness"] for s in stages if s["split"] == "train"][-1],
        "valid": {"epoch": last["epoch"], **told},
    }


# ------------------------------------------------------------------------------ the table


def summary(experiment: Experiment, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return a row for each contestant that was measured: medians, spread, multiples."""
    rows = []
    for contestant in experiment.contestants():
        found = [line for line in lines if line["contestant"] == contestant.plain()]
        if not found:
            continue
        row: dict[str, Any] = {"name": contestant.name, "repeats": len(found)}
        row["by_hand"] = contestant.is_batched_by_hand
        row["ours"] = contestant.who == "ours"
        for measured in MEASURES:
            values = [line[measured] for line in found]
            row[measured] = {
                "median": statistics.median(values),
                "least": min(values),
                "most": max(values),
            }
        row["valid"] = found[-1].get("valid")
        rows.append(row)
    for measured in MEASURES:
        by_hand = [row[measured]["median"] for row in rows if row["by_hand"]]
        for row in rows:
            one = row[measured]
            one["of_best_by_hand"] = one["median"] / max(by_hand) if by_hand else None
    return rows


def markdown(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of one experiment."""
    heads = [f"{word}, examples/s | of the best by hand" for word in MEASURES.values()]
    lines = [f"## {name}", "", f"| who | {' | '.join(heads)} | repeats | validation |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        cells = []
        for measured in MEASURES:
            one = row[measured]
            spread = f"({one['least']:,.0f} to {one['most']:,.0f})"
            multiple = one["of_best_by_hand"]
            cells.append(f"{one['median']:,.0f} {spread}")
            cells.append("-" if multiple is None else f"{multiple:.2f}")
        told = row["valid"]
        words = "-" if told is None else ", ".join(f"{n} {v:.4g}" for n, v in told.items())
        lines.append(f"| {row['name']} | {' | '.join(cells)} | {row['repeats']} | {words} |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Return what the figures depend on beside the code."""
    versions = {}
    for name in VERSIONS_OF:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "cores": usable_cores(),
        "processor": _processor(),
        "blas_of_numpy": blas_kernel()[1],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "load": os.getloadavg(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def missing(name: str, experiment: Experiment) -> str:
    """Return what an experiment's data lack; '': nothing."""
    path = Path(os.environ.get("AMP_DATA", "."), experiment.needs)
    if not experiment.needs or path.exists():
        return ""
    return f"{name} is left out: {path} is not there (AMP_DATA=<folder of the data>)"


def main() -> None:
    file, *words = sys.argv[1:]
    settings = [word for word in words if "=" in word]
    names = [word for word in words if "=" not in word] or list(EXPERIMENTS)
    for name in names:
        if name not in EXPERIMENTS:
            close = nearest(name, EXPERIMENTS)
            sys.exit(f"no experiment {name!r}{close}; there are {', '.join(EXPERIMENTS)}")
    results = ResultsFile(Path(file))
    left_out = [said for name in names if (said := missing(name, EXPERIMENTS[name]))]
    names = [name for name in names if not missing(name, EXPERIMENTS[name])]
    lacking = {c.missing for name in names for c in EXPERIMENTS[name].contestants() if c.missing}
    left_out += [f"{module} is not installed, its peers are left out" for module in lacking]
    print("\n".join(left_out), file=sys.stderr)
    for repeat in range(int(os.environ.get("REPEATS", "5"))):
        for name in names:
            for contestant in EXPERIMENTS[name].contestants():
                if contestant.missing:
                    continue
                key = {
                    "experiment": name,
                    "contestant": contestant.plain(),
                    "repeat": repeat,
                    "settings": settings,
                }
                results.get(
                    key,
                    lambda n=name, c=contestant, r=repeat: measure(
                        n, EXPERIMENTS[n], c, settings, r
                    ),
                )
    tables = {
        name: summary(EXPERIMENTS[name], results.lines(experiment=name, settings=settings))
        for name in names
    }
    facts = machine()
    text = "\n\n".join(markdown(name, rows) for name, rows in tables.items())
    text += "\n\n" + "\n".join([*left_out, *(f"{key}: {value}" for key, value in facts.items())])
    made = {"machine": facts, "settings": settings, "experiments": tables}
    Path(file).with_suffix(".md").write_text(text + "\n")
    Path(file).with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
