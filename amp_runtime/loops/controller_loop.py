"""The loop of the controller's process: sockets, pidfds and signals to events, actions out.

It decides nothing: `Controller` does, and `Recovery` where a worker ends, raises or hangs:
then all begin anew, or the run ends with one error. One that cannot start ends it always.
Ctrl-C ends it once nothing is in flight, a second one at once.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence

from amp_runtime import failpoints
from amp_runtime.checkpoint.store import CheckpointStore
from amp_runtime.control.accounts import Accounts
from amp_runtime.control.actions import (
    Abandon,
    Action,
    Commit,
    Finished,
    Inject,
    StageDone,
    TakeShards,
    Tell,
    ToWorker,
    Warn,
)
from amp_runtime.control.controller import Controller
from amp_runtime.control.lifecycle import ControllerStatus
from amp_runtime.control.predicted import Predicted
from amp_runtime.control.recovery import Failure, Recovery, RecoverySettings
from amp_runtime.control.stages import StageResult
from amp_runtime.errors import AmpError, MessagesLostError, StallError
from amp_runtime.graph.placement import Placement
from amp_runtime.loops.data_channels import data_channels
from amp_runtime.loops.supervisor import Supervisor
from amp_runtime.output.console import Console
from amp_runtime.output.run_folder import RunFolder
from amp_runtime.prepare import Prepared
from amp_runtime.processes import guard
from amp_runtime.processes.launch import Launcher, ensure_files
from amp_runtime.processes.plan import Plan
from amp_runtime.processes.signals import collected, error_of
from amp_runtime.rows.message import MergeKey, Message, merge
from amp_runtime.sockets import shared_memory
from amp_runtime.sockets.directory import SocketDirectory
from amp_runtime.sockets.peer_link import PeerLink
from amp_runtime.sockets.shared_memory import Channel, SharedRings
from amp_runtime.sockets.transport import Endpoint
from amp_runtime.wire.ledger import Lane
from amp_runtime.wire.protocol import CONTROLLER, Fault, Hello, Record, Reset, WriteShards

TICK_S = 0.25
RECORDS_AT_ONCE = 1024


class ControllerLoop:
    """Runs one prepared run on real processes.

    Args:
        on_stage: called with each stage's result.
        on_predicted: called with the predictions of an evaluation, piece by piece.
        store: of the checkpoints that are made, and gone on from; None: there are none.
        on_rollback: called before what was told of stages is told again.
    """

    def __init__(
        self,
        prepared: Prepared,
        placement: Placement,
        folder: RunFolder,
        console: Console,
        on_stage: Callable[[StageResult], None] = lambda result: None,
        on_predicted: Callable[[Predicted], None] = lambda predicted: None,
        on_rollback: Callable[[], None] = lambda: None,
        store: CheckpointStore | None = None,
    ) -> None:
        self._store = store
        self._prepared = prepared
        self._placement = placement
        self._folder = folder
        self._console = console
        self._on_stage = on_stage
        self._on_predicted = on_predicted
        self._on_rollback = on_rollback
        self._finished: Finished | None = None
        self._faults: list[Fault] = []
        self._stop_asked = 0.0
        self._failed_at: float | None = None
        self._accounts = Accounts()
        first = store.generation if store else 0
        self.recovery = Recovery(_recovery_settings(prepared), first)
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

    def failures(self) -> list[str]:
        """Return the lines about failures, and what became of all instances, in the report."""
        assert self._finished is not None
        reports = self._finished.reports.values()
        of_workers = [report.process.channels for report in reports]
        n_restarts = sum(self.recovery.generation.incarnations.values())
        accounts = self._accounts.words(
            len(self.recovery.left_out), n_restarts, [self._link.channels.counts(), *of_workers]
        )
        return [*self.recovery.report(self._placement.peer_name), accounts]

    def _run(self) -> None:
        config = self._prepared.config
        n_workers = len(self._placement.workers)
        ensure_files(n_workers)
        guard.sweep(SocketDirectory.base())  # what a killed run and its killed guard left
        channels = data_channels(self._prepared.wiring, self._placement.peer_of())
        rows_fd, rings = self._share_memory(channels)
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
        self._launcher = Launcher(plan, self._folder.plan, self._folder.logs, rows_fd)
        try:
            self._folder.write_plan(plan)
            with Endpoint(directory, CONTROLLER) as endpoint:
                peers = dict.fromkeys(range(1, n_workers + 1), 0)
                generation = self.recovery.generation.number
                self._link = PeerLink(
                    endpoint,
                    plan.run,
                    peers,
                    self._placement.peer_name,
                    generation=generation,
                    rings=rings,
                )
                self._controller = self._make_controller(time.monotonic())
                self._supervisor = Supervisor(
                    self._launcher,
                    config.runtime.hang_timeout_s,
                    kill_stopped=self.recovery.settings.rollback,
                )
                self._launcher.start(generation)
                self._serve()
                self._wait_stopped(config.runtime.stop_timeout_s)
        finally:
            self._launcher.close()
            if rings is not None and rows_fd is not None:
                rings.close()
                os.close(rows_fd)
            directory.remove()  # where the guard was killed, or never started

    def _share_memory(
        self, channels: Sequence[Channel]
    ) -> tuple[int, SharedRings] | tuple[None, None]:
        """Return the descriptor of memory that arrays of rows pass through, and our end of it."""
        if not self._prepared.config.runtime.shared_memory:
            return None, None
        try:
            fd = shared_memory.create(len(channels))
            try:
                return fd, SharedRings(fd, channels, CONTROLLER)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            self._console.say(
                f"warning: no memory to share with workers ({error}): arrays of rows go through "
                "sockets, which takes longer"
            )
            return None, None

    def _make_controller(self, now: float) -> Controller:
        store = self._store
        return Controller(
            self._prepared.wiring,
            self._prepared.train,
            self._prepared.valid,
            self._prepared.settings,
            self._placement.peer_of(),
            self._link.channels.counts,
            now,
            self._prepared.parameters,
            self.recovery.generation,
            store.resume() if store else None,
            store.number if store else 0,
        )

    def _take_shards(self, number: int) -> None:
        """Have workers write their shards, where there is a place for them."""
        assert self._store is not None
        folder = self._store.begin(number)
        record = WriteShards(number, str(folder)) if folder else None
        if record is None:
            self._act(self._controller.go_without_checkpoint(time.monotonic()))
            return
        for peer in range(1, len(self._placement.workers) + 1):
            self._link.send_record(peer, record)

    def _make_trace(self) -> str:
        """Return the folder that workers record in; '' where nothing is recorded."""
        training = self._prepared.settings.evaluate is None
        if not training or not self._prepared.config.runtime.record:
            return ""
        return str(self._folder.make_trace())

    # ---- the loop

    def _serve(self) -> None:
        while self._finished is None:
            fds = (self._signals.fd, *self._launcher.pidfds)
            ready = self._link.endpoint.poll(TICK_S, fds)
            failures = self._receive_all(ready.lanes)
            now = time.monotonic()
            if self._supervisor.paused(now):
                self._controller.excuse(now)
            if not failures and (ended := self._supervisor.ended(ready.fds)):
                # A worker that raised says so before it ends.
                failures = self._receive_all([Lane.CONTROL]) or ended
            failures = failures or self._supervisor.silent(now)
            if failures and self._finished is None:  # else all are leaving
                self._recover(failures, now)
            self._obey_signals()
            self._check_stop_asked(now)
            try:
                self._check_deadlines(now)
            except MessagesLostError as error:
                self._recover([Failure(error, None)], now)
            self._tell_going_on(now)
            self._console.refresh(self._controller.progress, now)

    def _receive_all(self, lanes: Iterable[Lane]) -> list[Failure]:
        """Handle what has come; return what workers say of failures, or what was lost."""
        try:
            for lane in lanes:
                self._receive(lane)
        except MessagesLostError as error:
            return [Failure(error, None)]
        faults, self._faults = self._faults, []
        return [self._supervisor.fault(fault) for fault in faults]

    def _recover(self, failures: list[Failure], now: float) -> None:
        """Begin the next generation: every process, and what the controller knows.

        Raises:
            AmpError: the run ends with it.
        """
        if self.interruption is not None:
            raise failures[0].error
        generation = self.recovery.next(failures, self._controller.in_flight.numbers(), now)
        self._accounts.close(self._controller.in_flight)
        self._failed_at = now
        for failure in failures:
            self._console.say(f"warning: {failure.error}")
        back_to = self._store.go_back(generation.number) if self._store else None
        where = f"checkpoint {back_to.number}" if back_to else "the start of training"
        again = f"generation {generation.number}: all go back to {where}"
        self._console.say("; ".join([again, *self.recovery.news(self._placement.peer_name)]))
        self._on_rollback()
        self._folder.drop_stages(int(back_to.place["stages"]) if back_to else 0)
        self._supervisor.end(failures)
        failed = {failure.peer for failure in failures if failure.peer is not None}
        peers = range(1, len(self._launcher.workers) + 1)
        for peer in failed:
            self._link.endpoint.disconnect(peer)
        self._link.advance(generation.number, {p: generation.incarnation(p) for p in peers})
        self._controller = self._make_controller(now)
        for peer in peers:
            if peer not in failed:
                self._connect(peer)  # one that is just starting was not yet
                self._link.send_record(peer, Reset())
        self._supervisor.restart(failures, generation)

    def _tell_going_on(self, now: float) -> None:
        if self._failed_at is None or self._controller.status is not ControllerStatus.RUNNING:
            return
        after_s, self._failed_at = now - self._failed_at, None
        self._console.say(
            f"generation {self.recovery.generation.number}: training goes on after {after_s:.1f} s"
        )

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
        answers: dict[MergeKey, list[Message]] = {}
        for received in self._link.receive(lane, RECORDS_AT_ONCE):
            body, now = received.body, time.monotonic()
            self._supervisor.heard(received.envelope.sender, now)
            if isinstance(body, Message):
                answers.setdefault(body.merge_key, []).append(body)
            elif isinstance(body, Fault):
                self._faults.append(body)
            else:
                self._on_record(body, now)
        for together in answers.values():
            self._act(self._controller.on_answers(merge(together), time.monotonic()))

    def _on_record(self, record: Record, now: float) -> None:
        if isinstance(record, Hello):
            self._connect(record.worker + 1)
        self._act(self._controller.on_record(record, now))

    def _connect(self, peer: int) -> None:
        injects_to = {
            self._placement.peer_of()[edge.target]
            for edge in self._prepared.wiring.edges
            if edge.source < 0
        }
        lanes = [Lane.CONTROL, *([Lane.FORWARD] if peer in injects_to else [])]
        self._link.endpoint.connect(peer, self.recovery.generation.incarnation(peer), lanes)

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case ToWorker(peer=peer, record=record):
                    self._link.send_record(peer, record)
                case Inject(peer=peer, message=message):
                    failpoints.hit("controller.before_inject")
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
                case TakeShards(number=number):
                    self._take_shards(number)
                case Commit():
                    assert self._store is not None
                    self._store.commit(action)
                case Abandon():
                    assert self._store is not None
                    self._store.abandon(action)
                case Finished():
                    self._finished = action
                    self._accounts.close(self._controller.in_flight)

    # ---- what ends a run early

    def _check_deadlines(self, now: float) -> None:
        """Check the deadlines of all waits.

        Raises:
            StallError: one has passed; names workers that are stopped, which are to blame then.
            MessagesLostError: one has, because rows were lost.
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


def _recovery_settings(prepared: Prepared) -> RecoverySettings:
    runtime = prepared.config.runtime
    # An evaluation is soon done again; a trace is of one life of each worker.
    wanted = runtime.recovery == "rollback" and prepared.settings.evaluate is None
    return RecoverySettings(
        rollback=wanted and not runtime.record,
        max_restarts=runtime.max_restarts,
        window_s=runtime.restart_window_s,
        quarantine_after=runtime.quarantine_after,
    )
