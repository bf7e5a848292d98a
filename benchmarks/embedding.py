"""What an update of a large embedding costs, dense_equal beside lazy.

    python benchmarks/embedding.py [UPDATES]

A table of 20,000 x 128 in float32; each update sums the gradients of 4 batches of 600
tokens, about 2,000 rows of the table in all. CPU time of `accumulate`, update included.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np

from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.rows.message import Mode, Rows
from amp_runtime.rows.spec import INSTANCE, ArraySpec, PortSpec, StateSchema
from amp_runtime.rows.structure import StructureArena
from workers.embedding import Embedding

ENTRIES, FEATURES, BATCHES, TOKENS = 20_000, 128, 4, 600


def node(sparse: str, optimizer: dict[str, object]) -> Embedding:
    """Return an embedding that updates after BATCHES batches."""
    schema = StateSchema(((INSTANCE, 24),))
    return Embedding(
        NodeContext(
            name="embedding",
            kind="embedding",
            options=Embedding.Options(ENTRIES, FEATURES, sparse=sparse),
            inputs={"x": PortSpec({"x": ArraySpec((), "int32")}, schema)},
            outputs={"y": PortSpec({"x": ArraySpec((FEATURES,), "float32")}, schema)},
            wants_gradient=frozenset(),
            return_ports={"y": 1},
            dtype="float32",
            seed=0,
            structure=StructureArena({}),
            updates=UpdatePolicy(min_update_frequency=BATCHES * TOKENS),
            optimizer=optimizer,
        )
    )


def measure(made: Embedding, n_updates: int) -> tuple[float, float]:
    """Return (median ms of an update with its accumulation, mean rows of the table touched)."""
    generator = np.random.default_rng(1)
    columns = np.zeros((TOKENS, 3), np.int32)
    gradient = generator.normal(size=(TOKENS, FEATURES)).astype(np.float32)
    taken, touched = [], []
    for _ in range(n_updates):
        total, rows = 0.0, []
        for _ in range(BATCHES):
            rows.append(generator.integers(0, ENTRIES, TOKENS).astype(np.int32))
            (emitted,) = made.forward("x", Rows(columns, {"x": rows[-1]}, 1), Mode.TRAIN)
            made.backward("y", emitted.rows.columns[:, 1].copy(), {"x": gradient})
            started = time.thread_time()
            made.accumulate()
            total += time.thread_time() - started
        taken.append(1e3 * total)
        touched.append(len(np.unique(np.concatenate(rows))))
    assert made.version == n_updates
    return median(taken), float(np.mean(touched))


def main() -> None:
    n_updates = int(sys.argv[1]) if sys.argv[1:] else 50
    print("| optimizer | dense_equal | lazy | rows touched |\n|---|---|---|---|")
    for options in (
        {"name": "sgd", "lr": 0.1},
        {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        {"name": "adagrad"},
        {"name": "rmsprop"},
        {"name": "adam"},
    ):
        dense, rows = measure(node("dense_equal", options), n_updates)
        lazy, _ = measure(node("lazy", options), n_updates)
        words = ", ".join(str(v) if k == "name" else f"{k} {v}" for k, v in options.items())
        print(f"| {words} | {dense:.1f} ms | {lazy:.1f} ms | {rows:.0f} of {ENTRIES} |")


if __name__ == "__main__":
    main()
