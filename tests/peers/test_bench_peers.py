"""The peers of the benchmark do our work: loss and gradients of some examples are ours.

A step of SGD with a learning rate of 1 is the gradient; so what is compared are parameters after
one synchronous update of ours and one of theirs, and, beside it, the loss.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("torch", reason="PyTorch is not installed (make peers)")

import torch
from runs import CHECKOUT, environment

from amp_runtime.commands import node_kinds
from amp_runtime.config.schema import load_config
from amp_runtime.prepare import Prepared, prepare
from amp_runtime.reference import Reference
from benchmarks.peers.images import Perceptron
from benchmarks.peers.model import PeerModel, Step, prepare_steps
from benchmarks.peers.molecules import ByHand
from benchmarks.peers.one_process import OneProcess
from benchmarks.peers.sequences import ByModule, ByStep, of_one_length
from benchmarks.peers.trees import ByBranch, ByLevel
from benchmarks.peers.updating import Rule
from tests.graph_models import N_CLASSES, N_TOKENS
from tests.peers.test_equality import digits
from tests.pure.test_qm9 import SMALL

pytestmark = pytest.mark.peers
N, TOLERANCE = 12, 1e-9
SGD = {"name": "sgd", "lr": 1.0}
SIZES = {"train": N, "valid": 5, "batch": 4}
TREES = {
    "model": {"builder": "tree_lstm", "hidden": 7, "vocabulary": N_TOKENS, "classes": N_CLASSES},
    "data": {"source": "tests.graph_models:trees", **SIZES},
}
SEQUENCES = {
    "model": {"builder": "rnn", "hidden": 9, "embedding": 6},
    "data": {"source": "list_reduction", **SIZES},
}
IMAGES = {"model": {"builder": "mlp", "hidden": [20, 16]}, "data": {"source": "pixels", **SIZES}}
MOLECULES = {
    "model": {"builder": "ggsnn_graph", "hidden": 11, "steps": 4},
    "data": {"source": "qm9", "train": 4, "valid": 0, "batch": 2},
}
PEERS: Mapping[str, tuple[Mapping[str, Any], type[PeerModel], bool]] = {
    "trees by level": (TREES, ByLevel, False),
    "trees by branch": (TREES, ByBranch, True),
    "sequences by step": (SEQUENCES, ByStep, False),
    "sequences by module": (SEQUENCES, ByModule, False),
    "sequences one by one": (SEQUENCES, ByStep, True),
    "images": (IMAGES, Perceptron, False),
    "images one by one": (IMAGES, Perceptron, True),
    "molecules": (MOLECULES, ByHand, False),
    "molecules one by one": (MOLECULES, ByHand, True),
}


def made(
    sections: Mapping[str, Any], folder: Path, dtype: str = "float64", **training: Any
) -> Prepared:
    """Prepare one of the models on a few examples."""
    data = dict(sections["data"])
    if data["source"] == "pixels":
        data |= {"path": str(digits(folder))}
    elif data["source"] == "qm9":
        np.savez(folder / "four.npz", **SMALL)
        data |= {"path": str(folder / "four.npz")}
    given = {"schedule": "synchronous", "update_every": N, "max_epochs": 1, "optimizer": SGD}
    config = {
        "name": "peer",
        "model": sections["model"],
        "data": data,
        "dtype": dtype,
        "seed": 3,
        "training": {**given, **training},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return prepare(load_config(path), node_kinds())


def ours(prepared: Prepared) -> tuple[Any, Any, float]:
    """Return our parameters before and after one epoch, and its loss."""
    run = Reference(
        prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
    )
    before = {
        node.name: {name: array.copy() for name, array in node.parameters.items()}
        for node in run.host.parameterised()
    }
    after = run.run().parameters
    return before, after, run.results[0].metrics["loss"]


def parameters(net: PeerModel) -> dict[str, dict[str, np.ndarray]]:
    arrays = net.arrays()
    return arrays | ({"embedding": {"table": net.table.numpy()}} if net.table is not None else {})


def assert_equal(theirs: Any, before: Any, after: Any, tolerance: float = TOLERANCE) -> None:
    """Assert that their change of every parameter is ours, and that there is one."""
    assert theirs.keys() == after.keys()
    changed = 0
    for node, arrays in after.items():
        for name, array in arrays.items():
            change = array - before[node][name]
            scale = max(np.abs(change).max(), 1e-12)
            far = np.abs(theirs[node][name] - array).max()
            assert far <= tolerance * scale, (node, name, far, scale)
            changed += bool(np.any(change))
    assert changed >= len(after)


def steps_of(model: type[PeerModel], prepared: Prepared, one_by_one: bool) -> list[Step]:
    """Return the training examples as one step."""
    data, order = prepared.train, np.arange(len(prepared.train))
    if "tokens" not in data.fields or one_by_one:
        return prepare_steps(model, data, [order], one_by_one=one_by_one)
    # A part for each length: together they are the step.
    parts = prepare_steps(model, data, of_one_length(data, order, 100))
    return [Step(tuple(part for step in parts for part in step.parts), len(order))]


@pytest.mark.parametrize("peer", list(PEERS))
def test_a_step_of_a_peer_is_ours(peer, tmp_path):
    sections, model, one_by_one = PEERS[peer]
    prepared = made(sections, tmp_path)
    before, after, loss = ours(prepared)
    net = model(before, torch.float64)
    (step,) = steps_of(model, prepared, one_by_one)
    trainer = OneProcess(net, Rule.of(prepared.config))
    of_all, _ = trainer.evaluate(step)
    assert of_all / step.n_examples == pytest.approx(loss, rel=TOLERANCE)
    assert trainer.update(step) == pytest.approx(loss, rel=TOLERANCE)
    assert_equal(parameters(net), before, after)


@pytest.mark.parametrize("peer", ["trees by level", "molecules"])
def test_updates_of_the_peers_are_ours_by_the_optimisers_that_they_run_with(peer, tmp_path):
    sections, model, _ = PEERS[peer]
    rule: dict[str, Any] = {"optimizer": {"name": "adagrad", "lr": 0.05}}
    if peer == "molecules":
        rule = {"optimizer": {"name": "adam", "lr": 0.01}, "clip": {"norm": 0.3}}
    prepared = made(sections, tmp_path, update_every=4, **rule)
    before, after, _ = ours(prepared)
    net = model(before, torch.float64)
    trainer = OneProcess(net, Rule.of(prepared.config))
    order = prepared.train.order(3, 1)
    for step in prepare_steps(
        model, prepared.train, [order[i : i + 4] for i in range(0, len(order), 4)]
    ):
        trainer.update(step)
    assert_equal(parameters(net), before, after)


def test_the_right_and_the_error_of_an_evaluation_are_counted(tmp_path):
    prepared = made(IMAGES, tmp_path)
    before, _, _ = ours(prepared)
    net = Perceptron(before, torch.float64)
    (step,) = steps_of(Perceptron, prepared, False)
    with torch.no_grad():
        y = step.parts[0].pixels
        for number in (1, 2, 3):
            y = net.nodes[f"linear-{number}"](y if number == 1 else torch.relu(y))
    right = (y.argmax(dim=1) == step.parts[0].label).sum().item()
    assert OneProcess(net, Rule.of(prepared.config)).evaluate(step)[1] == right


def test_pytorch_geometric_makes_our_step(tmp_path):
    pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed (make bench)")
    from benchmarks.peers.pyg_molecules import ByGeometric

    prepared = made(MOLECULES, tmp_path)
    before, after, loss = ours(prepared)
    net = ByGeometric(before, torch.float64)
    (step,) = steps_of(ByGeometric, prepared, False)
    trainer = OneProcess(net, Rule.of(prepared.config))
    assert trainer.update(step) == pytest.approx(loss, rel=TOLERANCE)
    own = {node: arrays for node, arrays in parameters(net).items() if node in before}
    assert_equal(own, before, after)


def test_dynet_makes_our_step(tmp_path):
    pytest.importorskip("dynet_config", reason="DyNet is not installed (make bench)")
    from benchmarks.peers.dynet_trees import DynetTrees, trees_of

    prepared = made(TREES, tmp_path, "float32")
    before, after, loss = ours(prepared)
    net = DynetTrees(before, SGD)
    trees = trees_of(prepared.train, np.arange(N))
    assert net.evaluate(trees)[0] / N == pytest.approx(loss, rel=1e-5)
    assert net.update(trees) == pytest.approx(loss, rel=1e-5)
    assert_equal(net.arrays(), before, after, tolerance=1e-4)


# In a process of its own: it is forked, which a test with threads must not be.
TWO = """
import json, sys
sys.path.insert(0, "tests")
import numpy as np, torch
torch.set_num_threads(1)
from pathlib import Path
from benchmarks.peers.two_processes import HalfOfTwo
from benchmarks.peers.model import prepare_steps
from benchmarks.peers.updating import Rule
from tests.peers import test_bench_peers as t
peer, folder, training = json.loads(sys.argv[1])
sections, model, one_by_one = t.PEERS[peer]
prepared = t.made(sections, Path(folder), **training)
before, after, _ = t.ours(prepared)
order, n = prepared.train.order(3, 1), prepared.config.training.update_every
batches = [order[i : i + n] for i in range(0, len(order), n)]
def steps(rank):
    return prepare_steps(model, prepared.train, batches, one_by_one=one_by_one, rank=rank, of=2)
