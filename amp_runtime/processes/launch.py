"""Starting worker processes, seeing them end, and leaving none behind.

Workers are programs, never forks; each is in a session of its own, writes to its log
file, and is seen to end through its pidfd. A guard process kills them and removes the
socket directory if this process is killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import amp_runtime
from amp_runtime.errors import AmpError, StartError, WorkerExitedError
from amp_runtime.processes.blas import BLAS_THREAD_VARIABLES
from amp_runtime.processes.guard import Guard
from amp_runtime.processes.plan import Plan

KILL_TIMEOUT_S = 2.0
"""How long a process may take to go after SIGKILL: longer only in the kernel."""
DUMP_TIMEOUT_S = 0.5
"""How long a worker's stacks may take to be in its log: they are written at once, or never."""

FILES = 32
FILES_PER_WORKER = 6
"""Descriptors that the controller, which has the most, needs: measured 17 and 5."""

_FIXES = {
    errno.EAGAIN: "raise the limit on processes (ulimit -u)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENOSPC: "free some space",
    errno.ENOENT: "install Python and amp_runtime anew, or run it from another environment",
}
_NORMAL_LINE = re.compile(r"\d{4}-\d\d-\d\dT\S+ INFO ")


@dataclass(slots=True)
class WorkerProcess:
    """A worker that was started.

    Attributes:
        pidfd: readable once the process has ended.
    """

    number: int
    name: str
    cores: tuple[int, ...]
    incarnation: int
    log_file: Path
    process: subprocess.Popen[bytes]
    pidfd: int

    def describe(self) -> str:
        cores = ",".join(map(str, self.cores))
        plural = "s"[: len(self.cores) > 1]
        return (
            f"worker {self.name!r} (core{plural} {cores}, pid {self.process.pid}, "
            f"incarnation {self.incarnation})"
        )


