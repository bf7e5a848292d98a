"""A synchronous run with an injected delay is delayed SGD or Adam, to 1e-10 in float64.

The gradient of update t is autograd's at each node's parameters of t - D, and the optimiser
PyTorch's, from the parameters of t: with `backward_weights: stashed`, or where the node's
dL/dx is nobody's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import Runner

pytest.importorskip("torch", reason="PyTorch is not installed (make peers)")

from amp_runtime.commands import node_kinds
from amp_runtime.delay.draws import make_delays
from amp_runtime.nodes.generators import node_key
from amp_runtime.prepare import Prepared, prepare_file
from amp_runtime.reference import Reference
from tests.peers import graph_oracle
from tests.peers.test_equality import (
    EPOCHS,
    MODELS,
    OPTIMIZERS,
    STEP,
    UPDATES,
    _torch_has_its_threads,  # noqa: F401 - a fixture
    born,
    flat,
    initial,
)

pytestmark = pytest.mark.peers
TOLERANCE = 1e-10
UNIFORM: Any = 3
RANDOM: Any = {"name": "random", "low": 1, "high": 5}
CASES = {
    "an embedding, linears by Adam": ("rnn", "adam", UNIFORM, {}),
    "an LSTM by Adam": ("lstm", "adam", UNIFORM, {}),
    "a node more than others, by SGD": ("rnn", "sgd", 1, {"linear-1": 6, "linear-2": 0}),
    "instances at random": ("rnn", "adam", RANDOM, {"embedding": 4}),
    "a tree at random": (
        "tree_lstm", "adam", {"name": "geometric", "mean": 1.5, "high": 6}, {}
    ),
}  # fmt: skip


def written(
    runner: Runner, model: str, optimizer: str, delay: Any, nodes: dict[str, Any], **training: Any
) -> Path:
    return runner.config(
        **{**MODELS[model], "nodes": {name: {"delay": d} for name, d in nodes.items()}},
        seed=5,
        dtype="float64",
        verify=True,
        training={
            "schedule": "synchronous",
            "update_every": STEP,
            "max_epochs": EPOCHS,
            "optimizer": {"name": optimizer, **OPTIMIZERS[optimizer]},
            "delay": delay,
            "backward_weights": "stashed",
            "compensation": "none",
            **training,
        },
    )


def by_autograd(prepared: Prepared) -> dict[str, np.ndarray]:
    seed = prepared.settings.seed
    delays = {
        node.name: make_delays(node.training["delay"], node_key(seed, node.name), node.name)
        for node in prepared.wiring.nodes
        if node.parameterised
    }

    def delay(node: str, version: int, instance: int) -> int:
        found = delays[node].of(version, np.array([instance], np.int32))
        return int(np.atleast_1d(found)[0])

    steps = born(prepared)
    start, train = initial(prepared), prepared.train
    return flat(graph_oracle.train_steps(prepared.wiring, start, train, steps, seed, delay))


def by_reference(path: Path, *overrides: str) -> tuple[dict[str, np.ndarray], Any]:
    """Return the parameters, and the nodes' reports."""
    prepared = prepare_file(path, overrides, node_kinds())
    finished = Reference(
        prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
    ).run()
    return flat(finished.parameters), finished.reports[1].nodes


def furthest(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    assert ours.keys() == theirs.keys()
    return max(np.abs(a - theirs[n]).max() / np.abs(theirs[n]).max() for n, a in ours.items())


@pytest.mark.parametrize("case", CASES)
def test_reference_with_an_injected_delay_is_the_delayed_optimiser(case, runner):
    model, optimizer, delay, nodes = CASES[case]
    path = written(runner, model, optimizer, delay, nodes)
    prepared = prepare_file(path, (), node_kinds())
    ours, reports = by_reference(path)
    assert furthest(ours, by_autograd(prepared)) <= TOLERANCE
    none = [f"nodes.{node}.delay=0" for node in nodes]
    assert furthest(ours, by_reference(path, "training.delay=0", *none)[0]) > 1e-3
    for node in prepared.wiring.nodes:
        if isinstance(updates := node.training.get("delay"), int):
            counts = reports[node.name].staleness
            assert reports[node.name].updates == UPDATES
            # Before there are so many updates, the weights are the first.
            assert len(counts) == updates + 1
            assert counts[updates] == max(counts)
            assert min(counts) > 0
