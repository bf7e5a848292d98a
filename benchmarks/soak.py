"""Memory, descriptors and threads of every process while many examples go through many workers.

    python benchmarks/soak.py [EXAMPLES] [key=value ...]
    make soak

x -> linear-1 -> ... -> linear-23 -> loss, a worker each, and the controller: all are looked at
after each epoch. What grows with examples shows as a slope; the first fifth is left out, as
stashes, buffers and allocators find their size there. Exit status 1: not flat.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amp_runtime.graph import Graph, PerExample

WORKERS = 24
FEATURES = 4
EPOCH = 5_000
WARM_UP = 0.2
MOST_KB = 500.0
"""Of resident memory that a process may gain in 100,000 examples: about one hundredth."""
CONFIG = f"""
name: soak
model: {{builder: "soak:build"}}
data: {{source: "soak:examples", batch: 50}}
training: {{max_active_keys: 16, update_every: 500, optimizer: {{name: sgd, lr: 0.01}}}}
checkpoint: {{every: {{epochs: 4}}}}
folder: {Path(__file__).parent}
"""
STARTED = re.compile(r" INFO (\S+) started .*?pid=(\d+)")
LOOK_EVERY_S = 0.2


def examples(split: str, seed: int) -> Iterator[dict[str, object]]:
    """Yield vectors and the sums of them, to train on."""
    drawn = np.random.default_rng(seed).normal(size=(EPOCH, FEATURES)).astype(np.float32)
    for x in drawn if split == "train" else drawn[:1]:
        yield {"x": [x], "target": [[x.sum()]]}


def build(graph: Graph) -> None:
    """Build a chain of linears, WORKERS nodes with its loss."""
    x = graph.input("x", each=PerExample, state={}, payload={"x": "x"})
    for number in range(1, WORKERS):
        features = FEATURES if number < WORKERS - 1 else 1
        x = graph.add("linear", f"linear-{number}", x, features=features)
    graph.add("squared_error", "loss", x)


@dataclass(frozen=True, slots=True)
class Look:
    """What a process held at one time."""

    rss_kb: int
    descriptors: int
    threads: int

    @staticmethod
    def at(pid: int) -> Look:
        status = Path(f"/proc/{pid}/status").read_text()
        rss, threads = (
            int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1])  # type: ignore[index]
            for name in ("VmRSS", "Threads")
        )
        return Look(rss, len(os.listdir(f"/proc/{pid}/fd")), threads)


Looks = list[tuple[int, Mapping[str, Look]]]
"""(examples trained on, {process: what it held})."""


def watch(process: subprocess.Popen[bytes], runs: Path, n_examples: int) -> Looks:
    """Look at all processes of a run after each epoch, until it has ended.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    looks: Looks = []
    while process.poll() is None:
        time.sleep(LOOK_EVERY_S)
        metrics = [*runs.glob("*/metrics.jsonl")]
        epochs = metrics[0].read_text().count('"train"') if metrics else 0
        trained = epochs * EPOCH
        if epochs and trained < n_examples and (not looks or looks[-1][0] < trained):
            pids = {"controller": process.pid, **_workers(metrics[0].parent / "logs")}
            looks.append((trained, {name: Look.at(pid) for name, pid in pids.items()}))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return looks


def _workers(logs: Path) -> dict[str, int]:
    found = (STARTED.search(log.read_text()) for log in logs.glob("*.log"))
    return {match[1]: int(match[2]) for match in found if match}


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return how much y grows with 100,000 of x, by least squares."""
    return float(np.polyfit(np.array(xs) / 100_000, ys, 1)[0])


def table(looks: Looks) -> tuple[str, bool]:
    """Return what all processes held and gained, as Markdown; and whether it is flat."""
    names = sorted(looks[0][1], key=lambda name: (name != "controller", len(name), name))
    after = [look for look in looks if look[0] >= WARM_UP * looks[-1][0]]
    xs = [examples for examples, _ in after]
    lines = [
        f"| process | MB at {xs[0]:,} examples | MB at {xs[-1]:,} | kB in 100,000 | descriptors | "
        "threads |",
        "|---|---|---|---|---|---|",
    ]
    flat = True
    for name in names:
        seen = [at[name] for _, at in after]
        gained = slope(xs, [look.rss_kb for look in seen])
        counts = [fewest(seen, what) for what in ("descriptors", "threads")]
        flat = flat and gained <= MOST_KB and all(later <= early for early, later in counts)
        cells = [f"{look.rss_kb / 1000:.1f}" for look in (seen[0], seen[-1])]
        cells += [f"{gained:+.0f}", *(f"{early}, {later}" for early, later in counts)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    verdict = "flat" if flat else "NOT flat"
    limit = f"at most {MOST_KB:g} kB in 100,000 examples, no more descriptors or threads"
    return "\n".join([*lines, "", f"{verdict}: {limit}"]), flat


def fewest(seen: Sequence[Look], what: str) -> tuple[int, int]:
    """Return the fewest of the first half and of the second: a file may be open at a look."""
    values = [getattr(look, what) for look in seen]
    half = max(len(values) // 2, 1)
    return min(values[:half]), min(values[half:] or values)


def main() -> int:
    n_examples, *settings = sys.argv[1:] or ["200000"]
    epochs = -(-int(n_examples) // EPOCH)
    with tempfile.TemporaryDirectory() as folder:
        config, runs = Path(folder) / "config.yaml", Path(folder) / "runs"
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "amp_runtime", "run", str(config), f"runtime.runs={runs}"]
        started = time.monotonic()
        with subprocess.Popen(
            [*command, f"training.max_epochs={epochs}", *settings], stdout=subprocess.DEVNULL
        ) as process:
            looks = watch(process, runs, epochs * EPOCH)
        seconds = time.monotonic() - started
    said, flat = table(looks)
    print(f"{epochs * EPOCH:,} examples through {WORKERS} workers in {seconds:.0f} s\n\n{said}")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
