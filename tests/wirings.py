"""Small models and data for tests of what goes on between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amp_runtime.data.dataset import Dataset
from amp_runtime.graph import POSITION, Graph, PerExample, zeros
from amp_runtime.graph.wiring import Wiring
from amp_runtime.models import rnn
from amp_runtime.rows.spec import ArraySpec
from workers.registry import Registry

FIELDS = {
    "tokens": ArraySpec((), "int32"),
    "vector": ArraySpec((2,), "float64"),
    "label": ArraySpec((), "int32"),
    "last": ArraySpec((), "int32"),
}


def new_graph(**options: Any) -> Graph:
    """Return a graph over `FIELDS` in float64 with a state column `step` of 8 bits."""
    graph = Graph(Registry(), fields=FIELDS, **{"dtype": "float64", **options})
    graph.state(step=8)
    return graph


def chain(**options: Any) -> Wiring:
    """vector -> linear -> loss"""
    graph = new_graph(**options)
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    graph.add("softmax_cross_entropy", "loss", graph.add("linear", "linear", vector, features=2))
    return graph.build()


def tokens_chain(**options: Any) -> Wiring:
    """tokens -> embedding -> loss, one row a token"""
    graph = new_graph(**options)
    tokens = graph.input("tokens", each="tokens", state={"step": POSITION}, payload={"x": "tokens"})
    embedded = graph.add("embedding", "embedding", tokens, entries=10, features=2)
    graph.add("softmax_cross_entropy", "loss", embedded)
    return graph.build()


def recurrent(**options: Any) -> Wiring:
    """Return the RNN of `models.rnn`, 3 wide, over 10 tokens and 4 classes."""
    graph = Graph(Registry(), fields=FIELDS, **{"dtype": "float64", **options})
    rnn.build(graph, hidden=3, embedding=2, vocabulary=10, classes=4, step_bits=5)
    return graph.build()


def examples(lengths: Sequence[int], seed: int = 0) -> Dataset:
    """Return examples of the given numbers of tokens, with all `FIELDS`."""
    generator = np.random.default_rng(seed)
    n = len(lengths)
    total = int(sum(lengths))
    return Dataset.from_columns(
        {
            "tokens": (generator.integers(0, 10, total), np.array(lengths, np.int64)),
            "vector": (generator.normal(size=(n, 2)), np.ones(n, np.int64)),
            "label": generator.integers(0, 2, n),
            "last": np.array(lengths, np.int64) - 1,
        },
        where="test data",
    )


__all__ = ["POSITION", "Graph", "PerExample", "chain", "examples", "new_graph", "recurrent"]
__all__ += ["tokens_chain", "zeros"]
