"""Runs that were killed, stopped or damaged, and go on from their checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from runs import FOR_EVER, Run, Runner, environment, wait_until
from safetensors.numpy import load_file

from amp_runtime.checkpoint.store import newest

pytestmark = pytest.mark.fault
EXACT = {"dtype": "float64", "seed": 4}
SYNCHRONOUS = {
    "schedule": "synchronous",
    "update_every": 20,
    "optimizer": {"name": "adam", "lr": 0.01},
    "max_epochs": 5,  # 50 updates
}
LONG = f"training.max_epochs={FOR_EVER}"


def checkpoints(run: Run) -> list[int]:
    """Return the numbers of a run's checkpoints that are whole."""
    found = (run.folder / "checkpoints").glob("checkpoint-*/MANIFEST.json")
    return sorted(int(p.parent.name[11:]) for p in found if p.parent.name[11:].isdecimal())


def wait_for_checkpoint(run: Run, number: int) -> None:
    def there() -> bool:
        assert run.process.poll() is None, run.out + run.err
        return max(checkpoints(run), default=0) >= number

    wait_until(there, f"checkpoint {number}")


def command(run: Run, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "amp_runtime", *words],
        cwd=run.home, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def parameters(run: Run) -> dict[str, Any]:
    return load_file(run.folder / "parameters.safetensors")


def test_9_10_a_controller_that_is_killed_goes_on_elsewhere_and_comes_to_the_same(runner: Runner):
    config = runner.config(**EXACT, training=SYNCHRONOUS)
    every = "checkpoint.every={updates: 7}"
    whole = runner.start(config, every)
    assert whole.end().code == 0
    run = runner.start(config, every)
    wait_for_checkpoint(run, 3)
    run.signal(signal.SIGKILL)
    run.end()
    wait_until(lambda: not runner.processes(), "no worker is left")
    assert command(run, "verify", str(run.folder)).returncode == 0
    before, _ = newest(run.folder / "checkpoints")
    again = runner.resume(run, "runtime.placement=packed", "training.max_active_keys=7")
    ended = again.end()
    assert ended.code == 0, ended.err
    assert "going on from checkpoint-0000" in ended.out
    theirs = parameters(whole)
    for name, array in parameters(again).items():
        assert np.abs(array - theirs[name]).max() <= 1e-8 * np.abs(theirs[name]).max(), name
    one, other = whole.stages(), again.stages()
    assert [(s["split"], s["epoch"]) for s in one] == [(s["split"], s["epoch"]) for s in other]
    for mine, expected in zip(other, one, strict=True):
        assert mine["loss"] == pytest.approx(expected["loss"], rel=1e-8)
    after, _ = newest(run.folder / "checkpoints")
    assert (before.generation, after.generation) == (0, 1)
    (resumed,) = again.json("manifest.json")["resumed"]
    assert resumed["overrides"] == ["runtime.placement=packed", "training.max_active_keys=7"]


def test_145_a_run_that_is_stopped_says_how_it_goes_on_and_its_checkpoint_is_evaluated(runner):
    run = runner.start(runner.config(), LONG)
    run.wait_training()
    run.signal(signal.SIGINT)
    ended = run.end()
    assert ended.code == 130
    assert f"run --resume {run.folder} goes on from checkpoint 1" in ended.out
    before = run.stages()
    (run.folder / "parameters.safetensors").unlink()
    told = command(run, "evaluate", str(run.folder), "data.valid=20")
    assert told.returncode == 0, told.stderr
    assert f"{run.folder}, checkpoint-000001: 20 examples" in told.stdout
    again = runner.resume(run, f"training.max_epochs={before[-1]['epoch'] + 1}")
    assert again.end().code == 0
    stages = [(s["epoch"], s["split"]) for s in again.stages()]
    assert stages == sorted(set(stages))
    assert stages[-1] == (before[-1]["epoch"] + 1, "valid")
    assert all(s["complete"] for s in again.stages())


def test_1_a_worker_that_is_killed_costs_what_came_after_the_checkpoint(runner):
    run = runner.start(runner.config(), LONG, "checkpoint.every={epochs: 1}")
    wait_for_checkpoint(run, 2)
    run.kill("linear-1")
    run.wait_for(r"generation 1: all go back to checkpoint \d+")
    run.wait_for("generation 1: training goes on")
    number = max(checkpoints(run))
    wait_for_checkpoint(run, number + 1)
    run.signal(signal.SIGINT)
    run.end()
    stages = [(s["epoch"], s["split"]) for s in run.stages() if s["complete"]]
    assert stages == sorted(set(stages))
    assert command(run, "verify", str(run.folder)).returncode == 0


def test_53_what_does_not_fit_is_refused_before_any_worker_starts(runner):
    run = runner.start(runner.config(), "training.max_epochs=1")
    assert run.end().code == 0
    logs = {p: p.read_bytes() for p in (run.folder / "logs").iterdir()}
    for words, said in (
        (["model.hidden=9"], r"features is 9, was 8"),
        (["data.train=199"], "the train examples are others"),
        (["runtime.record=true"], "a run that goes on is not recorded"),
        ([str(runner.home / "config.yaml")], "goes on with the run's own config"),
    ):
        ended = runner.resume(run, *words).end()
        assert ended.code in (64, 74), ended.err
        assert said in ended.last_line
    assert {p: p.read_bytes() for p in (run.folder / "logs").iterdir()} == logs
    config = (run.folder / "config.yaml").read_text()
    assert "hidden: 8" in config


def test_49_a_damaged_checkpoint_is_named_and_an_older_one_taken_on_demand(runner):
    run = runner.start(runner.config(), "training.max_epochs=3", "checkpoint.every={epochs: 1}")
    assert run.end().code == 0
    shard = run.folder / "checkpoints" / "checkpoint-000003" / "linear-1.safetensors"
    os.truncate(shard, shard.stat().st_size - 1)
    told = command(run, "verify", str(run.folder))
    assert told.returncode == 74
    assert f"damaged: {shard}: has {shard.stat().st_size} bytes, but had" in told.stdout
    ended = runner.resume(run).end()
    assert ended.code == 74
    assert str(shard) in ended.last_line
    assert "--allow-older" in ended.last_line
    again = runner.resume(run, "--allow-older")
    ended = again.end()
    assert (ended.code, "going on from 2" in ended.out) == (0, True)
    assert [s["epoch"] for s in again.stages() if s["split"] == "train"] == [1, 2, 3]


def test_47_checkpoints_that_cannot_be_written_end_a_run_after_some(runner):
    run = runner.start(runner.config(), LONG, "checkpoint.every={epochs: 1}")
    wait_for_checkpoint(run, 1)
    (run.folder / "checkpoints").rename(run.folder / "aside")
    (run.folder / "checkpoints").write_text("in its place")
    ended = run.end()
    assert ended.code == 74
    assert ended.last_line.startswith("AMP-E308: checkpoint ")
    assert "3 in a row could not" in ended.last_line
    assert ended.out.count("and training goes on") == 2


def test_55_a_run_that_goes_on_is_not_gone_on_with(runner):
    run = runner.start(runner.config(), LONG, "checkpoint.every={epochs: 1}")
    wait_for_checkpoint(run, 1)
    told = command(run, "run", "--resume", str(run.folder))
    assert told.returncode == 74
    assert f'another run writes there: {{"pid": {run.process.pid}' in told.stderr
    run.signal(signal.SIGINT)
    run.end()
