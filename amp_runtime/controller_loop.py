"""The loop of the controller's process: sockets, pidfds and signals to events, actions out.

It decides nothing: `Controller` does. A worker that ends, raises or cannot start ends
the run with one error; Ctrl-C ends it once nothing is in flight, a second one at once.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from amp_runtime.console import Console
from amp_runtime.controller import Action, Controller, Finished, Inject, StageDone, ToWorker
from amp_runtime.errors import AmpError, Interrupted, Terminated
from amp_runtime.launch import Launcher
from amp_runtime.ledger import Lane
from amp_runtime.lifecycle import ControllerStatus
from amp_runtime.message import Message
from amp_runtime.peer_link import PeerLink
from amp_runtime.placement import Placement
from amp_runtime.plan import Plan
from amp_runtime.prepare import Prepared
from amp_runtime.protocol import CONTROLLER, Fault, Hello, Record
from amp_runtime.run_folder import RunFolder
from amp_runtime.sockets import SocketDirectory
from amp_runtime.stages import StageResult
from amp_runtime.transport import Endpoint

TICK_S = 0.25
RECORDS_AT_ONCE = 1024


class ControllerLoop:
    """Runs one prepared run on real processes.

    Args:
        on_stage: called with each stage's result.
    """

    def __init__(
        self,
        prepared: Prepared,
        placement: Placement,
        folder: RunFolder,
        console: Console,
        on_stage: Callable[[StageResult], None] = lambda result: None,
    ) -> None:
        self._prepared = prepared
        self._placement = placement
        self._folder = folder
        self._console = console
        self._on_stage = on_stage
        self._finished: Finished | None = None
        self._faults: list[Fault] = []
        self._signals: list[int] = []
        self._stop_asked: float | None = None
        self.interruption: AmpError | None = None

    def run(self) -> Finished:
        """Start the workers, train, stop them; return what the run came to.

        Raises:
            AmpError: the run failed; no process, socket or temporary file is left.
        """
        config = self._prepared.config
        n_workers = len(self._placement.workers)
        directory = SocketDirectory.create(n_workers)
        plan = Plan(
            run=secrets.token_hex(16),
            name=config.name,
            seed=config.seed,
            verify=config.verify,
            schedule=config.training.schedule,
            folder=str(config.folder),
            socket_directory=directory.path,
            controller_pid=os.getpid(),
            placement=self._placement,
            wiring=self._prepared.wiring,
        )
        self._launcher = Launcher(plan, self._folder.plan, self._folder.logs)
        try:
            plan.write(self._folder.plan)
            with Endpoint(directory, CONTROLLER) as endpoint, self._watching_signals() as wakeup:
                self._link = PeerLink(endpoint, plan.run, dict.fromkeys(range(1, n_workers + 1), 0))
                self._controller = Controller(
                    self._prepared.wiring,
                    self._prepared.train,
                    self._prepared.valid,
                    self._prepared.settings,
                    self._placement.peer_of(),
                    self._link.channels.counts,
                    time.monotonic(),
                )
                self._launcher.start()
                self._serve(wakeup)
                endpoint.flush()
                self._launcher.wait_stopped(config.runtime.stop_timeout_s)
        finally:
            self._launcher.close()
            directory.remove()  # where the guard was killed, or never started
        assert self._finished is not None
        return self._finished

    # ---- the loop

    def _serve(self, wakeup: int) -> None:
        fds = (wakeup, *self._launcher.pidfds)
        while self._finished is None:
            ready = self._link.endpoint.poll(TICK_S, fds)
            # Control is read first: a worker that raised says so before it ends.
            for lane in ready.lanes:
                self._receive(lane)
            if self._faults:
                raise self._fault_error(self._faults[0])
            for fd in ready.fds:
                if fd == wakeup:
                    os.read(fd, 512)
                elif self._finished is None:
                    self._receive(Lane.CONTROL)
                    if self._faults:
                        raise self._fault_error(self._faults[0])
                    starting = self._controller.status is ControllerStatus.STARTING
                    raise self._launcher.exit_error(fd, starting=starting)
            self._obey_signals()
            now = time.monotonic()
            self._controller.on_tick(now)
            self._console.refresh(self._controller.progress(now), now)

    def _receive(self, lane: Lane) -> None:
        for received in self._link.receive(lane, RECORDS_AT_ONCE):
            body, now = received.body, time.monotonic()
            if isinstance(body, Message):
                self._act(self._controller.on_answers(body, now))
            elif isinstance(body, Fault):
                self._faults.append(body)
            else:
                self._on_record(body, now)

    def _on_record(self, record: Record, now: float) -> None:
        if isinstance(record, Hello):
            injects_to = {
                self._placement.peer_of()[edge.target]
                for edge in self._prepared.wiring.edges
                if edge.source < 0
            }
            peer = record.worker + 1
            lanes = [Lane.CONTROL, *([Lane.FORWARD] if peer in injects_to else [])]
            self._link.endpoint.connect(peer, lanes=lanes)
        self._act(self._controller.on_record(record, now))

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case ToWorker(peer=peer, record=record):
                    self._link.send_record(peer, record)
                case Inject(peer=peer, message=message):
                    self._link.send_message(peer, message)
                case StageDone(result=result):
                    self._console.stage(
                        result,
                        self._prepared.settings.max_epochs,
                        self._prepared.settings.max_active_keys,
                    )
                    self._folder.add_stage(result)
                    self._on_stage(result)
                case Finished():
                    self._finished = action

    # ---- what ends a run early

    def _fault_error(self, fault: Fault) -> AmpError:
        """Return the error of a worker that cannot go on, with its place and log."""
        worker = self._launcher.workers[fault.worker]
        error = AmpError.from_record(fault.error)
        where = f"node {fault.node!r} in {worker.describe()}"
        fix = f"{error.fix}; " if error.fix else ""
        lines = fault.traceback.strip().splitlines()
        place = next((line.strip() for line in reversed(lines) if 'File "' in line), "")
        what = error.what if not place else f"{error.what} [{place}]"
        where = f"{where}: {error.where}" if error.where else where
        return type(error)(what, where=where, fix=f"{fix}see {worker.log_file}")

    @contextmanager
    def _watching_signals(self) -> Iterator[int]:
        """Collect SIGINT, SIGTERM and SIGHUP; yield an fd that wakes the loop."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        previous = {n: signal.signal(n, lambda n, _: self._signals.append(n)) for n in numbers}
        wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield read
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in previous.items():
                signal.signal(number, handler)
            os.close(read)
            os.close(write)

    def _obey_signals(self) -> None:
        now = time.monotonic()
        while self._signals:
            number = self._signals.pop(0)
            cls = Interrupted if number == signal.SIGINT else Terminated
            name = signal.Signals(number).name
            error = cls(f"stopped by {name}", where=str(self._folder.path))
            if self._stop_asked is not None:
                raise error
            self._stop_asked, self.interruption = now, error
            self._console.say(f"{name}: finishing what is in flight; once more ends at once")
            self._act(self._controller.request_stop(f"stopped by {name}", now))
        timeout_s = self._prepared.config.runtime.stop_timeout_s
        if self._stop_asked is not None and now - self._stop_asked > timeout_s:
            assert self.interruption is not None
            raise self.interruption
