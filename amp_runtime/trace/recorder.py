"""What a worker of a recorded run writes down. Loaded by such workers only."""

from __future__ import annotations

from collections.abc import Callable

from amp_runtime.host.row_queues import RowQueues
from amp_runtime.rows.message import MergeKey, Message
from amp_runtime.trace.events import pack_batch, pack_record
from amp_runtime.trace.file import TraceWriter
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.protocol import CONTROLLER, Barrier, Parameters, Record, Structure


class Recorder:
    """Writes the trace of worker `peer`.

    Structure is left out: a replay gives it to nodes from the data.
    """

    def __init__(self, writer: TraceWriter, run: str, peer: int) -> None:
        self._writer = writer
        self._run = run
        self._peer = peer

    def queues(
        self, most_rows: Callable[[MergeKey], float], *, taking_turns: bool = False
    ) -> RowQueues:
        """Return queues that note what is taken; given to `NodeHost`."""
        return RecordedQueues(self._writer, most_rows, taking_turns=taking_turns)

    def obeys(self, record: Record) -> None:
        """Note a record that the nodes are about to be told.

        Raises:
            OutputError: the trace cannot be written.
        """
        if isinstance(record, Structure):
            return
        self._add(CONTROLLER, record)
        if isinstance(record, Barrier):
            self._writer.flush()

    def replied(self, record: Record) -> None:
        """Note the parameters that a node ended with: what a replay must come to."""
        if isinstance(record, Parameters):
            self._add(self._peer, record)

    def end(self) -> None:
        """Write the rest: the run is over."""
        self._writer.end()

    def _add(self, sender: int, record: Record) -> None:
        envelope = Envelope(self._run, 0, sender, 0, self._writer.n_events)
        self._writer.add(pack_record(envelope, record))


class RecordedQueues(RowQueues):
    """Queues that note each batch before a node is run on it."""

    def __init__(
        self,
        writer: TraceWriter,
        most_rows: Callable[[MergeKey], float],
        *,
        taking_turns: bool = False,
    ) -> None:
        super().__init__(most_rows, taking_turns=taking_turns)
        self._writer = writer

    def next_batch(self) -> Message | None:
        batch = super().next_batch()
        if batch is not None:
            self._writer.add(pack_batch(batch))
        return batch
