"""Real runs for tests: start one on a small config, look at its processes, wait for its end."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from amp_runtime.checkpoint.store import newest

CHECKOUT = Path(__file__).parents[1]
DEADLINE_S = 30.0
MOST_PATIENCE = 4.0
DOCUMENTED = {0, 64, 70, 74, 75, 78, 130, 143}
"""The exit statuses that a run may have."""

GOES_ON = {0, 70, 130, 143}
"""Those after which it can be gone on with."""

ACCOUNTS = r"(?m)^instances: (\d+) injected = (\d+) retired \+ (\d+) lost; left out: \d+; workers"
"""The line of a report that says what became of all instances."""

LIST_REDUCTION = {
    "model": {"builder": "rnn", "hidden": 8, "embedding": 8},
    "data": {"source": "list_reduction", "train": 200, "valid": 50, "batch": 10},
}
PACKED = "runtime.placement=packed"
"""A worker for each core, where a process for each node is not the point: half the CPU time."""
THREE_WORKERS = (
    "runtime.placement={host: [{nodes: [embedding, loop, joined, linear-1, step, more]}]}"
)
"""`worker-1`, and `linear-2` and `loss` by themselves: for tests that look at those two."""
FOR_EVER = 1_000_000
"""Epochs: such a run only ends because of what a test does to it."""


def patience() -> float:
    """Return how many times as long as on a quiet machine a wait may take now, by its load."""
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    load = max(running, os.getloadavg()[0]) / (os.cpu_count() or 1)
    return min(max(load, 1.0), MOST_PATIENCE)


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = DEADLINE_S) -> Any:
    """Return the first true value of `condition()`.

    AssertionError after `timeout_s`, of a quiet machine: see `patience`.
    """
    started = time.monotonic()
    while not (value := condition()):
        took_s = time.monotonic() - started
        assert took_s < timeout_s or took_s < timeout_s * patience(), (
            f"after {took_s:.1f} s still not: {what}"
        )
        time.sleep(0.005)  # between two looks, not for something to happen
    return value


# ---------------------------------------------------------------------------- processes


def processes(variable: str, value: str) -> list[int]:
    """Return the running processes that were started with `variable=value`."""
    wanted = f"{variable}={value}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (path / "environ").read_bytes().split(b"\0") and is_running(
                int(path.name)
            ):
                found.append(int(path.name))
        except OSError:  # it ended, or is not ours
            continue
    return [pid for pid in found if pid != os.getpid()]


def is_running(pid: int) -> bool:
    """Whether `pid` runs; one that ended but was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()


def environment() -> dict[str, str]:
    """Return the environment of a command: ours, and this checkout on the path."""
    # Unbuffered output would hide what happens at the last flush.
    ours = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return ours | {"PYTHONPATH": str(CHECKOUT)}


# --------------------------------------------------------------------------------- runs


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a run ended; `seconds` is how long the wait for it took."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def last_line(self) -> str:
        return self.err.splitlines()[-1] if self.err else ""