net = model(before, torch.float64)
both = HalfOfTwo(net, Rule.of(prepared.config), t.N_TOKENS)
both.start_second(lambda: [both.update(step) for step in steps(1)])
for step in steps(0):
    both.update(step)
both.wait_for_second()
t.assert_equal(t.parameters(net), before, after)
"""
TOGETHER: Mapping[str, Mapping[str, Any]] = {
    "trees by level": {"optimizer": {"name": "adagrad", "lr": 0.05}, "update_every": 4},
    "trees by branch": {"optimizer": SGD, "update_every": 4},
    "images": {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}, "update_every": 4},
    "molecules": {"optimizer": SGD, "clip": {"norm": 0.3}, "update_every": 4},
}


@pytest.mark.parametrize("peer", list(TOGETHER))
def test_two_processes_make_our_updates_together(peer, tmp_path):
    given = json.dumps([peer, str(tmp_path), TOGETHER[peer]])
    done = subprocess.run(
        [sys.executable, "-c", TWO, given],
        cwd=CHECKOUT,
        env=environment() | {"PYTHONPATH": ":".join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


TWO_OF_WHICH_ONE_FAILS = """
import torch
torch.set_num_threads(1)
from benchmarks.peers.two_processes import Meeting
import os
meeting = Meeting()
if pid := os.fork():
    meeting.other = pid
    meeting.wait()
os._exit(1)
"""


def test_who_waits_for_a_process_that_has_ended_says_so():
    done = subprocess.run(
        [sys.executable, "-c", TWO_OF_WHICH_ONE_FAILS],
        cwd=CHECKOUT,
        env=environment() | {"PYTHONPATH": ":".join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "the second process has ended" in done.stderr
