"""Synchronous training equals autograd: every array within 1e-8 after 20 updates, in float64."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest
from runs import Runner

pytest.importorskip("torch", reason="PyTorch is not installed (make peers)")

import torch
from safetensors.numpy import load_file

from amp_runtime.commands import node_kinds
from amp_runtime.config.schema import load_config
from amp_runtime.data.dataset import Dataset
from amp_runtime.optim import OPTIMIZERS as OURS
from amp_runtime.prepare import Prepared, prepare
from amp_runtime.reference import Reference
from tests.graph_models import N_CLASSES, N_TOKENS
from tests.peers import graph_oracle, stacked_graphs
from tests.peers.torch_graphs import GatedGraph, TreeOfNodes, TreeOfRoots
from tests.peers.torch_models import (
    MLP,
    Batch,
    ListReductionRNN,
    NamedNodes,
    Parameters,
    peer_of,
    train_steps,
)
from tests.peers.torch_sequences import sequences_of
from tests.sequence_models import VARIANTS

pytestmark = pytest.mark.peers
TOLERANCE = 1e-8
UPDATES, EPOCHS = 20, 2
STEP, BATCH = 12, 5
STEP_EXAMPLES = 15
"""A step takes whole instances until it has 12 examples."""
N_EXAMPLES = STEP_EXAMPLES * (UPDATES // EPOCHS - 1) + 8
"""The last step of each epoch has 8, and its last instance 3: uneven on purpose."""

OPTIMIZERS = {
    "sgd": {"lr": 0.1, "momentum": 0.9},
    "adam": {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-7},
    "adagrad": {"lr": 0.02, "weight_decay": 0.01},
    "rmsprop": {"lr": 0.003, "decay": 0.9},
    "adamw": {"lr": 0.01, "weight_decay": 0.1},
}
SIZES = {"train": N_EXAMPLES, "valid": 10, "batch": BATCH}
BABI = Path(os.environ.get("AMP_DATA", ""), "babi15", "train_15_graphs.txt")
SMALL = {"hidden": 7, "embedding": 5, "dropout": 0.2}
MODELS = {
    "rnn": {
        "model": {"builder": "rnn", "hidden": 24, "embedding": 16},
        "data": {"source": "list_reduction", **SIZES},
    },
    **{
        cell: {
            "model": {"builder": f"tests.peers.cell_graphs:{cell}"},
            "data": {"source": "list_reduction", **SIZES},
        }
        for cell in ("lstm", "gru")
    },
    "mlp": {
        "model": {"builder": "mlp", "hidden": [20, 16]},
        "data": {"source": "pixels", **SIZES},
    },
    "graphs": {
        "model": {"builder": "tests.graph_models:gated_graph"},
        "data": {"source": "tests.graph_models:graphs", **SIZES},
    },
    "babi": {
        "model": {"builder": "tests.graph_models:gated_graph"},
        "data": {"source": "tests.graph_models:graphs", "path": str(BABI), **SIZES},
    },
    "ggsnn_node": {
        "model": {"builder": "ggsnn_node", "steps": 3},
        "data": {"source": "tests.graph_models:typed_graphs", **SIZES},
    },
    "ggsnn_graph": {
        "model": {"builder": "ggsnn_graph", "hidden": 6, "steps": 2},
        "data": {"source": "tests.graph_models:typed_graphs", **SIZES},
    },
    "roots": {
        "model": {"builder": "tests.graph_models:tree_of_roots"},
        "data": {"source": "tests.graph_models:trees", **SIZES},
    },
    "nodes": {
        "model": {"builder": "tests.graph_models:tree_of_nodes"},
        "data": {"source": "tests.graph_models:trees", **SIZES},
    },
    "tree_lstm": {
        "model": {"builder": "tree_lstm", "vocabulary": N_TOKENS, "classes": N_CLASSES, **SMALL},
        "data": {"source": "tests.graph_models:trees", **SIZES},
    },
    "child_sum": {
        "model": {
            "builder": "child_sum",
            "types": N_TOKENS,
            "classes": N_CLASSES,
            "input_dropout": 0.1,
            **SMALL,
        },
        "data": {"source": "tests.graph_models:wide_trees", **SIZES},
    },
    "stacked": {
        "model": {"builder": "tests.peers.stacked_graphs:build"},
        "data": {"source": "tests.peers.stacked_graphs:examples", **SIZES},
        "nodes": stacked_graphs.NODES,
    },
    **{
        f"rnn-{name}": {
            "model": {
                "builder": "rnn",
                "hidden": 6,
                **({} if data.get("steps") == "values" else {"embedding": 5}),
                **model,
            },
            "data": {"source": "tests.sequence_models:sequences", **data, **SIZES},
        }
        for name, (model, data) in VARIANTS.items()
    },
}
TORCH: Mapping[str, type[NamedNodes]] = {
    "rnn": ListReductionRNN,
    "mlp": MLP,
    "graphs": GatedGraph,
    "babi": GatedGraph,
    "roots": TreeOfRoots,
    "nodes": TreeOfNodes,
    **{f"rnn-{name}": sequences_of(model) for name, (model, _) in VARIANTS.items()},
}


@pytest.fixture(autouse=True, scope="module")
def _torch_has_its_threads() -> None:
    """It starts them at its first steps, for good; and a test may leave no thread behind."""
    torch.set_num_threads(1)
    parameters = {"linear-1": {"weight": np.ones((3, 2)), "bias": np.ones(2)}}
    train_steps(MLP, parameters, [(np.ones((1, 3)), np.zeros(1))], "adam", {"lr": 0.1})


@dataclass(frozen=True)
class Case:
    """One of our models and an optimiser, and the model in PyTorch.

    Attributes:
        model: None: the rows walk through the graph one by one.
    """

    prepared: Prepared
    model: type[NamedNodes] | None
    optimizer: str
    config: Path


EVERY: list[tuple[str, ...]] = [
    *((m, optimizer) for m in MODELS if m != "stacked" for optimizer in ("sgd", "adam")),
    ("stacked", "sgd"),
    *(("rnn", optimizer) for optimizer in ("adagrad", "rmsprop", "adamw")),
    *(
        (model, "adam", weights)
        for model in ("rnn", "lstm", "tree_lstm", "child_sum")
        for weights in ("stashed", "recompute")
    ),
]
IN_PROCESSES: list[tuple[str, ...]] = [
    *(("rnn", optimizer) for optimizer in OPTIMIZERS),
    *(("mlp", optimizer) for optimizer in ("sgd", "adam")),
    *((model, "adam") for model in ("lstm", "graphs", "roots", "nodes", "child_sum")),
    ("ggsnn_graph", "adam"),
    ("ggsnn_node", "sgd"),
    ("tree_lstm", "sgd"),
    ("gru", "sgd"),
    ("stacked", "sgd"),
    ("tree_lstm", "adam", "stashed"),
    ("child_sum", "sgd", "recompute"),
    ("rnn-lstm-tagger", "adam"),
]


@pytest.fixture
def case(request, runner: Runner) -> Case:
    return case_of(request.param, runner)


def case_of(which: tuple[str, ...], runner: Runner) -> Case:
    model, optimizer, *weights = which
    if model == "babi" and not BABI.is_file():
        pytest.skip("AMP_DATA/babi15/train_15_graphs.txt is not there")
    sections = MODELS[model]
    if model == "mlp":
        sections = {**sections, "data": {**sections["data"], "path": str(digits(runner.home))}}
    path = runner.config(
        **sections,
        seed=5,
        dtype="float64",
        verify=True,
        training={
            "schedule": "synchronous",
            "update_every": STEP,
            "max_epochs": EPOCHS,
            "optimizer": {"name": optimizer, **OPTIMIZERS[optimizer]},
            **({"backward_weights": weights[0]} if weights else {}),
        },
    )
    return Case(prepare(load_config(path), node_kinds()), TORCH.get(model), optimizer, path)


def digits(folder: Path) -> Path:
    """Write a CSV of random images: 784 pixels and a label each."""
    random = np.random.default_rng(2)
    path = folder / "digits.csv"
    with path.open("w", newline="") as file:
        pixels = random.integers(0, 256, (N_EXAMPLES + 10, 784))
        labels = random.integers(0, 10, (N_EXAMPLES + 10, 1))
        csv.writer(file).writerows(np.concatenate([pixels, labels], axis=1).tolist())
    return path


def batches(prepared: Prepared) -> list[Batch]:
    """Return the examples of each update: in the controller's order, no step across epochs."""
    made = []
    for epoch in range(1, EPOCHS + 1):
        order = prepared.train.order(prepared.settings.seed, epoch)
        for start in range(0, len(order), STEP_EXAMPLES):
            made.append(inputs(prepared.train, order[start : start + STEP_EXAMPLES]))
    assert len(made) == UPDATES
    return made


