"""Workers of a Tree-LSTM run, killed at each place of a worker: the run comes to what it would."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from runs import Run, Runner
from safetensors.numpy import load_file
from small_trees import sections, write_treebank

from amp_runtime.control.parameters import NodeParameters
from amp_runtime.failpoints import FAILPOINTS
from amp_runtime.prepare import prepare_file
from amp_runtime.reference import Reference
from workers.registry import Registry

pytestmark = pytest.mark.fault
TRAIN, VALID, EPOCHS = 60, 20, 4
WORKERS = {
    "words": ["embedding", "leaf"],
    "tree": ["nodes", "nodes-bcast", "top", "done", "children", "branch"],
    "readout": ["hidden", "logits", "loss"],
}
"""Each makes updates."""
TRAINING = {
    "optimizer": {"name": "adam", "lr": 0.03},
    "update_every": 10,
    "max_active_keys": 5,
    "max_epochs": EPOCHS,
}
ACCURATE = 0.9
"""Reached by a run that nothing happens to: by some way (see `undisturbed`)."""
PLACES = {
    "worker.before_ready": (1, "synchronous"),
    "worker.in_reset": (1, "asynchronous"),
    "worker.after_receive": (40, "synchronous"),
    "worker.before_forward": (50, "asynchronous"),
    "worker.after_forward": (60, "synchronous"),
    "worker.before_backward": (12, "asynchronous"),
    "worker.before_send": (70, "asynchronous"),
    "worker.after_answers": (20, "synchronous"),
    "worker.after_apply": (7, "synchronous"),
    "worker.before_barrier": (3, "asynchronous"),
    "worker.before_shard": (2, "asynchronous"),
    "worker.after_shard": (2, "synchronous"),
}
"""At which time that it is there each worker is killed, and under which schedule."""


def test_there_are_twelve_places_and_each_has_its_turn():
    assert len(PLACES) == 12
    assert PLACES.keys() == {name for name in FAILPOINTS if name.startswith("worker.")}


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trees") / "treebank"
    write_treebank(folder, train=TRAIN, valid=VALID)
    return folder


def config(runner: Runner, treebank: Path, schedule: str) -> Path:
    groups = [{"name": name, "nodes": nodes} for name, nodes in WORKERS.items()]
    return runner.config(
        **sections(treebank),
        dtype="float64",
        seed=2,
        training={**TRAINING, "schedule": schedule},
        checkpoint={"every": {"examples": 30}},
        runtime={"placement": {"host": groups}},
    )


@pytest.fixture(scope="module")
def undisturbed(treebank: Path, tmp_path_factory: pytest.TempPathFactory) -> NodeParameters:
    """What the synchronous run comes to in one process."""
    home = tmp_path_factory.mktemp("reference")
    prepared = prepare_file(config(Runner(home, ""), treebank, "synchronous"), [], Registry())
    reference = Reference(
        prepared.wiring, Registry(), prepared.train, prepared.valid, prepared.settings
    )
    found = reference.run().parameters
    assert reference.results[-1].metrics["accuracy"] > ACCURATE
    return found


def kills(place: str) -> str:
    """Return AMP_FAILPOINT: every worker is killed, once."""
    # By name: the controller has nodes of its own, while it estimates who has how much to do.
    each = [f"{place}:{worker}=kill@{PLACES[place][0]}" for worker in WORKERS]
    first = ["worker.after_apply:tree=kill@3"] if place == "worker.in_reset" else []
    return ",".join([*first, *each])


def killed(run: Run) -> list[str]:
    return re.findall(r"^warning: worker '(\w+)' .* signal 9 \(SIGKILL\)", run.out, re.MULTILINE)


@pytest.mark.parametrize("place", PLACES)
def test_each_worker_is_killed_at_a_place_and_the_run_comes_to_what_it_would(
    runner, treebank, undisturbed, monkeypatch, place
):
    schedule = PLACES[place][1]
    monkeypatch.setenv("AMP_TESTING", "1")
    monkeypatch.setenv("AMP_FAILPOINT", kills(place))
    run = runner.start(config(runner, treebank, schedule))
    ended = run.end(120.0)
    assert (ended.code, ended.err) == (0, "")
    assert sorted(killed(run)) == sorted(WORKERS)
    stages = run.stages()
    expected = [(epoch, split) for epoch in range(1, EPOCHS + 1) for split in ("train", "valid")]
    assert [(stage["epoch"], stage["split"]) for stage in stages] == expected
    assert [stage["examples"] for stage in stages] == [TRAIN, VALID] * EPOCHS
    assert all(stage["complete"] for stage in stages)
    assert stages[-1]["accuracy"] > ACCURATE
    if schedule == "synchronous":
        found = load_file(run.folder / "parameters.safetensors")
        for node, arrays in undisturbed.items():
            for name, array in arrays.items():
                worst = np.abs(found[f"{node}.{name}"] - array).max()
                assert worst <= 1e-8 * np.abs(array).max(), (node, name, worst)
