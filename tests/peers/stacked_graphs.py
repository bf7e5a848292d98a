"""A model of the kinds that no ready model has; each of its nodes has an optimiser of its own.

tokens -> embedding -> seen -> normed -> stack (group) -+-> rows (ungroup) -> marks -> a loss each
                                                        +-> whole -> readout -> a loss in all
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from amp_runtime.graph import POSITION, Graph
from amp_runtime.rows.spec import Array, Columns
from amp_runtime.rows.structure import StructureArena

N_TOKENS, N_CLASSES, SIZE = 9, 3, 3

NODES: dict[str, dict[str, Any]] = {
    # SparseAdam adds eps to the root before it corrects the bias: with a small one that is equal.
    "embedding": {"sparse": "lazy", "optimizer": {"name": "adam", "lr": 0.01, "eps": 1e-30}},
    "seen": {
        "optimizer": {
            "name": "sgd", "lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.05
        }
    },
    "normed": {
        "optimizer": {
            "name": "rmsprop", "lr": 0.003, "decay": 0.8, "eps": 1e-6, "momentum": 0.5,
            "weight_decay": 0.02,
        }
    },
    "marks": {
        "optimizer": {
            "name": "adagrad", "lr": 0.05, "initial": 0.1, "eps": 1e-7, "weight_decay": 0.01
        }
    },
    "whole": {
        "optimizer": {
            "name": "adamw", "lr": 0.01, "beta1": 0.7, "beta2": 0.9, "eps": 1e-6,
            "weight_decay": 0.2,
        }
    },
    "readout": {
        "optimizer": {
            "name": "adam", "lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-7,
            "weight_decay": 0.03,
        }
    },
}  # fmt: skip
"""What `nodes` of the config says: every option of every optimiser, none as by default."""


def examples(split: str, seed: int, *, train: int = 50, valid: int = 10) -> Iterator[Any]:
    """Yield random examples of three tokens, each of which has two chances, and a label."""
    generator = np.random.default_rng([seed, split == "valid"])
    for _ in range(train if split == "train" else valid):
        yield {
            "tokens": generator.integers(0, N_TOKENS, SIZE),
            "chances": generator.random((SIZE, 2)),
            "label": generator.integers(N_CLASSES),
        }


def build(graph: Graph) -> None:
    graph.state(step=2)
    tokens = graph.input("tokens", each="tokens", state={"step": POSITION}, payload={"x": "tokens"})
    embedded = graph.add("embedding", "embedding", tokens, entries=N_TOKENS, features=4)
    seen = graph.add("linear", "seen", embedded, features=5, activation="tanh")
    normed = graph.add("layer_norm", "normed", seen)
    stacked = graph.add(
        "group",
        "stack",
        normed,
        reduce="stack",
        count=SIZE,
        key=f"{__name__}:to_start",
        position=f"{__name__}:step_of",
    )
    rows = graph.add("ungroup", "rows", stacked, state=f"{__name__}:to_position")
    marks = graph.add("linear", "marks", rows, features=2)
    graph.add("sigmoid_cross_entropy", "loss-of-marks", marks, target="chances", index="step")
    whole = graph.add("linear", "whole", stacked, features=6, activation="tanh")
    logits = graph.add("linear", "readout", whole, features=N_CLASSES)
    graph.add("softmax_cross_entropy", "loss", logits, label="label")


def to_start(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] * 0}


def step_of(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"]


def to_position(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns[POSITION]}