class Launcher:
    """The processes of one run.

    Args:
        plan_file: where the plan was written; workers read it.
        log_folder: exists; each worker gets `<name>.<incarnation>.log` there.
        rows_fd: of the memory that arrays of rows pass through; None: there is none.

    Attributes:
        workers: by number, in their newest incarnation.
    """

    def __init__(
        self, plan: Plan, plan_file: Path, log_folder: Path, rows_fd: int | None = None
    ) -> None:
        self._plan = plan
        self._rows_fd = rows_fd
        self._plan_file = plan_file
        self._log_folder = log_folder
        self._guard: Guard | None = None
        self.workers: list[WorkerProcess] = []

    def start(self, generation: int = 0) -> None:
        """Start the guard and all workers.

        Args:
            generation: of the run that they begin in.
        Raises:
            StartError: the system refuses a process or a file.
        """
        try:
            self._guard = Guard.start(self._plan.socket_directory)
            for number in range(len(self._plan.placement.workers)):
                worker = self._start_worker(number, 0, generation)
                self.workers.append(worker)
                self._guard.watch(worker.process.pid)
        except OSError as error:
            n_workers = len(self._plan.placement.workers)
            raise StartError(
                f"only {len(self.workers)} of {n_workers} workers could be started: {error}",
                fix=_FIXES.get(error.errno or 0, ""),
            ) from error

    def restart(self, number: int, incarnation: int, generation: int) -> None:
        """Start a worker again, whose process has ended: see `end`.

        Raises:
            StartError: the system refuses a process or a file.
        """
        assert self._guard is not None
        try:
            worker = self._start_worker(number, incarnation, generation)
            os.close(self.workers[number].pidfd)
            self.workers[number] = worker
            self._guard.watch(worker.process.pid)
        except OSError as error:
            raise StartError(
                f"cannot be started again: {error}",
                where=self.workers[number].describe(),
                fix=_FIXES.get(error.errno or 0, ""),
            ) from error

    def end(self, number: int) -> None:
        """Kill a worker, if it is still there, and wait until it is gone.

        Raises:
            WorkerExitedError: it does not go.
        """
        worker = self.workers[number]
        worker.process.kill()  # the kernel kills a stopped one too
        try:
            worker.process.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            state = _state(worker.process.pid)
            raise WorkerExitedError(
                f"has not ended {KILL_TIMEOUT_S:g} s after SIGKILL; it is in state {state}",
                where=worker.describe(),
                fix="what it waits for in the kernel, a disk or a network file system, must answer",
            ) from None

    def stack_of(self, number: int) -> str:
        """Have a worker write all stacks to its log; return where it is, or ''.

        Returns:
            The innermost call, as Python names it: `File "...", line N in function`.
        """
        worker = self.workers[number]
        before = worker.log_file.stat().st_size
        worker.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + DUMP_TIMEOUT_S
        while True:
            with worker.log_file.open("rb") as log:
                log.seek(before)
                text = log.read().decode(errors="replace")
            # Each line comes in several writes: until the dump has come to the main program.
            if re.search(r"__main__\.py.*\n", text) or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        innermost = re.search(r'File ".*", line \d+ in .*', text)
        return innermost[0] if innermost else ""

    def _start_worker(self, number: int, incarnation: int, generation: int) -> WorkerProcess:
        place = self._plan.placement.workers[number]
        log_file = self._log_folder / f"{place.name}.{incarnation}.log"
        package_root = str(Path(amp_runtime.__file__).parent.parent)
        python_path = os.pathsep.join([package_root, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **os.environ,
            **dict.fromkeys(BLAS_THREAD_VARIABLES, str(len(place.cores))),
            "PYTHONPATH": python_path,
            "AMP_RUN_ID": self._plan.run,
        }
        command = [sys.executable, "-m", "workers", "--plan", str(self._plan_file)]
        command += ["--worker", str(number)]
        if generation:
            command += ["--incarnation", str(incarnation), "--generation", str(generation)]
        inherited = () if self._rows_fd is None else (self._rows_fd,)
        if inherited:
            command += ["--rows", str(self._rows_fd)]
        # To a file and never to a pipe: nobody would read the pipe, and it would fill.
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                close_fds=True,
                pass_fds=inherited,
            )
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
        return WorkerProcess(number, place.name, place.cores, incarnation, log_file, process, pidfd)

    @property
    def pidfds(self) -> tuple[int, ...]:
        return tuple(worker.pidfd for worker in self.workers)

    def exit_error(self, number: int, *, starting: bool) -> AmpError:
        """Return the error for a worker whose process ended unasked."""
        worker = self.workers[number]
        how, last = _how_it_ended(worker.process.wait()), _last_words(worker.log_file)
        where, fix = worker.describe(), f"see {worker.log_file}"
        error_code, _, said = last.partition(": ")
        if starting and error_code in AmpError.by_code:
            return AmpError.by_code[error_code](said, where=where, fix=fix)
        said = f"; its last words: {last}" if last else ""
        if starting:
            return StartError(f"ended before it was ready, {how}{said}", where=where, fix=fix)
        return WorkerExitedError(f"ended unasked, {how}{said}", where=where, fix=fix)

    def stopped(self) -> list[WorkerProcess]:
        """Return the workers that a signal or a debugger has stopped, and that may go on."""
        return [worker for worker in self.workers if _is_stopped(worker.process.pid)]

    def odd_ends(self, timeout_s: float) -> list[str]:
        """Say which workers are still there, `timeout_s` after they were told to end, or failed."""
        odd = []
        for worker in self.workers:
            if (code := worker.process.poll()) is None:
                odd.append(f"{worker.describe()} has not stopped in {timeout_s:g} s, and is killed")
            elif code:
                odd.append(f"{worker.describe()} did not stop well: {_how_it_ended(code)}")
        return odd

    def close(self) -> None:
        """Leave nothing: kill what is alive, have the guard remove the socket directory."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
        deadline = time.monotonic() + KILL_TIMEOUT_S
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            os.close(worker.pidfd)
        self.workers.clear()
        if self._guard is not None:
            self._guard.finish(KILL_TIMEOUT_S)
            self._guard = None


def _is_stopped(pid: int) -> bool:
    """Whether a process is there, and stopped; a running, waiting or ended one is not."""
    return _state(pid) in ("T", "t")


def _state(pid: int) -> str:
    """Return the letter that the kernel calls a process's state by; '' if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _how_it_ended(code: int) -> str:
    """Say what a process's exit status means."""
    if code >= 0:
        return f"exit status {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else "?"
    guess = ", which somebody sent, or the kernel because memory ran out"
    return f"signal {-code} ({name}){guess if -code == signal.SIGKILL else ''}"


def _last_words(file: Path) -> str:
    """Return the line at the end of a log that says why its worker ended; '' if none does."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 65536))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    # A crash writes all stacks behind this line, and a list of modules.
    crash = [line for line in lines if line.startswith("Fatal Python error")]
    last = next((line for line in reversed(crash or lines) if line.strip()), "")
    return "" if _NORMAL_LINE.match(last) else last.strip()[:1000]


def ensure_files(n_workers: int) -> None:
    """Raise the limit on open files to what a run needs; its workers inherit it.

    Raises:
        StartError: the system does not allow as many.
    """
    need = FILES + FILES_PER_WORKER * n_workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < need:
        raise StartError(
            f"{n_workers} workers need {need} file descriptors, and the limit is {hard}",
            fix="raise it (ulimit -Hn)",
        )
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))


def usable_cores() -> list[int]:
    """Return the cores that this process may use: of its cpuset, as many as its quota pays."""
    cores = sorted(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        n = -(-int(quota) // int(period)) if quota != "max" else len(cores)
    except (OSError, ValueError):
        n = len(cores)
    return cores[: max(1, n)]
