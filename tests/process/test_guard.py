"""The guard: what a killed controller leaves behind is gone, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amp_runtime.processes import guard
from amp_runtime.processes.guard import Guard, kill_all, start_time
from amp_runtime.sockets.transport import SocketDirectory

pytestmark = pytest.mark.process
DEADLINE_S = 15.0
CHECKOUT = Path(__file__).parents[2]

CONTROLLER = """
import subprocess, sys, time
from amp_runtime.processes.guard import Guard
from amp_runtime.sockets.transport import Endpoint, SocketDirectory
directory = SocketDirectory.create(4, base=sys.argv[1])
endpoint = Endpoint(directory, 0)
guard = Guard.start(directory.path)
workers = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
for worker in workers:
    guard.watch(worker.pid)
print(directory.path, guard.process.pid, *(worker.pid for worker in workers), flush=True)
time.sleep(1000)
"""


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)  # between two looks, not for something to happen
    return True


def is_running(pid: int) -> bool:
    """Whether `pid` runs; one that ended but was not reaped (no init here) does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def test_after_kill_9_of_the_controller_workers_guard_and_directory_are_gone(tmp_path):
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    path, *words = controller.stdout.readline().split()
    pids = [int(word) for word in words]
    assert len(pids) == 4
    assert all(map(is_running, pids))
    assert sorted(p.name for p in Path(path).iterdir()) == ["0.0.b", "0.0.c", "0.0.f", "owner"]
    controller.kill()
    controller.wait()
    controller.stdout.close()
    assert wait_until(lambda: not any(map(is_running, pids)))
    assert list(tmp_path.iterdir()) == []


def test_finish_kills_what_is_left_removes_the_directory_and_reports_it(tmp_path, sleeper):
    directory = SocketDirectory.create(4, base=tmp_path)
    held = Guard.start(directory.path)
    held.watch(sleeper.pid)
    assert held.finish(DEADLINE_S)
    assert sleeper.wait(DEADLINE_S) == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_signals_of_the_terminal_do_not_end_the_guard(tmp_path, sleeper):
    directory = SocketDirectory.create(4, base=tmp_path)
    held = Guard.start(directory.path)
    pid = held.process.pid
    assert os.getsid(pid) == pid
    assert wait_until(lambda: ignores(pid, signal.SIGTERM))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        os.kill(pid, number)
    held.watch(sleeper.pid)
    assert held.process.poll() is None
    assert held.finish(DEADLINE_S)
    assert sleeper.wait(DEADLINE_S) == -signal.SIGKILL


def ignores(pid: int, number: signal.Signals) -> bool:
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigIgn:")
    ]
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


def test_a_worker_that_ended_does_not_hold_up_the_guard(tmp_path):
    directory = SocketDirectory.create(4, base=tmp_path)
    held = Guard.start(directory.path)
    worker = subprocess.Popen(["sleep", "1000"])
    held.watch(worker.pid)
    worker.kill()
    worker.wait()
    assert held.finish(DEADLINE_S)
    with pytest.raises(ProcessLookupError, match=str(worker.pid)):
        held.watch(worker.pid)


def test_a_recycled_pid_is_not_signalled(sleeper):
    started = start_time(sleeper.pid)
    assert started is not None
    assert kill_all([(sleeper.pid, started - 1), (sleeper.pid, started + 1)], 1.0)
    assert is_running(sleeper.pid)
    assert kill_all([(sleeper.pid, started)], DEADLINE_S)
    assert sleeper.wait(DEADLINE_S) == -signal.SIGKILL


def test_the_program_spares_a_recycled_pid_and_a_line_cut_off(tmp_path, sleeper):
    directory = SocketDirectory.create(4, base=tmp_path)
    started = start_time(sleeper.pid)
    lines = f"{sleeper.pid} {started + 1}\nnonsense\n-1 5\n{sleeper.pid} {started}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", guard.__file__, directory.path],
        input=lines.encode(),
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0
    assert is_running(sleeper.pid)
    assert list(tmp_path.iterdir()) == []


def test_start_time_reads_past_a_name_with_brackets_and_spaces(tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    before = start_time(os.getpid())
    process = subprocess.Popen([str(program), "1000"])
    try:
        assert wait_until(lambda: b"(a) R 1 (b)" in Path(f"/proc/{process.pid}/stat").read_bytes())
        assert before <= start_time(process.pid)
    finally:
        process.kill()
        process.wait()
    assert start_time(process.pid) is None


# -------------------------------------------------------------------------- directories


def owned_by(base: Path, name: str, owner: str) -> Path:
    path = base / name
    path.mkdir(mode=0o700)
    (path / guard.OWNER_FILE).write_text(owner)
    return path


def test_sweep_removes_directories_of_dead_owners_only(tmp_path):
    alive = SocketDirectory.create(4, base=tmp_path)
    me, namespace = os.getpid(), os.readlink("/proc/self/ns/pid")
    dead = subprocess.Popen(["true"])
    dead.wait()
    gone = owned_by(tmp_path, "amp-gone", f"{dead.pid} 1 {namespace}\n")
    recycled = owned_by(tmp_path, "amp-recycled", f"{me} {start_time(me) + 1} {namespace}\n")
    other = owned_by(tmp_path, "amp-container", f"{dead.pid} 1 pid:[1]\n")
    broken = owned_by(tmp_path, "amp-broken", "who knows\n")
    unnamed = owned_by(tmp_path, "else", f"{dead.pid} 1 {namespace}\n")
    assert guard.sweep(tmp_path) == [str(gone), str(recycled)]
    assert sorted(tmp_path.iterdir()) == sorted([Path(alive.path), other, broken, unnamed])
    assert guard.sweep(tmp_path) == []
    assert alive.remove()


def test_only_a_directory_of_ours_is_removed_and_never_what_a_symlink_points_to(tmp_path):
    precious = owned_by(tmp_path, "amp-precious", "x")
    (precious / "letter").write_text("keep me")
    link = tmp_path / "amp-link"
    link.symlink_to(precious)
    assert not guard.remove_directory(link)
    assert sorted(p.name for p in precious.iterdir()) == ["letter", "owner"]
    assert not guard.remove_directory(precious)
    assert (precious / "letter").read_text() == "keep me"
    plain = tmp_path / "plain"
    plain.mkdir()
    assert not guard.remove_directory(plain)
    file = tmp_path / "amp-file"
    file.touch()
    assert not guard.remove_directory(file)
    assert file.exists()
    assert plain.exists()
    assert guard.remove_directory(tmp_path / "amp-none")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
def test_a_directory_of_another_user_is_not_removed(tmp_path):
    path = owned_by(tmp_path, "amp-other", "x")
    os.chown(path, 12345, -1)
    assert not guard.remove_directory(path)
    assert (path / guard.OWNER_FILE).exists()
