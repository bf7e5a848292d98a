"""What a worker of a recorded run writes down. Loaded by such workers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from amp_runtime.host.row_queues import RowQueues
from amp_runtime.nodes.node import Node
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.rows.message import MergeKey, Message
from amp_runtime.rows.spec import Int64
from amp_runtime.trace.events import pack_batch, pack_record, pack_updated
from amp_runtime.trace.file import TraceWriter
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.protocol import CONTROLLER, Barrier, Parameters, Record, Structure


@dataclass(slots=True)
class _Seen:
    """A node as it was when it was last looked at."""

    node: Parameterised
    version: int
    counts: Int64


class Recorder:
    """Writes the trace of worker `peer`.

    Structure is left out: a replay gives it to nodes from the data.
    """

    def __init__(self, writer: TraceWriter, run: str, peer: int) -> None:
        self._writer = writer
        self._run = run
        self._peer = peer
        self._seen: dict[int, _Seen] = {}

    def watch(self, nodes: Mapping[int, Node]) -> None:
        """Note from now on the updates of `nodes`, by number, in the place of others."""
        self._seen = {
            number: _Seen(node, node.version, node.staleness.counts)
            for number, node in nodes.items()
            if isinstance(node, Parameterised)
        }

    def queues(self, most_rows: Callable[[MergeKey], float], **order: bool) -> RowQueues:
        """Return queues that note what is taken; given to `NodeHost`."""
        return RecordedQueues(self._taken, most_rows, **order)

    def obeys(self, record: Record) -> None:
        """Note a record that the nodes are about to be told.

        Raises:
            OutputError: the trace cannot be written.
        """
        if isinstance(record, Structure):
            return
        self._note_updates()
        self._add(CONTROLLER, record)
        if isinstance(record, Barrier):
            self._writer.flush()

    def replied(self, record: Record) -> None:
        """Note the parameters that a node ended with: what a replay must come to."""
        if isinstance(record, Parameters):
            self._add(self._peer, record)

    def end(self) -> None:
        """Write the rest: the run is over."""
        self._note_updates()
        self._writer.end()

    def _taken(self, batch: Message) -> None:
        self._note_updates()
        self._writer.add(pack_batch(batch))

    def _note_updates(self) -> None:
        """Note what was updated by the event before."""
        for number, seen in self._seen.items():
            node, before = seen.node, seen.counts
            if (versions := node.version - seen.version) == 0:
                continue
            counts = node.staleness.counts.copy()
            counts[: len(before)] -= before
            self._writer.add(pack_updated(number, versions, counts))
            seen.version, seen.counts = node.version, node.staleness.counts

    def _add(self, sender: int, record: Record) -> None:
        envelope = Envelope(self._run, 0, sender, 0, self._writer.n_events)
        self._writer.add(pack_record(envelope, record))


class RecordedQueues(RowQueues):
    """Queues that tell of each batch before a node is run on it."""

    def __init__(
        self,
        taken: Callable[[Message], None],
        most_rows: Callable[[MergeKey], float],
        **order: bool,
    ) -> None:
        super().__init__(most_rows, **order)
        self._taken = taken

    def next_batch(self) -> Message | None:
        batch = super().next_batch()
        if batch is not None:
            self._taken(batch)
        return batch
