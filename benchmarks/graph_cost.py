"""What a bond costs, and how much memory a molecule in flight takes, from 10 to 10,000 of them.

    python benchmarks/graph_cost.py [HIDDEN [MOLECULES ...]]
    make graph-cost

The network of configs/qm9.yaml, HIDDEN wide (100), trains on random molecules: 9 heavy atoms
in a tree, 18 bonds of four types. All instances are one molecule, and as many are in flight at
once as the table says (10 100 1,000 10,000). In one process, without sockets, so that it is the
nodes, the controller and their stashes that are measured, each number in a fresh process:

    CPU     of an epoch of 1,000 molecules, or as many as are in flight, after one in which
            stashes grew to what they hold
    memory  the most that Python and numpy hold in an epoch of as many as are in flight, less
            what they hold with one; stashes double, so it is up to twice what rows take

CPU time on a busy machine is more than on a quiet one, most where memory is large.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from amp_runtime.config.schema import load_config
from amp_runtime.control.stages import Split, StageResult
from amp_runtime.data.graphs.graph_fields import graph_fields
from amp_runtime.prepare import prepare
from amp_runtime.reference import Reference
from workers.registry import Registry

CONFIG = """
name: graph_cost
model: {{builder: ggsnn_graph, hidden: {hidden}, steps: 4, edge_types: 4}}
data: {{source: "graph_cost:molecules", n: {n}, batch: 1}}
training:
  max_active_keys: {in_flight}
  update_every: 20
  optimizer: {{name: adam, lr: 0.001}}
  clip: {{norm: 1.0}}
  max_epochs: {epochs}
folder: {folder}
"""
HEAVY, HYDROGENS = 9, 10
N_ATOMS, N_BONDS = HEAVY + HYDROGENS, HEAVY + HYDROGENS - 1
IN_FLIGHT = (10, 100, 1_000, 10_000)
AT_LEAST = 1_000
"""Molecules of an epoch whose CPU time is taken."""


def molecules(split: str, seed: int, *, n: int) -> Iterator[dict[str, Any]]:
    """Yield trees of 9 heavy atoms, each bound to one before it, 10 hydrogens on them."""
    generator = np.random.default_rng([seed, split == "valid"])
    for _ in range(n if split == "train" else 0):
        before = [int(generator.integers(atom)) for atom in range(1, HEAVY)]
        before += generator.integers(0, HEAVY, HYDROGENS).tolist()
        kinds = [*generator.integers(0, 4, HEAVY - 1).tolist(), *[0] * HYDROGENS]
        bonds = list(zip(before, kinds, range(1, N_ATOMS), strict=True))
        elements = [*generator.integers(1, 5, HEAVY).tolist(), *[0] * HYDROGENS]
        yield {
            "annotation": np.eye(5, dtype=np.float32)[elements],
            "target": float(generator.normal()),
            **graph_fields(N_ATOMS, bonds, undirected=True),
        }


def reference(
    hidden: int,
    n: int,
    in_flight: int,
    epochs: int,
    on_stage: Callable[[StageResult], None] = lambda result: None,
) -> Reference:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        given = {"hidden": hidden, "n": n, "in_flight": in_flight, "epochs": epochs}
        path.write_text(CONFIG.format(**given, folder=Path(__file__).parent))
        prepared = prepare(load_config(path), Registry())
    return Reference(
        prepared.wiring, Registry(), prepared.train, prepared.valid, prepared.settings, on_stage
    )


def cpu_s(hidden: int, in_flight: int) -> float:
    """Return the CPU seconds of a molecule."""
    n, ends = max(in_flight, AT_LEAST), []

    def on_stage(result: StageResult) -> None:
        if result.split is Split.TRAIN:
            ends.append(time.process_time())

    reference(hidden, n, in_flight, 2, on_stage).run()
    first, second = ends  # between them is a validation, of nothing
    return (second - first) / n


def peak_bytes(hidden: int, in_flight: int) -> int:
    """Return the most that is held while `in_flight` molecules are."""
    made = reference(hidden, in_flight, in_flight, 1)
    tracemalloc.start()
    made.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def measured(what: str, hidden: int, in_flight: int) -> float:
    """Measure in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, what, str(hidden), str(in_flight)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(json.loads(done.stdout))


MEASURES = {"cpu_s": cpu_s, "peak_bytes": peak_bytes}


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in MEASURES:
        what, hidden, in_flight = sys.argv[1:]
        print(json.dumps(MEASURES[what](int(hidden), int(in_flight))))
        return
    hidden, *numbers = (int(argument) for argument in sys.argv[1:]) if sys.argv[1:] else (100,)
    alone = measured("peak_bytes", hidden, 1)
    print(f"{hidden} wide, 4 steps; molecules of {N_ATOMS} atoms and {N_BONDS} bonds\n")
    print("| in flight | CPU of a molecule, ms | of a bond, us | memory of a molecule, KB |")
    print("|---|---|---|---|")
    for in_flight in numbers or IN_FLIGHT:
        of_one = measured("cpu_s", hidden, in_flight)
        held = (measured("peak_bytes", hidden, in_flight) - alone) / (in_flight - 1)
        print(
            f"| {in_flight:,} | {1e3 * of_one:.2f} | {1e6 * of_one / N_BONDS:.0f} | "
            f"{held / 1024:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
