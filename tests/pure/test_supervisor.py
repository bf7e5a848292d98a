"""A worker that does not go at SIGKILL, and how silence is judged: on processes that are none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from amp_runtime.errors import WorkerExitedError, WorkerHungError
from amp_runtime.loops.supervisor import Supervisor
from amp_runtime.processes import launch
from amp_runtime.processes.launch import Launcher, WorkerProcess


class Process:
    """Stands in for a process that the kernel does not let go."""

    pid = 2**22 + 1
    """Larger than any pid is."""
    killed = False

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout: float) -> int:
        raise subprocess.TimeoutExpired("worker", timeout)


def launcher(*processes: Any) -> Launcher:
    made = Launcher(None, Path("plan"), Path("logs"))  # type: ignore[arg-type]
    made.workers = [
        WorkerProcess(number, f"worker-{number}", (0,), 0, Path("log"), process, -1)
        for number, process in enumerate(processes)
    ]
    return made


def test_row_27_who_is_not_gone_after_sigkill_is_named_with_pid_and_state(monkeypatch):
    monkeypatch.setattr(launch, "_state", lambda pid: "D")
    process = Process()
    with pytest.raises(WorkerExitedError) as error:
        launcher(process).end(0)
    assert process.killed
    assert f"pid {process.pid}" in error.value.where
    assert error.value.what == "has not ended 2 s after SIGKILL; it is in state D"
    assert error.value.exit_code == 70


def watched(monkeypatch, *, stopped: tuple[int, ...] = (), **options: Any) -> Supervisor:
    """Return a supervisor that has heard two workers at 100 s, some of which are stopped."""
    made = launcher(Process(), Process())
    monkeypatch.setattr(Launcher, "stopped", lambda self: [self.workers[n] for n in stopped])
    monkeypatch.setattr(Launcher, "stack_of", lambda self, number: 'File "x.py", line 7 in f')
    found = Supervisor(made, 60.0, **options)
    for peer in (1, 2):
        found.heard(peer, 100.0)
    found.paused(100.0)
    return found


def looks(supervisor: Supervisor, until: float) -> list[Any]:
    """Look twice a second, from 100 s on; return the first failures."""
    now = 100.0
    while now < until:
        now += 0.5
        assert not supervisor.paused(now)
        if failures := supervisor.silent(now):
            return [now, *failures]
    return []


def test_who_says_nothing_for_so_long_hangs_and_where_is_told(monkeypatch):
    supervisor = watched(monkeypatch)
    supervisor.heard(1, 130.0)
    assert looks(supervisor, 160.0) == []
    now, failure = looks(watched(monkeypatch), 200.0)[:2]
    assert now == 160.5
    assert isinstance(failure.error, WorkerHungError)
    assert 'it hangs, at File "x.py", line 7 in f' in failure.error.what
    assert "runtime.hang_timeout_s" in failure.error.fix


def test_who_is_stopped_is_dead_sooner_and_only_if_it_still_is(monkeypatch):
    now, failure = looks(watched(monkeypatch, stopped=(1,)), 200.0)
    assert (now, failure.peer) == (107.0, 2)
    assert "stopped by a signal (SIGSTOP)" in failure.error.what
    assert looks(watched(monkeypatch), 107.0) == []


def test_without_recovery_a_worker_may_be_stopped_as_long_as_a_debugger_likes(monkeypatch):
    assert looks(watched(monkeypatch, stopped=(1,), kill_stopped=False), 160.0) == []


def test_row_23_while_the_controller_was_stopped_nobody_was_silent(monkeypatch):
    supervisor = watched(monkeypatch)
    assert supervisor.paused(100.0 + 3600)
    assert supervisor.silent(100.0 + 3600) == []
    assert not supervisor.paused(100.0 + 3601)
    assert supervisor.silent(100.0 + 3601) == []
