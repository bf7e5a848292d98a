"""A replica that dies or stops is named as the worker that it is."""

from __future__ import annotations

import os
import signal

import pytest
from runs import FOR_EVER, Run, Runner

pytestmark = pytest.mark.fault
SETTINGS = (
    f"training.max_epochs={FOR_EVER}",
    "nodes.linear-1.replicas=2",
    "training.average_every=1",
    "runtime.recovery=none",
)


def training(runner: Runner, *settings: str) -> Run:
    run = runner.start(runner.config(), *SETTINGS, *settings)
    run.wait_training()
    return run


@pytest.mark.parametrize("scheme", ["mean", "elastic"])
def test_a_killed_replica_ends_the_run_and_is_named(runner, scheme):
    run = training(runner, f"training.averaging.name={scheme}")
    run.kill("linear-1.1")
    ended = run.end(10.0)
    assert ended.code == 70
    assert ended.last_line.startswith("AMP-E601: worker 'linear-1.1' (core ")
    assert ended.last_line.endswith(f"see {run.folder / 'logs' / 'linear-1.1.0.log'}")


def test_a_replica_that_stops_while_the_others_average_is_named(runner):
    run = training(runner, "runtime.stall_timeout_s=3")
    os.kill(run.workers["linear-1.0"], signal.SIGSTOP)
    ended = run.end(30.0)
    assert ended.code == 70
    assert "'linear-1.0' has not worked on" in ended.last_line
    pid = run.workers["linear-1.0"]
    assert f"pid {pid}, incarnation 0): stopped by a signal (SIGSTOP)" in ended.last_line
    assert "'linear-1.1'" not in ended.last_line
