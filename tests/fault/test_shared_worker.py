"""What goes wrong in a worker that hosts several nodes: the node is told, not only the worker."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from runs import FOR_EVER, Run, Runner

pytestmark = pytest.mark.fault
ALL = "runtime.placement={host: [{nodes: [before, suspect, after, loss]}]}"
MIDDLE = "runtime.placement={host: [{nodes: [suspect, after]}]}"


@pytest.fixture(autouse=True)
def _user_module(runner: Runner) -> None:
    shutil.copy(Path(__file__).with_name("user_nodes.py"), runner.home)


def start(runner: Runner, kind: str, *settings: str) -> Run:
    config = runner.config(
        model={"builder": "user_nodes:build", "kind": f"user_nodes:{kind}"},
        data={"source": "user_nodes:source", "batch": 10},
    )
    # What a first failure says; what follows on it: test_recovery.py.
    once = ("runtime.recovery=none", f"training.max_epochs={FOR_EVER}")
    return runner.start(config, *once, *settings)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("RaisesInForward", "ValueError: the forward failed"),
        ("RaisesInBackward", "ZeroDivisionError: the backward failed"),
        ("RaisesInAccumulate", "ArithmeticError: the update failed"),
    ],
)
def test_the_node_that_raised_is_named_and_the_log_of_its_worker(runner, kind, what):
    run = start(runner, kind, ALL)
    ended = run.end()
    assert ended.code == 70
    pid = run.workers["worker-1"]
    assert re.match(
        rf"AMP-E602: node 'suspect' in worker 'worker-1' \(core \d+, pid {pid}, incarnation 0\): "
        rf"{what} .*; see {run.folder}/logs/worker-1\.0\.log$",
        ended.last_line,
    )
    assert " ERROR suspect fault " in run.log("worker-1")


def test_which_node_sent_rows_that_do_not_fit_is_named(runner):
    ended = start(runner, "SendsNarrowRows", MIDDLE).end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E404: ")
    assert re.search(
        r"node 'after' in worker 'worker-1' \(.*\): rows from node 'suspect': node 'after', "
        r"port 'x': "
        r"array 'x' is float32\[rows, 2\]",
        ended.last_line,
    )


@pytest.mark.parametrize("kind", ["Swallows", "Forgets"])
def test_the_node_that_swallows_rows_is_named_when_the_run_stalls(runner, kind):
    ended = start(runner, kind, ALL, "runtime.stall_timeout_s=2").end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E604: ")
    assert re.search(r"; 'suspect' took \d+ rows and neither answered nor passed", ended.last_line)
    for other in ("before", "after", "loss"):
        assert f"'{other}'" not in ended.last_line


def test_the_nodes_of_a_worker_that_hangs_are_named(runner):
    ended = start(runner, "Hangs", MIDDLE, "runtime.stall_timeout_s=2").end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E604: ")
    assert re.search(
        r"; 'suspect' or 'after' has not worked on \d+ rows that were sent to it", ended.last_line
    )
    assert "'before'" not in ended.last_line


def test_a_killed_worker_of_several_nodes_ends_the_run_and_is_named(runner):
    run = runner.start(
        runner.config(),
        f"training.max_epochs={FOR_EVER}",
        "runtime.placement=packed",
        "runtime.recovery=none",
    )
    run.wait_training()
    name, pid = next(iter(run.workers.items()))
    run.kill(name)
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E601: ")
    assert re.search(
        rf"worker '{name}' \(core \d+, pid {pid}, incarnation 0\): ended unasked, signal 9 ",
        ended.last_line,
    )
