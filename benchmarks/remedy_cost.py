"""What the remedies for delay cost one node: memory in copies of its weights, CPU of an update.

    python benchmarks/remedy_cost.py [REPEATS]
    make remedy-cost

A linear node of 512 x 512 weights (1 MB), Adam or Adagrad, every gradient DELAY updates late: a
forward of ROWS rows, the backward of the oldest, an update. Memory is what stays allocated after
UPDATES of them beyond `compensation: none, backward_weights: live`, at its peak; CPU the median
over repeats that take turns.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
from kinds import make, only, rows, slots, spec

from amp_runtime.graph.training_options import check_training
from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.rows.message import Mode, Rows

WIDTH, ROWS, DELAY, UPDATES = 512, 64, 4, 60
ADAM, ADAGRAD = {"name": "adam", "lr": 0.001}, {"name": "adagrad", "lr": 0.01}
VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"compensation": "none"},
    "auto": {"compensation": "auto"},
    "auto, adagrad": {"compensation": "auto", "optimizer": ADAGRAD},
    "predict: linear": {"compensation": {"predict": "linear"}},
    "predict: decaying": {"compensation": {"predict": "decaying"}},
    "predict: last_update": {"compensation": {"predict": "last_update"}},
    "momentum: raised": {"compensation": {"momentum": "raised"}},
    "step_size: by_row": {"compensation": {"step_size": "by_row"}},
    "step_size: by_node": {"compensation": {"step_size": "by_node"}},
    "drop_beyond: 8": {"compensation": {"drop_beyond": 8}},
    "backward_weights: stashed": {"backward_weights": "stashed"},
    "backward_weights: recompute": {"backward_weights": "recompute"},
}


def node(variant: dict[str, Any]) -> Any:
    given = {"compensation": "none", "optimizer": ADAM, "backward_weights": "live", **variant}
    checked, problems = check_training(given)
    assert not problems, problems
    checked["backward_weights"] = BackwardWeights(checked["backward_weights"])
    return make(
        "linear", spec(("x", (WIDTH,), "float32")), features=WIDTH, bias=False, dtype="float32",
        updates=UpdatePolicy(min_update_frequency=ROWS), optimizer=checked.pop("optimizer"),
        training=checked,
    )  # fmt: skip


def train(variant: dict[str, Any]) -> tuple[float, int]:
    """Return the CPU of an update, us, and the most bytes that stayed allocated after one."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, WIDTH)).astype(np.float32)
    delta = {"x": (generator.normal(size=(ROWS, WIDTH)) / 100).astype(np.float32)}
    came = Rows(rows([1] * ROWS, x=x).columns, {"x": x}, 2)
    tested = node(variant)
    waiting: deque[Any] = deque()
    cpu, most = [], 0
    for update in range(UPDATES):
        began = time.thread_time()
        waiting.append(only(tested.forward("x", came, Mode.TRAIN)))
        if len(waiting) > DELAY:
            tested.backward("y", slots(waiting.popleft()), delta)
            tested.accumulate()
            cpu.append(time.thread_time() - began)
        if tracemalloc.is_tracing() and update > UPDATES // 2:
            gc.collect()
            most = max(most, tracemalloc.get_traced_memory()[0])
    return median(cpu) * 1e6, most


def memory(variant: dict[str, Any]) -> int:
    tracemalloc.start()
    _, most = train(variant)
    tracemalloc.stop()
    return most


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for variant in VARIANTS.values():  # imports, first pages
        train(variant)
    cpu: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(repeats):
        for name, variant in VARIANTS.items():
            cpu[name].append(train(variant)[0])
    copy = WIDTH * WIDTH * np.dtype(np.float32).itemsize
    plain = {"adam": memory(VARIANTS["none"])}
    plain["adagrad"] = memory({"optimizer": ADAGRAD})
    print(f"{WIDTH} x {WIDTH} weights, {ROWS} rows an update, {DELAY} updates late\n")
    print("| | copies of the weights | CPU of an update, us |\n|---|---|---|")
    for name, variant in VARIANTS.items():
        beyond = memory(variant) - plain[variant.get("optimizer", ADAM)["name"]]
        print(f"| `{name}` | {beyond / copy:.2f} | {median(cpu[name]):.0f} |")


if __name__ == "__main__":
    main()