class Run:
    """One `python -m amp_runtime run` and its run folder."""

    def __init__(self, process: subprocess.Popen[bytes], home: Path, runs: Path) -> None:
        self.process = process
        self.home = home
        self.runs = runs

    @property
    def out(self) -> str:
        return (self.home / "out").read_text()

    @property
    def err(self) -> str:
        return (self.home / "err").read_text()

    @property
    def folder(self) -> Path:
        """The run folder, once it is there."""
        (found,) = wait_until(lambda: list(self.runs.glob("*/manifest.json")), "a run folder")
        return found.parent

    @property
    def workers(self) -> dict[str, int]:
        """{worker: pid} of those that have said that they started, in their newest incarnation."""
        found: dict[str, dict[int, int]] = {}
        for log in self.folder.glob("logs/*.log"):
            name, _, incarnation = log.stem.rpartition(".")
            if started := re.search(r" started pid=(\d+)", log.read_text()):
                found.setdefault(name, {})[int(incarnation)] = int(started[1])
        return {name: pids[max(pids)] for name, pids in found.items()}

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def log(self, worker: str, incarnation: int = 0) -> str:
        """Return the text of a worker's log, '' before there is one."""
        file = self.folder / "logs" / f"{worker}.{incarnation}.log"
        return file.read_text() if file.exists() else ""

    def stages(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl."""
        return [
            json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()
        ]

    def wait_for(self, text: str) -> None:
        """Wait until the run has printed `text`, a regular expression."""

        def said() -> bool:
            assert self.process.poll() is None or re.search(text, self.out), self.out + self.err
            return re.search(text, self.out) is not None

        wait_until(said, f"{text!r} on standard output")

    def wait_training(self) -> None:
        self.wait_for(r"epoch +1/\d+ train")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self, *workers: str) -> None:
        """Send SIGKILL to workers, by name."""
        pids = self.workers
        for worker in workers:
            os.kill(pids[worker], signal.SIGKILL)

    def end(self, timeout_s: float = DEADLINE_S) -> Ended:
        """Wait for the end; assert what every end has in common."""
        started = time.monotonic()
        try:
            wait_until(lambda: self.process.poll() is not None, "ended", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.out}\n{self.err}") from None
        code = self.process.returncode
        ended = Ended(code, self.out, self.err, time.monotonic() - started)
        if code == -signal.SIGKILL:  # the test's own
            return ended
        assert code in DOCUMENTED, (code, ended.err)
        self._assert_accounts()
        if code in GOES_ON:
            self._assert_checkpoint_whole()
        if code:
            assert re.fullmatch(r"AMP-E\d{3}: .{20,}", ended.last_line), ended.err
            assert ended.err.count("AMP-E") == 1, ended.err
        return ended

    def _assert_checkpoint_whole(self) -> None:
        """Assert that the newest checkpoint, where there is one, is whole to the byte."""
        for latest in self.runs.glob("*/checkpoints/LATEST"):
            newest(latest.parent)

    def _assert_accounts(self) -> None:
        """Assert that a report tells of each injected instance what became of it."""
        for report in self.runs.glob("*/report.txt"):
            told = [list(map(int, some)) for some in re.findall(ACCOUNTS, report.read_text())]
            assert len(told) == 1, report.read_text()
            ((injected, retired, lost),) = told
            assert injected == retired + lost, report.read_text()


class Runner:
    """Starts runs in `home`: configs, user modules and run folders are there.

    Every process that comes of it has AMP_TEST in its environment.
    """

    def __init__(self, home: Path, mark: str) -> None:
        self.home = home
        self.mark = mark
        self.started: list[Run] = []

    def config(self, **sections: Any) -> Path:
        """Write a config: LIST_REDUCTION and a little training, with `sections` laid over it."""
        plain: dict[str, Any] = {
            "name": "small",
            **LIST_REDUCTION,
            "training": {"optimizer": {"name": "sgd", "lr": 0.1}, "update_every": 20},
            **sections,
        }
        path = self.home / "config.yaml"
        path.write_text(yaml.safe_dump(plain))
        return path

    def start(
        self,
        config: Path,
        *settings: str,
        before: tuple[str, ...] = (),
        program: tuple[str, ...] = ("-m", "amp_runtime"),
        **options: Any,
    ) -> Run:
        """Start a run.

        Args:
            before: a command that starts it, such as `taskset -c 0`.
            program: what Python is given instead of `-m amp_runtime`.
            options: of `subprocess.Popen`.
        """
        home = self.home / f"run{len(self.started)}"
        home.mkdir()
        runs = home / "runs"
        command = [*before, sys.executable, *program, "run", str(config)]
        with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
            process = subprocess.Popen(
                [*command, f"runtime.runs={runs}", *settings],
                **{"stdout": out, "stderr": err, "cwd": home, **options},
                stdin=subprocess.DEVNULL,
                env=environment(),
            )
        run = Run(process, home, runs)
        self.started.append(run)
        return run

    def resume(self, run: Run, *words: str, **options: Any) -> Run:
        """Go on with a run that has ended, in its folder; what it prints comes anew."""
        command = [sys.executable, "-m", "amp_runtime", "run", *words]
        with (run.home / "out").open("wb") as out, (run.home / "err").open("wb") as err:
            process = subprocess.Popen(
                [*command, "--resume", str(run.folder)],
                **{"stdout": out, "stderr": err, "cwd": run.home, **options},
                stdin=subprocess.DEVNULL,
                env=environment(),
            )
        again = Run(process, run.home, run.runs)
        self.started.append(again)
        return again

    def run(self, config: Path, *settings: str, timeout_s: float = DEADLINE_S, **how: Any) -> Ended:
        """Start a run and wait for its end."""
        return self.start(config, *settings, **how).end(timeout_s)

    @property
    def last(self) -> Run:
        return self.started[-1]

    def processes(self) -> list[int]:
        """Return all processes that this test has started and that still run."""
        return processes("AMP_TEST", self.mark)


@contextmanager
def leaving_nothing(private: Path, mark: str) -> Iterator[None]:
    """Assert that what happens within leaves nothing behind.

    A socket that listens is a descriptor of a process: of one that is left, or of this one.

    Args:
        private: the temp dir and the runtime dir of all that is started within.
        mark: AMP_TEST of all that is started within.
    """
    before, shm = _own(), set(os.listdir("/dev/shm"))
    yield
    left: dict[str, Any] = {}

    def nothing_left() -> bool:
        after = _own()
        left.clear()
        left["processes"] = [f"{pid} {title(pid)}" for pid in processes("AMP_TEST", mark)]
        left["files"] = [str(p) for p in private.rglob("*") if p.parent != private]
        left["shared memory"] = sorted(set(os.listdir("/dev/shm")) - shm)
        left.update({what: sorted(after[what] - before[what]) for what in before})
        return not any(left.values())

    try:
        # A guard needs a moment to end after the one it watches.
        wait_until(nothing_left, "nothing left", timeout_s=3.0)
    except AssertionError:
        for pid in processes("AMP_TEST", mark):  # not to disturb the tests that follow
            os.kill(pid, signal.SIGKILL)
        kinds = {what: things for what, things in left.items() if things}
        raise AssertionError(f"left behind: {kinds}") from None


def _own() -> dict[str, set[str]]:
    """Return the fds, threads and children of this process."""
    fds: set[str] = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            fds.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:  # that of listdir itself
            continue
    threads: set[str] = set()
    children: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            threads.add(f"{task.name} {(task / 'comm').read_text().strip()}")
            children.update((task / "children").read_text().split())
        except FileNotFoundError:  # that thread has ended
            continue
    return {
        "fds": fds,
        "threads": threads,
        "children": children,
    }
