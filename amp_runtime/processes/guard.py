"""The process that outlives a killed controller, and takes its workers with it.

    python -I -S guard.py SOCKET_DIRECTORY      pid and start time lines on stdin

A controller that gets SIGKILL can clean up nothing. So each run has a guard, in
a session of its own, that holds the other end of a pipe: when the pipe ends, by
`Guard.finish` or because the controller is gone, the guard kills the workers that
are still alive, removes the socket directory and exits.

Only the standard library: the file is run by path and starts in some 20 ms. A
process is known by pid *and* start time: a pid alone may have been given to
someone else since.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import subprocess  # workers import this file and start nothing: 0.9 MB less in each

PREFIX = "amp-"
OWNER_FILE = "owner"
WAIT_AFTER_KILL_S = 5.0


def start_time(pid: int) -> int | None:
    """Return when `pid` was started, in clock ticks since boot; None: no such process."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, in brackets, may hold spaces and brackets: count from the last one.
    return int(line[line.rindex(b")") + 1 :].split()[19])


# ------------------------------------------------------------------- socket directories


def write_owner(directory: str | Path) -> None:
    """Record that this process owns `directory`, for `sweep`."""
    me = os.getpid()
    owner = f"{me} {start_time(me)} {_pid_namespace()}\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(Path(directory, OWNER_FILE), flags, 0o600), "w") as file:
        file.write(owner)


def remove_directory(directory: str | Path) -> bool:
    """Remove a socket directory and the sockets and owner file in it.

    Only one that is ours: named `amp-*`, a directory and no symlink, of this
    user. Anything else in it is left, and the directory with it.

    Returns:
        Whether the directory is gone.
    """
    path = Path(directory)
    if not path.name.startswith(PREFIX):
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return False
        for name in os.listdir(fd):
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if stat.S_ISSOCK(mode) or name == OWNER_FILE:
                os.unlink(name, dir_fd=fd)
        os.rmdir(path)
    except OSError:
        return not path.exists()
    finally:
        os.close(fd)
    return True


def sweep(base: str | Path) -> list[str]:
    """Remove the socket directories in `base` whose owner is gone.

    One without an owner file, of another user or of another pid namespace (a
    container that shares the directory) is left alone.

    Returns:
        The directories removed.
    """
    removed = []
    for path in sorted(Path(base).glob(f"{PREFIX}*")):
        try:
            pid, started, namespace = Path(path, OWNER_FILE).read_text().split()
            gone = namespace == _pid_namespace() and start_time(int(pid)) != int(started)
        except (OSError, ValueError):
            continue
        if gone and remove_directory(path):
            removed.append(str(path))
    return removed


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


# ---------------------------------------------------------------- the controller's side


class Guard:
    """The controller's handle of its guard process; `start` makes one.

    Attributes:
        process: the guard; ready on its pidfd before `finish` means it was killed.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    @staticmethod
    def start(directory: str | Path) -> Guard:
        """Start a guard of `directory`.

        Raises:
            OSError: the process cannot be started.
        """
        import subprocess

        # A session of its own: no Ctrl-C and no hang-up of the terminal reaches it.
        # No inherited stderr: whoever reads ours to its end must not wait for it.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            close_fds=True,
        )
        return Guard(process)

    def watch(self, pid: int) -> None:
        """Have the child `pid` killed when this process ends; call it before it is reaped.

        Raises:
            ProcessLookupError: there is no such process.
            BrokenPipeError: the guard is dead.
        """
        started = start_time(pid)
        if started is None:
            raise ProcessLookupError(f"no process {pid}")
        pipe = self._pipe()
        pipe.write(f"{pid} {started}\n".encode())
        pipe.flush()

    def finish(self, timeout_s: float) -> bool:
        """Have the guard kill what is left, remove the directory and exit.

        Returns:
            Whether it has done so, within `timeout_s`; if not it was killed.
        """
        import subprocess

        self._pipe().close()
        try:
            return self.process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False

    def _pipe(self) -> BinaryIO:
        assert self.process.stdin is not None
        return self.process.stdin  # type: ignore[return-value]  # IO[bytes] is BinaryIO here


# --------------------------------------------------------------------- the guard itself


def kill_all(processes: Iterable[tuple[int, int]], timeout_s: float) -> bool:
    """Kill those of `processes` (pid, start time) that are alive, and wait for their end.

    Returns:
        Whether all were gone within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    fds = [fd for pid, started in processes if (fd := _open_same(pid, started)) is not None]
    for fd in fds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    all_gone = True
    for fd in fds:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        left_s = max(0.0, deadline - time.monotonic())
        all_gone &= bool(poll.poll(left_s * 1000))
        os.close(fd)
    return all_gone


def _open_same(pid: int, started: int) -> int | None:
    """Return a pidfd of the process that had `pid` at `started`, or None if it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    # Only now: the pidfd holds one process fast. If its start time is right it is
    # the one; if the pid changed hands before or after, the start time differs.
    if start_time(pid) != started:
        os.close(fd)
        return None
    return fd


def parse(lines: Iterable[bytes]) -> list[tuple[int, int]]:
    """Return (pid, start time) of each whole line; one cut off by a kill names nobody."""
    found = []
    for line in lines:
        words = line.split()
        if line.endswith(b"\n") and len(words) == 2 and all(word.isdigit() for word in words):
            found.append((int(words[0]), int(words[1])))
    return found


def main(directory: str, lines: Iterable[bytes]) -> int:
    """Wait for the end of `lines`, then leave nothing; return the exit status."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    all_gone = kill_all(parse(lines), WAIT_AFTER_KILL_S)
    return 0 if remove_directory(directory) and all_gone else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.buffer))
