"""How long a run of 12 nodes takes to its first update, and what a ready worker holds.

    python benchmarks/startup.py [RUNS]

The graph has one node of each built-in kind at least, and tiny parameters: what is
measured is the runtime. Seconds count from the start of the command to the first
update of `linear-1`, memory is VmRSS as a worker logs it when it is ready.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

from amp_runtime.graph import POSITION, Graph, PerExample, zeros

CONFIG = """
name: startup
model: {builder: "startup:build"}
data: {source: list_reduction, train: 100, valid: 0, batch: 100}
training: {update_every: 100, optimizer: {name: sgd, lr: 0.1}, max_epochs: 1}
"""
LIMIT_S, LIMIT_MB = 3.0, 40.0
"""What a run must keep to, medians of five."""
STARTED = re.compile(r"(\S+) INFO (\S+) started .*kinds=(\S+) .*rss_mb=(\S+)")
BARRIER = re.compile(r"(\S+) INFO linear-1 barrier .*updates=1 ")


def build(graph: Graph) -> None:
    """Build the list reduction network with a relu, a third linear, a bcast and a sink."""
    graph.state(step=6)
    tokens = graph.input("tokens", each="tokens", state={"step": POSITION}, payload={"x": "tokens"})
    start = graph.input("start", each=PerExample, state={"step": 0}, payload={"x": zeros((8,))})
    embedded = graph.add("embedding", "embedding", tokens, entries=14, features=8)
    loop = graph.add("phi", "loop", start, inputs=("start", "again"))
    joined = graph.add("concat", "joined", embedded, loop, inputs=("token", "hidden"))
    state = graph.add("linear", "linear-1", joined, features=8)
    active = graph.add("relu", "relu", state)
    stepped = graph.add("isu", "step", active, update="amp_runtime.models.rnn:next_step")
    more = graph.add("cond", "more", stepped, choose="amp_runtime.models.rnn:has_more")
    graph.connect(more["yes"], loop.port("again"))
    last = graph.add("linear", "linear-2", more["no"], features=8)  # drawn twice: a bcast
    logits = graph.add("linear", "linear-3", last, features=10)
    graph.add("softmax_cross_entropy", "loss", logits, label="label")
    graph.add("sink", "end", last)


def measure(folder: Path) -> tuple[float, dict[str, tuple[str, float]]]:
    """Run once; return (seconds to the first update, {node: (kind, MB when ready)})."""
    (folder / "config.yaml").write_text(CONFIG + f"folder: {Path(__file__).parent}\n")
    command = [sys.executable, "-m", "amp_runtime", "run", str(folder / "config.yaml")]
    root = str(Path(__file__).parents[1])
    began = time.time()
    subprocess.run(
        [*command, f"runtime.runs={folder}"],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": root},
    )
    text = "\n".join(log.read_text() for log in folder.glob("*/logs/*.log"))
    updated = BARRIER.search(text)
    assert updated is not None, text
    seconds = datetime.fromisoformat(updated[1]).timestamp() - began
    return seconds, {node: (kind, float(mb)) for _, node, kind, mb in STARTED.findall(text)}


def table(seconds: list[float], megabytes: dict[str, list[float]], n_nodes: int) -> str:
    """Return the medians as Markdown."""

    def row(what: str, values: list[float], unit: str, limit: float) -> str:
        middle = statistics.median(values)
        spread = f"{min(values):.2f} to {max(values):.2f}"
        return f"| {what} | {middle:.2f} {unit} | {spread} | {limit:g} {unit} |"

    every = [mb for values in megabytes.values() for mb in values]
    lines = [
        "| what | median | all | limit |",
        "|---|---|---|---|",
        row(f"start to first update, {n_nodes} nodes", seconds, "s", LIMIT_S),
        row("VmRSS of a ready worker, all kinds", every, "MB", LIMIT_MB),
        *(row(f"- {kind}", values, "MB", LIMIT_MB) for kind, values in sorted(megabytes.items())),
    ]
    return "\n".join(lines)


def main() -> None:
    n_runs = int(sys.argv[1]) if sys.argv[1:] else 5
    seconds: list[float] = []
    megabytes: dict[str, list[float]] = defaultdict(list)
    nodes: dict[str, Any] = {}
    for _ in range(n_runs):
        with tempfile.TemporaryDirectory() as folder:
            taken, nodes = measure(Path(folder))
        seconds.append(taken)
        for kind, mb in nodes.values():
            megabytes[kind].append(mb)
    n_cores = len(os.sched_getaffinity(0))
    print(f"{n_runs} runs on {n_cores} cores\n\n{table(seconds, megabytes, len(nodes))}")


if __name__ == "__main__":
    main()
