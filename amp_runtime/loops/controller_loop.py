"""The loop of the controller's process: sockets, pidfds and signals to events, actions out.

It decides nothing: `Controller` does. A worker that ends, raises or cannot start ends
the run with one error; Ctrl-C ends it once nothing is in flight, a second one at once.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable

from amp_runtime.control.actions import Action, Finished, Inject, StageDone, Tell, ToWorker, Warn
from amp_runtime.control.controller import Controller
from amp_runtime.control.lifecycle import ControllerStatus
from amp_runtime.control.predicted import Predicted
from amp_runtime.control.stages import StageResult
from amp_runtime.errors import AmpError, StallError
from amp_runtime.graph.placement import Placement
from amp_runtime.output.console import Console
from amp_runtime.output.run_folder import RunFolder
from amp_runtime.prepare import Prepared
from amp_runtime.processes import guard
from amp_runtime.processes.launch import Launcher, ensure_files
from amp_runtime.processes.plan import Plan
from amp_runtime.processes.signals import collected, error_of
from amp_runtime.rows.message import Message
from amp_runtime.sockets.directory import SocketDirectory
from amp_runtime.sockets.peer_link import PeerLink
from amp_runtime.sockets.transport import Endpoint
from amp_runtime.wire.ledger import Lane
from amp_runtime.wire.protocol import CONTROLLER, Fault, Hello, Record

TICK_S = 0.25
RECORDS_AT_ONCE = 1024


class ControllerLoop:
    """Runs one prepared run on real processes.

    Args:
        on_stage: called with each stage's result.
        on_predicted: called with the predictions of an evaluation, piece by piece.
    """

    def __init__(
        self,
        prepared: Prepared,
        placement: Placement,
        folder: RunFolder,
        console: Console,
        on_stage: Callable[[StageResult], None] = lambda result: None,
        on_predicted: Callable[[Predicted], None] = lambda predicted: None,
    ) -> None:
        self._prepared = prepared
        self._placement = placement
        self._folder = folder
        self._console = console
        self._on_stage = on_stage
        self._on_predicted = on_predicted
        self._finished: Finished | None = None
        self._faults: list[Fault] = []
        self._stop_asked = 0.0
        self.interruption: AmpError | None = None

    def run(self) -> Finished:
        """Start the workers, train, stop them; return what the run came to.

        Raises:
            AmpError: the run failed; no process, socket or temporary file is left.
        """
        with collected() as self._signals:
            self._run()
        assert self._finished is not None
        return self._finished

    def _run(self) -> None:
        config = self._prepared.config
        n_workers = len(self._placement.workers)
        ensure_files(n_workers)
        guard.sweep(SocketDirectory.base())  # what a killed run and its killed guard left
        directory = SocketDirectory.create(n_workers)
        plan = Plan(
            run=secrets.token_hex(16),
            name=config.name,
            seed=config.seed,
            verify=config.verify,
            schedule=config.training.schedule,
            update_every=config.training.update_every,
            evaluation=self._prepared.settings.evaluation.value,
            folder=str(config.folder),
            trace=self._make_trace(),
            socket_directory=directory.path,
            controller_pid=os.getpid(),
            placement=self._placement,
            wiring=self._prepared.wiring,
        )
        self._launcher = Launcher(plan, self._folder.plan, self._folder.logs)
        try:
            self._folder.write_plan(plan)
            with Endpoint(directory, CONTROLLER) as endpoint:
                peers = dict.fromkeys(range(1, n_workers + 1), 0)
                self._link = PeerLink(endpoint, plan.run, peers, self._placement.peer_name)
                self._controller = Controller(
                    self._prepared.wiring,
                    self._prepared.train,
                    self._prepared.valid,
                    self._prepared.settings,
                    self._placement.peer_of(),
                    self._link.channels.counts,
                    time.monotonic(),
                    self._prepared.parameters,
                )
                self._launcher.start()
                self._serve()
                self._wait_stopped(config.runtime.stop_timeout_s)
        finally:
            self._launcher.close()
            directory.remove()  # where the guard was killed, or never started

    def _make_trace(self) -> str:
        """Return the folder that workers record in; '' where nothing is recorded."""
        training = self._prepared.settings.evaluate is None
        if not training or not self._prepared.config.runtime.record:
            return ""
        return str(self._folder.make_trace())

    # ---- the loop

    def _serve(self) -> None:
        fds = (self._signals.fd, *self._launcher.pidfds)
        while self._finished is None:
            ready = self._link.endpoint.poll(TICK_S, fds)
            # Control is read first: a worker that raised says so before it ends.
            for lane in ready.lanes:
                self._receive(lane)
            if self._faults:
                raise self._fault_error(self._faults[0])
            for fd in ready.fds:
                if fd != self._signals.fd and self._finished is None:
                    self._receive(Lane.CONTROL)
                    if self._faults:
                        raise self._fault_error(self._faults[0])
                    starting = self._controller.status is ControllerStatus.STARTING
                    raise self._launcher.exit_error(fd, starting=starting)
            self._obey_signals()
            now = time.monotonic()
            self._check_stop_asked(now)
            self._check_deadlines(now)
            self._console.refresh(self._controller.progress(now), now)

    def _wait_stopped(self, timeout_s: float) -> None:
        """Wait until all workers have ended, as they were told; say which have not, or failed."""
        deadline = time.monotonic() + timeout_s
        running = set(self._launcher.pidfds)
        while running and (left_s := deadline - time.monotonic()) > 0:
            ready = self._link.endpoint.poll(left_s, (self._signals.fd, *sorted(running)))
            for lane in ready.lanes:
                while self._link.endpoint.receive(lane) is not None:
                    pass  # reports that were under way
            if self._obey_signals():
                return
            running.difference_update(ready.fds)
        for line in self._launcher.odd_ends(timeout_s):
            self._console.say(line)

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
                case Tell(predicted=predicted):
                    self._on_predicted(predicted)
                case Warn(text=text):
                    self._console.say(f"warning: {text}")
                case Finished():
                    self._finished = action

    # ---- what ends a run early

    def _fault_error(self, fault: Fault) -> AmpError:
        """Return the error of a worker that cannot go on, with its place and log."""
        worker = self._launcher.workers[fault.worker]
        error = AmpError.from_record(fault.error)
        node = f"node {fault.node!r} in " if fault.node else ""
        where = f"{node}{worker.describe()}"
        fix = f"{error.fix}; " if error.fix else ""
        where = f"{where}: {error.where}" if error.where else where
        return type(error)(error.what, where=where, fix=f"{fix}see {worker.log_file}")

    def _check_deadlines(self, now: float) -> None:
        """Check the deadlines of all waits.

        Raises:
            StallError: one has passed; names workers that are stopped, which are to blame then.
        """
        try:
            self._controller.on_tick(now)
        except StallError as error:
            if not (stopped := self._launcher.stopped()):
                raise
            raise StallError(
                f"{error.what}; {'; '.join(worker.describe() for worker in stopped)}: stopped by "
                "a signal (SIGSTOP) or a debugger",
                fix="let a worker go on in time, with kill -CONT and its pid",
            ) from None

    def _obey_signals(self) -> bool:
        """Begin to stop at the first signal, and end at the second; whether any came."""
        numbers = self._signals.take()
        for number in numbers:
            where = str(self._folder.path)
            if self.interruption is not None:
                raise error_of(number, "twice: ended at once", where)
            self.interruption = error_of(number, where=where)
            self._stop_asked = now = time.monotonic()
            self._console.say(
                f"{self.interruption.what}: finishing what is in flight; once more ends at once"
            )
            self._act(self._controller.request_stop(self.interruption.what, now))
        return bool(numbers)

    def _check_stop_asked(self, now: float) -> None:
        timeout_s = self._prepared.config.runtime.stop_timeout_s
        asked = self.interruption
        if asked is None or self._finished is not None or now - self._stop_asked <= timeout_s:
            return
        raise type(asked)(
            f"{asked.what}: after {timeout_s:g} s rows are still in flight, so there are no "
            "parameters",
            where=asked.where,
            fix="raise runtime.stop_timeout_s",
        )
