"""Processes killed from outside: the run says who, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal

import pytest
from runs import FOR_EVER, Ended, Run, Runner, is_running, title, wait_until

pytestmark = pytest.mark.fault
END_S = 3.0
"""How long a run may take to end: 1 s is promised; the rest is for a busy machine."""
NODES = ("embedding", "loop", "joined", "linear-1", "step", "more", "linear-2", "loss")


def training(runner: Runner, *settings: str) -> Run:
    # Without recovery; with it: test_recovery.py.
    once = ("runtime.recovery=none", f"training.max_epochs={FOR_EVER}")
    run = runner.start(runner.config(), *once, *settings)
    run.wait_training()
    return run


def assert_names(ended: Ended, run: Run, name: str, pid: int) -> None:
    """Assert that the last line names the worker, its core, pid and log file."""
    log = run.folder / "logs" / f"{name}.0.log"
    assert re.search(rf"worker '{name}' \(core \d+, pid {pid}, incarnation 0\)", ended.last_line)
    assert ended.last_line.endswith(f"see {log}")
    assert log.is_file()


@pytest.mark.parametrize("node", NODES)
def test_a_killed_worker_ends_the_run_at_once_and_is_named(runner, node):
    run = training(runner)
    pid = run.workers[node]
    run.kill(node)
    ended = run.end(END_S)
    assert ended.code == 70
    assert ended.last_line.startswith("AMP-E601: ")
    assert "signal 9 (SIGKILL)" in ended.last_line
    assert_names(ended, run, node, pid)
    assert run.json("manifest.json")["why"] == ended.last_line
    assert run.json("manifest.json")["exit_code"] == 70


def test_of_two_killed_at_once_one_is_named(runner):
    run = training(runner)
    pids = run.workers
    run.kill("linear-1", "loss")
    ended = run.end(END_S)
    assert ended.code == 70
    name = "linear-1" if "'linear-1'" in ended.last_line else "loss"
    assert_names(ended, run, name, pids[name])


def test_a_worker_killed_before_it_was_ready_is_a_failed_start(runner):
    run = runner.start(runner.config(), "runtime.recovery=none")
    folder = run.folder
    (pid,) = wait_until(lambda: worker_pids(folder, "loss"), "a process of `loss`")
    os.kill(pid, signal.SIGKILL)
    ended = run.end()
    assert (ended.code, ended.last_line[:8]) in ((78, "AMP-E603"), (70, "AMP-E601"))
    assert_names(ended, run, "loss", pid)


def worker_pids(folder, name):
    """Return the processes whose standard output is this worker's log."""
    log = str(folder / "logs" / f"{name}.0.log")
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/fd/1") == log:
                found.append(int(pid))
        except OSError:
            continue
    return found


def test_after_kill_9_of_the_controller_all_is_gone_within_2_s(runner):
    run = training(runner)
    pids = [*run.workers.values(), *runner.processes()]
    run.signal(signal.SIGKILL)
    assert run.end().code == -signal.SIGKILL
    wait_until(lambda: not any(map(is_running, pids)), "all processes gone", timeout_s=2.0)
    # The fixture asserts that the socket directory is gone too.


def test_after_kill_9_of_the_controller_while_workers_start_all_is_gone(runner):
    run = runner.start(runner.config())
    folder = run.folder
    wait_until(lambda: worker_pids(folder, "step"), "a process of `step`")
    run.signal(signal.SIGKILL)
    assert run.end().code == -signal.SIGKILL


def guard_of(runner: Runner) -> int:
    (pid,) = [pid for pid in runner.processes() if "guard.py" in title(pid)]
    return pid


def test_a_run_whose_guard_was_killed_ends_well(runner):
    run = training(runner)
    os.kill(guard_of(runner), signal.SIGKILL)
    run.signal(signal.SIGINT)
    assert run.end().code == 130


def test_what_a_killed_run_with_a_killed_guard_left_goes_at_the_next_start(runner):
    run = training(runner)
    os.kill(guard_of(runner), signal.SIGKILL)
    run.signal(signal.SIGKILL)
    run.end()
    base = os.environ["XDG_RUNTIME_DIR"]
    assert len(os.listdir(base)) == 1
    wait_until(lambda: not runner.processes(), "workers gone with their controller")
    assert runner.run(runner.config(), "training.max_epochs=1").code == 0
    assert os.listdir(base) == []