def born(prepared: Prepared) -> list[list[tuple[int, int, int]]]:
    """Return (number, instance, number within it) of the examples of each update."""
    made, instance = [], 0
    for epoch in range(1, EPOCHS + 1):
        order = prepared.train.order(prepared.settings.seed, epoch)
        every = [(int(i), instance + at // BATCH, at % BATCH) for at, i in enumerate(order)]
        made += [every[at : at + STEP_EXAMPLES] for at in range(0, len(every), STEP_EXAMPLES)]
        instance += -(-len(every) // BATCH) - (-len(prepared.valid) // BATCH)
    return made


def inputs(train: Dataset, examples: np.ndarray) -> Batch:
    field = next((name for name in ("tokens", "values", "pixels") if name in train.fields), None)
    if field is None:
        singles = [train.subset(examples[i : i + 1]) for i in range(len(examples))]
        return [{name: f.values for name, f in one.fields.items()} for one in singles], None
    labels = train.gather("label", examples).values
    steps = train.gather(field, examples)
    if field == "pixels":
        return steps.values, labels
    return np.split(steps.values, np.cumsum(steps.counts)[:-1]), labels


def initial(prepared: Prepared) -> Parameters:
    """Return the parameters that the nodes start with: of the seed and their names alone."""
    reference = Reference(
        prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
    )
    return {
        node.name: {name: array.copy() for name, array in node.parameters.items()}
        for node in reference.host.parameterised()
    }


def by_autograd(case: Case) -> Parameters:
    prepared, start = case.prepared, initial(case.prepared)
    if case.model is None:
        return graph_oracle.train_steps(
            prepared.wiring,
            start,
            prepared.train,
            born(prepared),
            prepared.settings.seed,
        )
    steps = batches(prepared)
    _, options = peer_of({"name": case.optimizer, **OPTIMIZERS[case.optimizer]})
    return train_steps(case.model, start, steps, case.optimizer, options)


def flat(parameters: Parameters) -> dict[str, np.ndarray]:
    return {
        f"{node}.{name}": a for node, arrays in parameters.items() for name, a in arrays.items()
    }


def assert_equal(ours: Mapping[str, np.ndarray], case: Case) -> None:
    wanted, began = flat(by_autograd(case)), flat(initial(case.prepared))
    assert ours.keys() == wanted.keys()
    for name, array in ours.items():
        assert array.dtype == np.float64
        scale = np.abs(wanted[name]).max()
        assert np.abs(array - began[name]).max() / scale > 1e-3, f"{name} did not train"
        assert np.abs(array - wanted[name]).max() / scale <= TOLERANCE, name


@pytest.mark.parametrize("case", EVERY, indirect=True, ids="-".join)
def test_reference_equals_autograd(case):
    prepared = case.prepared
    finished = Reference(
        prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
    ).run()
    for name in finished.parameters:
        assert finished.reports[1].nodes[name].updates == UPDATES
    assert_equal(flat(finished.parameters), case)


SCHEDULES = {
    "cosine": (
        {"name": "cosine", "over": 200, "final": 0.1},
        lambda n: 0.1 + 0.9 * (1 + math.cos(math.pi * min(1, n / 200))) / 2,
    ),
    "step after a warm-up": (
        {"name": "step", "every": 60, "factor": 0.5, "warm_up": 40},
        lambda n: min(1, n / 40) * 0.5 ** (n // 60),
    ),
}


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_schedule_and_clipping_equal_those_of_pytorch_stepped_with_each_update(schedule, runner):
    options, factor = SCHEDULES[schedule]
    norm = 0.2
    path = runner.config(
        **MODELS["rnn"],
        seed=5,
        dtype="float64",
        training={
            "schedule": "synchronous",
            "update_every": STEP,
            "max_epochs": EPOCHS,
            "optimizer": {"name": "sgd", **OPTIMIZERS["sgd"]},
            "lr_schedule": options,
            "clip": {"norm": norm},
        },
    )
    prepared = prepare(load_config(path), node_kinds())
    finished = Reference(
        prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
    ).run()
    steps = batches(prepared)
    before = np.cumsum([0, *(len(labels) for _, labels in steps)])
    wanted = train_steps(
        ListReductionRNN,
        initial(prepared),
        steps,
        "sgd",
        OPTIMIZERS["sgd"],
        lr_factors=[factor(int(n)) for n in before],
        clip_norm=norm,
    )
    clipped = {name: report.clipped for name, report in finished.reports[1].nodes.items()}
    assert 0 < clipped["linear-2"] <= UPDATES
    ours, theirs = flat(finished.parameters), flat(wanted)
    for name, array in ours.items():
        assert np.abs(array - theirs[name]).max() / np.abs(theirs[name]).max() <= TOLERANCE, name


@pytest.mark.process
@pytest.mark.parametrize("placement", ["process_per_node", "packed"])
@pytest.mark.parametrize("case", IN_PROCESSES, indirect=True, ids="-".join)
def test_processes_equal_autograd(case, runner, placement):
    assert runner.run(case.config, f"runtime.placement={placement}").code == 0
    ours = load_file(runner.last.folder / "parameters.safetensors")
    assert_equal(ours, case)


def test_processes_have_every_kind_and_every_option_of_every_optimiser(runner):
    kinds: set[str] = set()
    told: dict[str, set[str]] = {name: set() for name in OURS}
    for which in IN_PROCESSES:
        for node in case_of(which, runner).prepared.wiring.nodes:
            kinds.add(node.kind)
            if node.parameterised:
                optimizer = node.training["optimizer"]
                defaults = {f.name: f.default for f in fields(OURS[optimizer["name"]].Options)}
                changed = {n for n, v in optimizer.items() if n != "name" and v != defaults[n]}
                told[optimizer["name"]] |= changed
    assert kinds == set(node_kinds().names())
    assert told == {n: {f.name for f in fields(cls.Options)} for n, cls in OURS.items()}
