"""Workers that die, hang or raise in training, and are started again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from runs import FOR_EVER, Run, Runner, is_running, wait_until

pytestmark = pytest.mark.fault
USER = Path(__file__).with_name("user_nodes.py")
GOES_ON = "generation {}: training goes on after"


def training(runner: Runner, *settings: str) -> Run:
    run = runner.start(runner.config(), f"training.max_epochs={FOR_EVER}", *settings)
    run.wait_training()
    return run


def user_nodes(runner: Runner, kind: str, *settings: str, source: str = "source") -> Run:
    shutil.copy(USER, runner.home)
    config = runner.config(
        model={"builder": "user_nodes:build", "kind": f"user_nodes:{kind}"},
        data={"source": f"user_nodes:{source}", "batch": 5},
    )
    return runner.start(config, *settings)


def wait_going_on(run: Run, generation: int) -> None:
    run.wait_for(GOES_ON.format(generation))


def assert_warned(run: Run, name: str, pid: int, incarnation: int, said: str) -> None:
    who = rf"warning: worker '{name}' \(core \d+, pid {pid}, incarnation {incarnation}\): "
    assert re.search(who + said, run.out), run.out


def test_rows_1_2_and_6_workers_are_killed_one_by_one_and_two_at_once(runner):
    run = training(runner)
    before = run.workers
    run.kill("linear-1")
    wait_going_on(run, 1)
    assert_warned(run, "linear-1", before["linear-1"], 0, r"ended unasked, signal 9 \(SIGKILL\)")
    once = run.workers
    assert {n for n in once if once[n] != before[n]} == {"linear-1"}
    assert " started pid=" in run.log("linear-1", 1)
    assert " reset generation=1" in run.log("loss")
    run.kill("loss")
    wait_going_on(run, 2)
    assert_warned(run, "loss", before["loss"], 0, "ended unasked")
    run.kill("linear-1", "embedding")
    run.wait_for("generation [34]: training goes on")
    assert_warned(run, "linear-1", once["linear-1"], 1, "ended unasked")
    assert_warned(run, "embedding", before["embedding"], 0, "ended unasked")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert ended.code == 130
    report = (run.folder / "report.txt").read_text()
    assert re.search(r"recovered from 4 failures; the first: worker 'linear-1' \(core", report)


def test_row_4_a_worker_is_killed_while_all_go_back(runner):
    run = training(runner, "training.max_epochs=3")
    run.kill("loop")
    log = run.folder / "logs" / "loop.1.log"
    wait_until(lambda: log.exists() and new_pids(log), "the worker started again")
    for pid in new_pids(log):
        os.kill(pid, signal.SIGKILL)
    run.wait_for("generation [2-9]: training goes on")
    assert run.end().code == 0
    assert [stage["epoch"] for stage in run.stages()] == [1, 1, 2, 2, 3, 3]
    assert all(stage["complete"] for stage in run.stages())


def new_pids(log: Path) -> list[int]:
    """Return the processes whose standard output is `log`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/fd/1") == str(log):
                found.append(int(pid))
        except OSError:
            continue
    return found


def test_row_4_another_worker_is_killed_while_all_go_back(runner):
    run = training(runner, "training.max_epochs=2")
    run.kill("loop")
    run.wait_for("generation 1: all go back")
    run.kill("embedding")
    run.wait_for("generation [2-9]: training goes on")
    assert run.end().code == 0
    assert [stage["complete"] for stage in run.stages()] == [True] * 4


def test_rows_7_and_12_who_leaves_every_time_ends_the_run_at_the_limit(runner):
    run = user_nodes(runner, "ExitsUnasked", "runtime.max_restarts=1")
    ended = run.end()
    assert ended.code == 70
    assert ended.last_line.startswith("AMP-E606: restart limit 1 in 600 s; first failure: ")
    assert re.search(
        r"worker 'suspect' \(core \d+, pid \d+, incarnation 0\): ended unasked, exit status 0",
        ended.last_line,
    )


def test_rows_8_and_11_an_instance_that_crashes_its_node_each_time_is_left_out(runner):
    run = user_nodes(
        runner,
        "CrashesAtAnExample",
        "model.first=true",
        "training.max_epochs=1",
        "training.max_active_keys=3",
        source="source_with_one_that_crashes",
    )
    ended = run.end()
    assert (ended.code, ended.err) == (0, "")
    assert "signal 11 (SIGSEGV)" in ended.out
    assert re.search(r'user_nodes\.py", line \d+ in forward', run.log("suspect", 2))
    assert re.search(
        r"generation 2: .*; \d instances that were in flight each time go a", ended.out
    )
    assert re.search(r"generation 3: .*; instance \d+ is left out from now on", ended.out)
    train, valid = run.stages()
    assert (train["examples"], train["complete"]) == (55, True)
    assert (valid["examples"], valid["complete"]) == (20, True)
    assert "instances left out" in (run.folder / "report.txt").read_text()


def test_row_13_the_same_exception_twice_ends_the_run_with_it(runner):
    run = user_nodes(runner, "RaisesInForward")
    ended = run.end()
    assert ended.code == 70
    assert ended.last_line.startswith("AMP-E602: node 'suspect' in worker 'suspect' ")
    assert "incarnation 1): ValueError: the forward failed" in ended.last_line
    assert "(the same twice in a row)" in ended.last_line
    assert "generation 2" not in ended.out


def test_rows_17_and_18_who_is_stopped_too_long_is_killed_and_who_goes_on_is_not(runner):
    run = training(runner, "runtime.hang_timeout_s=2")
    pid = run.workers["linear-1"]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)  # so long it is stopped
    os.kill(pid, signal.SIGCONT)
    n_stages = len(run.stages())
    wait_until(lambda: len(run.stages()) > n_stages + 1, "training goes on")
    assert "generation" not in run.out
    os.kill(pid, signal.SIGSTOP)
    wait_going_on(run, 1)
    assert_warned(run, "linear-1", pid, 0, r"no word for \d\.\d s: stopped by a signal \(SIGSTOP\)")
    assert not is_running(pid)
    run.signal(signal.SIGINT)
    assert run.end().code == 130


def test_rows_20_and_22_who_hangs_is_killed_and_its_stack_says_where(runner):
    run = user_nodes(
        runner, "HangsOnce", "runtime.hang_timeout_s=2", f"training.max_epochs={FOR_EVER}"
    )
    wait_going_on(run, 1)
    (line,) = [
        n for n, text in enumerate(USER.read_text().splitlines(), 1) if "a second time" in text
    ]
    where = rf'File ".*user_nodes\.py", line {line} in misbehave'
    assert re.search(rf"no word for \d s: it hangs, at {where}", run.out)
    assert re.search(where, run.log("suspect"))
    run.signal(signal.SIGINT)
    assert run.end().code == 130


def test_row_23_who_stops_the_controller_for_a_while_kills_nobody(runner):
    run = training(runner, "runtime.hang_timeout_s=2", "runtime.stall_timeout_s=2")
    run.signal(signal.SIGSTOP)
    time.sleep(2.5)  # longer than a worker may be silent
    n_stages = len(run.stages())
    run.signal(signal.SIGCONT)
    wait_until(lambda: len(run.stages()) > n_stages + 1, "training goes on")
    assert "generation" not in run.out
    run.signal(signal.SIGINT)
    assert run.end().code == 130
