"""Replicas in real processes: they train, are evaluated, and predict, by either placement."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from runs import PACKED, Ended, Runner, environment
from safetensors.numpy import load_file

pytestmark = pytest.mark.process
REPLICAS = ("nodes.linear-1.replicas=2", "nodes.embedding.replicas=2")
SCHEMES = {
    "mean": ("training.average_every=2",),
    "elastic": ("training.averaging.name=elastic", "training.average_every=1"),
    "block": ("training.averaging={name: block_momentum, nesterov: true}",),
}


def by_workers(runner: Runner, *words: str) -> Ended:
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", *words],
        cwd=runner.home,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr, 0.0)


# How replicas share does not depend on where they run: each scheme by one placement will do.
@pytest.mark.parametrize(
    ("scheme", "placement"),
    [
        ("mean", "process_per_node"),
        ("mean", "packed"),
        ("elastic", "process_per_node"),
        ("block", "packed"),
    ],
)
def test_what_replicas_saved_is_what_was_validated(runner, scheme, placement):
    ended = runner.run(
        runner.config(),
        *REPLICAS,
        *SCHEMES[scheme],
        f"runtime.placement={placement}",
        "training.max_epochs=2",
        timeout_s=60,
    )
    assert ended.code == 0, ended.err
    folder = runner.last.folder
    assert "8 nodes, 10 with replicas" in ended.out
    saved = load_file(folder / "parameters.safetensors")
    assert {name.partition(".")[0] for name in saved} == {"embedding", "linear-1", "linear-2"}
    stages = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [s["examples"] for s in stages] == [200, 50] * 2
    # Any number of replicas, another placement: the numbers are those of the run, to the bit.
    again = by_workers(runner, "evaluate", str(folder), "nodes.linear-1.replicas=3", PACKED)
    assert again.code == 0, again.err
    (line,) = (folder / "evaluations.jsonl").read_text().splitlines()
    assert json.loads(line)["loss"] == pytest.approx(stages[-1]["loss"], rel=1e-6)
    assert json.loads(line)["accuracy"] == stages[-1]["accuracy"]


def test_a_run_with_replicas_predicts_and_is_drawn_and_reported(runner, verb):
    settings = (*REPLICAS, "training.max_epochs=1", PACKED)
    assert runner.run(runner.config(), *settings, timeout_s=60).code == 0
    folder = runner.last.folder
    (runner.home / "new.jsonl").write_text('{"tokens": ["range", 4, 9, 1]}\n' * 5)
    made = by_workers(runner, "predict", str(folder), "new.jsonl")
    assert made.code == 0, made.err
    labels = [json.loads(line)["label"] for line in made.out.splitlines()]
    assert len(labels) == 5
    assert len(set(labels)) == 1  # whichever replica made it
    report = verb(runner.home, "report", folder).out
    assert "linear-1.0" in report
    assert "linear-1.1" in report
    logs = verb(runner.home, "logs", folder).out
    assert any(
        " linear-1.1 barrier " in line and " averagings=1" in line for line in logs.splitlines()
    )
