"""The loop of a worker process: sockets to nodes and back. It decides nothing.

Control first, then answers, then forward rows; after each piece of work the sockets
are looked at again, so that all that came meanwhile is merged into the next batch.
"""

from __future__ import annotations

import os
import resource
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from amp_runtime import failpoints
from amp_runtime.errors import AmpError, CheckpointError, WorkerFaultError, blamed
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import NodeHost
from amp_runtime.host.row_queues import RowQueues
from amp_runtime.loops.data_channels import data_channels
from amp_runtime.nodes.node import Evaluation, Kinds
from amp_runtime.nodes.statistics import Histogram, ProcessFacts, WorkerReport
from amp_runtime.nodes.updates import Schedule
from amp_runtime.output.log import Log
from amp_runtime.processes.plan import Plan
from amp_runtime.rows.message import Message
from amp_runtime.sockets.directory import SocketDirectory
from amp_runtime.sockets.peer_link import PeerLink
from amp_runtime.sockets.shared_memory import SharedRings
from amp_runtime.sockets.transport import Endpoint
from amp_runtime.wire.ledger import Lane
from amp_runtime.wire.protocol import (
    CONTROLLER,
    Acknowledged,
    Barrier,
    Fault,
    Hello,
    Link,
    Linked,
    ReadShards,
    Record,
    Reset,
    ShardsWritten,
    Status,
    Stop,
    WriteShards,
)

if TYPE_CHECKING:
    from amp_runtime.rows.saved import Saved
    from amp_runtime.trace.recorder import Recorder

STATUS_EVERY_S = 1.0
MESSAGES_AT_ONCE = 256
"""Messages taken from one lane before work goes on: control must not wait for ever."""
FAULT_GRACE_S = 5.0
LINK_TIMEOUT_S = 10.0
TRACEBACK_BYTES = 2000


