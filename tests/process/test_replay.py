"""Recorded runs in real processes, and `replay`: the same numbers, in one process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import CHECKOUT, PACKED, THREE_WORKERS, Ended, Runner, environment
from safetensors.numpy import load_file

pytestmark = pytest.mark.process

TREES: dict[str, Any] = {
    "dtype": "float64",
    "model": {"builder": "tree_lstm", "hidden": 6, "embedding": 4, "vocabulary": 6, "classes": 3},
    "data": {"source": "graph_models:trees", "train": 160, "valid": 30},
    "training": {
        "optimizer": {"name": "adam", "lr": 0.01},
        "update_every": 5,
        "max_active_keys": 16,
        "max_epochs": 2,
    },
    "folder": str(CHECKOUT / "tests"),
}
RECORD = "runtime.record=true"
SAME = "metrics and parameters are those of the run, to the bit\n"


def replayed(runner: Runner, folder: Path | str, timeout_s: float = 120) -> Ended:
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", "replay", str(folder)],
        cwd=runner.home,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr, 0.0)


@pytest.mark.parametrize(
    "settings",
    [
        ("runtime.placement=process_per_node",),
        (PACKED,),
        ("nodes.branch.replicas=2", "training.average_every=2", PACKED),
    ],
    ids=["process_per_node", "packed", "replicas"],
)
def test_an_asynchronous_tree_lstm_replays_to_its_parameters(runner, settings):
    ended = runner.run(runner.config(**TREES), RECORD, *settings, timeout_s=120)
    assert ended.code == 0, ended.err
    updates = [int(line.split()[-4]) for line in ended.out.splitlines() if "%" in line[-4:]
               and line.split()[-4].isdigit()]  # fmt: skip
    assert max(updates) >= 50
    again = replayed(runner, runner.last.folder)
    assert again.code == 0, again.err
    assert again.out.endswith(SAME), again.out
    saved = load_file(runner.last.folder / "parameters.safetensors")
    for name in saved:
        node, _, parameter = name.partition(".")
        shown = f"{node}.0.{parameter}" if len(settings) > 1 and node == "branch" else name
        assert f"\n{shown} " in again.out
    stages = runner.last.stages()
    assert [s["split"] for s in stages] == ["train", "valid"] * 2
    for stage in stages:
        assert f"{stage['loss']:.10g}" in again.out


def test_an_rnn_with_two_replicas_replays_in_float32(runner):
    settings = ("nodes.linear-1.replicas=2", "training.averaging.name=elastic")
    ended = runner.run(
        runner.config(), RECORD, *settings, "training.average_every=1", "training.max_epochs=2",
        timeout_s=120,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    again = replayed(runner, runner.last.folder)
    assert (again.code, again.err) == (0, "")
    assert again.out.endswith(SAME), again.out
    assert "linear-1.1.weight" in again.out


@pytest.fixture(scope="module")
def _once() -> dict[str, Path]:
    return {}


@pytest.fixture
def finished(runner, _once, tmp_path_factory, tmp_path):
    """A copy of one recorded run of the test's own."""
    if not _once:
        settings = RECORD, "training.max_epochs=1", THREE_WORKERS
        assert runner.run(runner.config(), *settings).code == 0
        kept = tmp_path_factory.mktemp("recorded") / "run"
        shutil.copytree(runner.last.folder, kept)
        _once["run"] = kept
    return shutil.copytree(_once["run"], runner.home / "copy")


def test_a_run_that_was_not_recorded_cannot_be_replayed_and_leaves_no_trace(runner, verb):
    assert runner.run(runner.config(), "training.max_epochs=1", PACKED).code == 0
    assert not (runner.last.folder / "trace").exists()
    again = verb(runner.home, "replay", runner.last.folder)
    assert again.code == 64
    assert "was not recorded; train with runtime.record=true first" in again.last_line


def test_a_truncated_trace_is_refused_by_file_and_event(verb, finished):
    trace = finished / "trace" / "linear-2"
    trace.write_bytes(trace.read_bytes()[:-20])
    again = verb(finished.parent, "replay", finished)
    assert again.code == 78
    assert again.last_line.startswith("AMP-E306: ")
    assert "trace/linear-2, event " in again.last_line
    assert "it is cut: " in again.last_line


def test_a_garbled_trace_is_refused_by_file_and_event(verb, finished):
    trace = finished / "trace" / "loss"
    content = bytearray(trace.read_bytes())
    content[len(content) // 2] ^= 16
    trace.write_bytes(content)
    again = verb(finished.parent, "replay", finished)
    assert again.code == 78
    assert "trace/loss, event " in again.last_line
    assert "its bytes are not those that were written" in again.last_line


def test_the_trace_of_another_worker_is_refused(verb, finished):
    shutil.copy(finished / "trace" / "loss", finished / "trace" / "linear-2")
    again = verb(finished.parent, "replay", finished)
    assert again.code == 78
    assert "a trace of worker 'loss', expected 'linear-2'" in again.last_line


def test_another_seed_of_the_config_is_another_run(verb, finished):
    config = finished / "config.yaml"
    config.write_text(config.read_text().replace("seed: 0", "seed: 1"))
    again = verb(finished.parent, "replay", finished)
    assert again.code != 0
    assert again.last_line.startswith("AMP-E30")


def test_other_numbers_are_told_and_are_a_failure(verb, finished):
    # One who changes what a node computes has a replay that differs, not one that is stuck.
    config = finished / "config.yaml"
    text = config.read_text()
    assert "lr: 0.1" in text
    metrics = finished / "metrics.jsonl"
    stage, rest = metrics.read_text().split("\n", 1)
    metrics.write_text(stage.replace('"loss": ', '"loss": 1') + "\n" + rest)
    again = verb(finished.parent, "replay", finished)
    assert again.code == 70
    assert again.last_line.startswith("AMP-E307: ")
    assert "loss of epoch 1 train differs by " in again.last_line
    assert np.isfinite(float(again.last_line.partition("differs by ")[2].partition(",")[0]))


def test_an_evaluation_of_a_recorded_run_is_not_recorded(runner, finished):
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", "evaluate", str(finished)],
        cwd=runner.home, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [*(finished / "evaluations").glob("*/trace")] == []
    assert replayed(runner, finished).code == 0


def test_an_interrupted_run_replays(runner):
    run = runner.start(runner.config(), RECORD, "training.max_epochs=1000", PACKED)
    run.wait_for(r"epoch +2/\d+ valid")
    run.signal(2)
    assert run.end().code == 130
    again = replayed(runner, run.folder)
    assert (again.code, again.err) == (0, "")
    assert again.out.endswith(SAME), again.out


def test_a_trace_that_cannot_be_written_ends_the_run_with_file_and_reason(runner):
    limit = ("bash", "-c", 'ulimit -f 64; exec "$@"', "bash")
    ended = runner.run(
        runner.config(), RECORD, "data.train=20000", "training.max_epochs=5", PACKED, before=limit,
        timeout_s=120,
    )  # fmt: skip
    assert ended.code == 74, ended.err
    assert ended.last_line.startswith("AMP-E303: ")
    assert "/trace/" in ended.last_line
    assert "cannot write the trace: File too large; raise the limit" in ended.last_line, ended.err
