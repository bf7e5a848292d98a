"""Processes that fail at named places: what they were about to do is done all the same, once."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import FOR_EVER, Run, Runner, environment, wait_until

from amp_runtime.checkpoint.store import newest, verify

pytestmark = pytest.mark.fault
USER = Path(__file__).with_name("user_nodes.py")


@pytest.fixture
def failing(runner: Runner, monkeypatch: pytest.MonkeyPatch):
    """Return what starts a run of before -> suspect -> after -> loss that fails at places."""
    shutil.copy(USER, runner.home)

    def start(*places: str, settings: tuple[str, ...] = ("training.max_epochs=1",)) -> Run:
        monkeypatch.setenv("AMP_TESTING", "1")
        monkeypatch.setenv("AMP_FAILPOINT", ",".join(places))
        config = runner.config(
            model={"builder": "user_nodes:build"},
            data={"source": "user_nodes:source", "batch": 10},
        )
        return runner.start(config, *settings)

    return start


def test_rows_3_and_4_workers_are_killed_at_any_place_and_every_example_counts_once(failing):
    run = failing(
        "worker.after_receive:suspect=kill@3",
        "worker.in_reset:before=kill",
        "worker.after_apply:after=kill@2",
        "worker.before_send:loss=kill@9",
    )
    ended = run.end()
    assert (ended.code, ended.err) == (0, "")
    for name in ("suspect", "before", "after", "loss"):
        said = rf"^warning: worker '{name}' \(core \d+, pid \d+, incarnation 0\): ended unasked, si"
        assert len(re.findall(said, ended.out, re.MULTILINE)) == 1, (name, ended.out)
    train, valid = run.stages()
    assert (train["examples"], valid["examples"]) == (200, 20)
    assert (train["complete"], valid["complete"]) == (True, True)
    assert "recovered from 4 failures; the first: " in (run.folder / "report.txt").read_text()


def test_row_5_a_worker_is_killed_when_its_shard_is_written_and_the_next_is_whole(failing):
    run = failing("worker.after_shard:after=kill", settings=("training.max_epochs=2",))
    ended = run.end()
    assert (ended.code, ended.err) == (0, "")
    assert "generation 1: all go back to the start of training" in ended.out
    assert [stage["complete"] for stage in run.stages()] == [True] * 4
    manifest, notes = newest(run.folder / "checkpoints")
    assert (manifest.generation, notes) == (1, [])
    assert verify(run.folder / "checkpoints")[1] == []


def test_row_142_a_signal_while_a_checkpoint_is_written_ends_the_run_with_a_whole_one(failing):
    run = failing(
        "worker.before_shard=sleep@*",
        "ckpt.before_manifest=sleep@*",
        settings=(f"training.max_epochs={FOR_EVER}", "checkpoint.every={epochs: 1}"),
    )
    folder = run.folder / "checkpoints"
    wait_until(lambda: [*folder.glob("checkpoint-*.tmp-*")], "a checkpoint is being written")
    run.signal(signal.SIGTERM)
    ended = run.end()
    assert ended.code == 143, ended.err
    whole, faults = verify(folder)
    assert (len(whole) > 0, faults) == (True, [])
    assert [*folder.glob("*.tmp-*")] == []


def test_a_worker_that_leaves_before_it_is_ready_ends_the_run(failing):
    run = failing("worker.before_ready:after=exit")
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E603: ")
    assert "worker 'after'" in ended.last_line
    assert "exit status 3" in ended.last_line


def test_an_exception_at_any_place_in_every_incarnation_ends_the_run_with_it(failing):
    run = failing("worker.before_barrier:loss=raise@*")
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E602: ")
    assert "incarnation 1): FailpointError: failpoint worker.before_barrier" in ended.last_line
    assert "(the same twice in a row)" in ended.last_line


@pytest.mark.parametrize("place", ["controller.before_inject=kill@3", "controller.at_barrier=kill"])
def test_row_9_a_controller_that_is_killed_leaves_nothing(failing, runner, place):
    run = failing(place)
    assert run.end().code == -signal.SIGKILL
    wait_until(lambda: not runner.processes(), "workers gone with their controller", timeout_s=3.0)


def test_row_24_a_node_that_is_slow_is_waited_for_and_no_more_is_admitted(failing):
    run = failing(
        "worker.before_forward:suspect=sleep@*",
        settings=(
            "training.max_epochs=1",
            "training.max_active_keys=3",
            "runtime.hang_timeout_s=2",
            "runtime.stall_timeout_s=2",
        ),
    )
    ended = run.end()
    assert (ended.code, ended.err) == (0, "")
    assert "generation" not in ended.out
    assert run.stages()[0]["complete"]
    # 10 examples an instance, of which 3 are in flight
    peak = re.search(r" stash_peak=(\d+)", run.log("before"))
    assert 0 < int(peak[1]) <= 30


def test_a_place_that_there_is_not_is_refused():
    told = {"AMP_TESTING": "1", "AMP_FAILPOINT": "worker.after_aply=kill"}
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", "kinds"],
        env=environment() | told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64
    assert done.stderr.startswith("AMP-E101: AMP_FAILPOINT: no place 'worker.after_aply'")
