"""Sees workers fail, by their exit, their word or their silence, and starts them again."""

from __future__ import annotations

import time
from collections.abc import Iterable

from amp_runtime.control.recovery import Failure, Generation
from amp_runtime.errors import AmpError, WorkerHungError
from amp_runtime.processes.launch import Launcher, WorkerProcess
from amp_runtime.wire.protocol import Fault

STOPPED_S = 6.5
"""How long a worker may be stopped by a signal or a debugger."""
PAUSE_S = 2.0
"""Who looks so late was stopped itself, and has heard nobody meanwhile."""
TOGETHER_S = 0.005
"""Failures that come so close have one cause, and are one."""


class Supervisor:
    """The workers of one run, as somebody sees them who cannot look inside.

    Args:
        hang_timeout_s: a worker that says nothing for so long hangs: idle ones say that they
            are there once a second.
        kill_stopped: whether one that is stopped for STOPPED_S has failed.
    """

    def __init__(
        self, launcher: Launcher, hang_timeout_s: float, *, kill_stopped: bool = True
    ) -> None:
        self._launcher = launcher
        self._hang_timeout_s = hang_timeout_s
        self._stopped_s = min(STOPPED_S, hang_timeout_s) if kill_stopped else float("inf")
        self._heard: dict[int, float] = {}
        self._looked = 0.0

    def heard(self, peer: int, now: float) -> None:
        """Note a sign of life; the first one says that a worker is ready."""
        self._heard[peer] = now

    def paused(self, now: float) -> bool:
        """Whether this process was stopped itself since it was last asked: then nobody was
        heard, and none is to blame."""
        since, self._looked = now - self._looked, now
        if since > PAUSE_S:
            self._heard = dict.fromkeys(self._heard, now)
        return since > PAUSE_S

    def ended(self, fds: Iterable[int]) -> list[Failure]:
        """Return the failures of workers whose pidfds are ready, or soon after.

        Raises:
            StartError: one could not start: it would not the next time either.
        """
        if not set(fds) & set(self._launcher.pidfds):
            return []
        time.sleep(TOGETHER_S)
        failures = []
        for worker in self._launcher.workers:
            if worker.process.poll() is None:
                continue
            peer = worker.number + 1
            starting = peer not in self._heard
            error = self._launcher.exit_error(worker.number, starting=starting)
            # Somebody killed it, or it said why it cannot start.
            if starting and (worker.process.returncode or 0) >= 0:
                raise error
            failures.append(Failure(error, peer))
        return failures

    def silent(self, now: float) -> list[Failure]:
        """Return the failures of workers that hang, or are stopped for too long."""
        failures = []
        for peer, heard in self._heard.items():
            worker, silent_s = self._launcher.workers[peer - 1], now - heard
            if silent_s > self._stopped_s and worker in self._launcher.stopped():
                failures.append(Failure(self._stopped(worker, silent_s), peer))
            elif silent_s > self._hang_timeout_s:
                failures.append(Failure(self._hung(worker, silent_s), peer))
        return failures

    def fault(self, fault: Fault) -> Failure:
        """Return the failure of a worker that cannot go on, with its place and log."""
        worker = self._launcher.workers[fault.worker]
        error = AmpError.from_record(fault.error)
        node = f"node {fault.node!r} in " if fault.node else ""
        where = f"{node}{worker.describe()}"
        fix = f"{error.fix}; " if error.fix else ""
        where = f"{where}: {error.where}" if error.where else where
        told = type(error)(error.what, where=where, fix=f"{fix}see {worker.log_file}")
        return Failure(told, fault.worker + 1, raised=True)

    def end(self, failures: Iterable[Failure]) -> None:
        """Leave no process of workers that failed."""
        for failure in failures:
            if failure.peer is not None:
                self._heard.pop(failure.peer, None)
                self._launcher.end(failure.peer - 1)

    def restart(self, failures: Iterable[Failure], generation: Generation) -> None:
        """Start workers that failed again.

        Raises:
            StartError: the system refuses.
        """
        for peer in sorted({f.peer for f in failures if f.peer is not None}):
            self._launcher.restart(peer - 1, generation.incarnation(peer), generation.number)

    def _stopped(self, worker: WorkerProcess, silent_s: float) -> AmpError:
        return WorkerHungError(
            f"no word for {silent_s:.1f} s: stopped by a signal (SIGSTOP) or a debugger",
            where=worker.describe(),
            fix="to look at a worker with a debugger, set runtime.recovery to none",
        )

    def _hung(self, worker: WorkerProcess, silent_s: float) -> AmpError:
        stack = self._launcher.stack_of(worker.number)
        return WorkerHungError(
            f"no word for {silent_s:.0f} s: it hangs{f', at {stack}' if stack else ''}",
            where=worker.describe(),
            fix=f"its stacks are in {worker.log_file}; where a batch may take so long, raise "
            "runtime.hang_timeout_s",
        )