class WorkerLoop:
    """Runs one worker of a plan.

    Args:
        worker: its number in the plan.
        kinds: finds node classes.
        incarnation: how often it was started before.
        generation: that it is started in.
        rows_fd: of the memory that arrays of rows pass through; None: there is none.
    Raises:
        AmpError: a node cannot be made, or a socket cannot be bound.
    """

    def __init__(
        self,
        plan: Plan,
        worker: int,
        kinds: Kinds,
        log: Log,
        incarnation: int = 0,
        generation: int = 0,
        rows_fd: int | None = None,
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._log = log
        self._place = plan.placement.workers[worker]
        peer, peer_of = worker + 1, plan.placement.peer_of()
        self._kinds = kinds
        self._settings = HostSettings(
            peer_of,
            plan.seed,
            plan.verify,
            Schedule(plan.schedule),
            plan.update_every,
            Evaluation(plan.evaluation),
        )
        self._recorder = self._make_recorder(peer) if plan.trace else None
        self._host = self._make_host(peer)
        endpoint = Endpoint(SocketDirectory.open(plan.socket_directory), peer, incarnation)
        channels, rings = data_channels(plan.wiring, peer_of), None
        if rows_fd is not None:
            rings = SharedRings(rows_fd, channels, peer)
            os.close(rows_fd)  # mapped, it is not needed any more
        # Whom else to hear, `Link` tells.
        self._link = PeerLink(
            endpoint,
            plan.run,
            {CONTROLLER: 0},
            plan.placement.peer_name,
            incarnation,
            generation,
            rings,
        )
        self._peers = [(to, lane) for of, to, lane in channels if of == peer]
        self._stopped = False
        self._linking_since: float | None = None
        self._told: set[str] = set()
        self._last_status = time.monotonic()

    def _make_host(self, peer: int) -> NodeHost:
        queues = self._recorder.queues if self._recorder is not None else RowQueues
        host = NodeHost(
            self._plan.wiring,
            self._kinds,
            self._settings,
            peer,
            facts=self._facts,
            queues=queues,
        )
        if self._recorder is not None:
            self._recorder.watch(host.nodes)
        return host

    def _make_recorder(self, peer: int) -> Recorder:
        # Imported here: most runs are not recorded.
        from amp_runtime.trace.file import TraceWriter
        from amp_runtime.trace.recorder import Recorder

        run, name = self._plan.run, self._place.name
        return Recorder(TraceWriter(Path(self._plan.trace) / name, run, name), run, peer)

    def run(self, hello: Hello) -> int:
        """Say hello, serve until told to stop; return the exit status."""
        endpoint = self._link.endpoint
        self._hello = hello
        with endpoint:
            endpoint.connect(CONTROLLER, lanes=[Lane.CONTROL])
            failpoints.hit("worker.before_ready")
            self._link.send_record(CONTROLLER, hello)
            try:
                while not self._stopped:
                    self._turn()
                if self._recorder is not None:
                    self._recorder.end()
            except Exception as error:  # noqa: BLE001 - whatever a node raises is reported
                self._fault(error)
                return 70
        peak = endpoint.peak_outbox_messages
        self._log.info("stopped", cpu_s=_cpu_s(), rss_mb=rss_bytes() / 1e6, outbox_peak=peak)
        return 0

    def _turn(self) -> None:
        ready = self._link.endpoint.poll(0 if not self._host.idle else STATUS_EVERY_S)
        for lane in ready.lanes:
            for received in self._link.receive(lane, MESSAGES_AT_ONCE):
                if isinstance(received.body, Message):
                    self._take(received.body, received.envelope.sender)
                else:
                    self._obey(received.body)
        if self._linking_since is not None:
            self._look_if_linked(self._linking_since)
        outgoing = self._host.work()
        if outgoing is not None:
            failpoints.hit("worker.before_send")
            for out in outgoing:
                self._link.send_message(out.peer, out.message)
            self._host.settle()
            for record in self._host.take_records():
                self._link.send_record(CONTROLLER, record)
        now = time.monotonic()
        if now - self._last_status >= STATUS_EVERY_S:
            self._last_status = now
            report = self._host.report()
            self._tell_not_applied(report)
            self._link.send_record(CONTROLLER, Status(self._worker, report))

    def _take(self, message: Message, sender: int) -> None:
        """Hand rows to the nodes; who sent rows that do not fit is named first."""
        try:
            self._host.receive(message)
            failpoints.hit("worker.after_receive")
        except AmpError as error:
            name = self._plan.placement.peer_name(sender)
            raise error.at(f"rows from {name}") from error.__cause__

    def _obey(self, record: Record) -> None:
        match record:
            case Reset():
                self._begin_anew()
            case Link(incarnations=incarnations):
                of_peer = dict(enumerate((0, *incarnations)))
                self._link.channels.hear(of_peer)
                for peer, lane in self._peers:
                    self._link.endpoint.connect(peer, of_peer[peer], lanes=[lane])
                self._linking_since = time.monotonic()
            case ReadShards():
                self._host.restore(self._read_shards(record))
            case Stop(reason=reason):
                self._log.info("stop", reason=reason)
                self._stopped = True
            case _:
                if self._recorder is not None:
                    self._recorder.obeys(record)
                replies = self._host.on_record(record)
                for reply in replies:
                    if self._recorder is not None:
                        self._recorder.replied(reply)
                    self._link.send_record(CONTROLLER, reply)
                    if isinstance(reply, Acknowledged) and isinstance(record, Barrier):
                        self._tell_story(record, reply.report)
                if isinstance(record, WriteShards):
                    self._link.send_record(CONTROLLER, self._write_shards(record))

    def _write_shards(self, record: WriteShards) -> ShardsWritten:
        """Write the shards of all nodes; say so, or why not."""
        # Imported here: a worker that is ready may never write one.
        from amp_runtime.checkpoint.files import write_shard

        failpoints.hit("worker.before_shard")
        shards, started = [], time.monotonic()
        try:
            for name, saved in self._host.save().items():
                shards.append(write_shard(Path(record.folder), name, saved))
        except CheckpointError as error:
            self._log.error("checkpoint", number=record.checkpoint, error=str(error))
            return ShardsWritten(self._worker, record.checkpoint, [], str(error))
        n_bytes, seconds = sum(s.n_bytes for s in shards), time.monotonic() - started
        self._log.info("checkpoint", number=record.checkpoint, bytes=n_bytes, seconds=seconds)
        failpoints.hit("worker.after_shard")
        return ShardsWritten(self._worker, record.checkpoint, shards, "")

    def _read_shards(self, record: ReadShards) -> dict[str, Saved]:
        """Return what the shards of all nodes hold.

        Raises:
            CheckpointError: one is damaged.
        """
        from amp_runtime.checkpoint.files import read_shard

        self._log.info("going on", folder=record.folder)
        return {shard.node: read_shard(Path(record.folder), shard) for shard in record.shards}

    def _look_if_linked(self, since: float) -> None:
        # Looked at turn by turn: who waited here would hear of no reset, and a peer that
        # died meanwhile never answers.
        if time.monotonic() - since > LINK_TIMEOUT_S:
            self._link.endpoint.wait_linked(timeout_s=0)
        if self._link.endpoint.linked():
            self._linking_since = None
            self._log.info("linked", channels=len(self._peers) + 1)
            self._link.send_record(CONTROLLER, Linked(self._worker))

    def _begin_anew(self) -> None:
        """Be what a worker is that was just started: nothing of a former generation stays."""
        failpoints.hit("worker.in_reset")
        peer, self._linking_since = self._host.peer, None
        del self._host  # first: two sets of nodes may be more than there is memory for
        self._host = self._make_host(peer)
        self._log.info("reset", generation=self._link.channels.generation)
        self._link.send_record(CONTROLLER, self._hello)

    def _tell_story(self, barrier: Barrier, report: WorkerReport) -> None:
        """Log what the nodes have done so far, at the end of each stage."""
        self._tell_not_applied(report)
        if not barrier.reset_metrics:
            return
        for name, node in report.nodes.items():
            staleness = Histogram(node.staleness or [0])
            values = {
                "rows_forward": node.rows_forward,
                "rows_backward": node.rows_backward,
                "mean_batch": node.rows / max(node.batches, 1),
                "busy_s": node.busy_s,
                "stash_peak": node.stash_peak,
                "stash_bytes": node.stash_bytes,
            }
            if node.staleness:
                values |= {
                    "updates": node.updates,
                    "lr": node.lr,
                    **({"clipped": node.clipped} if node.clipped is not None else {}),
                    **({"not_applied": node.not_applied} if node.not_applied else {}),
                    **({"dropped": node.dropped} if node.dropped is not None else {}),
                    **({"horizon": node.horizon} if node.horizon is not None else {}),
                    **({"averagings": node.averagings} if node.averagings is not None else {}),
                    "staleness_mean": staleness.mean,
                    "staleness_p95": staleness.percentile(0.95),
                }
            if node.weight_copies_peak is not None:
                values |= {
                    "weight_copies_peak": node.weight_copies_peak,
                    "weight_copies_peak_bytes": node.weight_copies_peak_bytes,
                }
            if node.delay_bytes is not None:
                values["delay_bytes"] = node.delay_bytes
            for mode, metrics in node.metrics.items():
                values |= {f"{mode}_{n}_sum": metric.total for n, metric in metrics.items()}
            epoch = {"epoch": barrier.epoch} if barrier.epoch else {}
            self._log.info("barrier", node=name, number=barrier.barrier, **epoch, **values)
            if (loss := node.diverged_loss()) is not None:
                where = {"first": node.not_finite} if node.not_finite else {}
                self._log.warning(
                    "loss_not_finite", node=name, **epoch, train_loss_sum=loss, **where
                )

    def _tell_not_applied(self, report: WorkerReport) -> None:
        """Log the first update of a node that was not applied; the rest are counted."""
        for name, node in report.nodes.items():
            if node.not_applied and name not in self._told:
                self._told.add(name)
                self._log.warning("update_not_applied", node=name, first=node.not_finite)

    def _fault(self, error: Exception) -> None:
        """Report an error that this worker cannot go on after, and wait to be stopped."""
        node = self._host.working_on
        text = "".join(traceback.format_exception(error))
        self._log.error("fault", node=node, error=f"{type(error).__name__}: {error}")
        self._log.raw(text)
        fault = blamed(error, WorkerFaultError, self._plan.folder)
        record = Fault(self._worker, node, fault.to_record(), text[-TRACEBACK_BYTES:])
        self._link.send_record(CONTROLLER, record)
        deadline = time.monotonic() + FAULT_GRACE_S
        while time.monotonic() < deadline:  # until the controller stops us
            self._link.endpoint.flush()
            ready = self._link.endpoint.poll(0.05)
            if Lane.CONTROL in ready.lanes and any(
                isinstance(r.body, Stop | Reset) for r in self._link.receive(Lane.CONTROL, 1)
            ):
                return

    def _facts(self) -> ProcessFacts:
        return ProcessFacts(self._link.channels.counts(), _cpu_s(), rss_bytes())


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rss_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
