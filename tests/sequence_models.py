"""Small data of sequences, and the variants of the model over them.

Sources are named in configs as `tests.sequence_models:<function>`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset

N_TOKENS, N_CLASSES, N_FEATURES = 6, 3, 4


def sequences(
    split: str,
    seed: int,
    *,
    train: int = 50,
    valid: int = 10,
    steps: str = "tokens",
    labels: str = "one",
    longest: int = 6,
) -> Dataset:
    """Return random sequences of 1 to `longest` steps.

    Args:
        steps: `tokens` or `values`, vectors of `N_FEATURES` numbers.
        labels: `one` a sequence, or `each` step its own.
    """
    generator = np.random.default_rng([seed, split == "valid"])
    n = train if split == "train" else valid
    counts = generator.integers(1, longest + 1, n)
    total = int(counts.sum())
    if steps == "tokens":
        given: Any = generator.integers(0, N_TOKENS, total)
    else:
        given = generator.normal(size=(total, N_FEATURES))
    label = generator.integers(0, N_CLASSES, total if labels == "each" else n)
    words = {"tokens": N_TOKENS} if steps == "tokens" else {}
    return Dataset.from_columns(
        {steps: (given, counts), "label": (label, counts) if labels == "each" else label},
        about=About({name: tuple(map(str, range(k))) for name, k in {**words, "label": 3}.items()}),
    )


Variant = dict[str, Any]
VARIANTS: dict[str, tuple[Variant, Variant]] = {
    "tanh-stacked": ({"cell": "tanh", "layers": 3}, {}),
    "relu-both-ways": ({"bidirectional": True}, {}),
    "lstm": ({"cell": "lstm"}, {}),
    "lstm-mean": ({"cell": "lstm", "readout": "mean"}, {}),
    "lstm-stacked-both-ways": ({"cell": "lstm", "layers": 2, "bidirectional": True}, {}),
    "lstm-tagger": (
        {"cell": "lstm", "layers": 2, "bidirectional": True, "readout": "every"},
        {"labels": "each"},
    ),
    "gru-values": ({"cell": "gru", "layers": 2}, {"steps": "values"}),
    "gru-values-max": (
        {"cell": "gru", "bidirectional": True, "readout": "max"},
        {"steps": "values"},
    ),
    "gru-values-tagger": (
        {"cell": "gru", "readout": "every"},
        {"steps": "values", "labels": "each"},
    ),
}
"""{name: (options of the model `rnn`, options of `sequences`)}."""
