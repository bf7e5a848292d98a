"""Queues that hand out recorded batches, each as soon as all of its rows are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from amp_runtime.errors import TraceError
from amp_runtime.rows.message import Message, merge
from amp_runtime.rows.spec import Int32
from amp_runtime.trace.events import Batch, identities

_Port: TypeAlias = tuple[int, int, int]
"""Direction, mode, and number of the port."""
_Place: TypeAlias = "tuple[Message, int]"
"""A message, and the number of a row in it."""

MOST_NAMED = 5


class ReplayQueues:
    """All rows that wait at the nodes of one worker.

    Rows are taken one by one, so it does not matter which came in one message. Rows that a
    model does not tell apart by state (none of ours) are taken in the order they came.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Port, dict[bytes, list[_Place]]] = {}
        self._port: _Port = (-1, 0, 0)
        self._next: list[bytes] = []
        self._missing: Counter[bytes] = Counter()
        self.rows = 0

    def __bool__(self) -> bool:
        """Whether the batch that comes next may be taken."""
        return bool(self._next) and not self._missing

    def add(self, message: Message) -> None:
        port, told = _port(message), _told(identities(message))
        waiting = self._waiting.setdefault(port, {})
        for row, identity in enumerate(told):
            waiting.setdefault(identity, []).append((message, row))
        if self._missing and port == self._port:
            self._missing -= Counter(told)  # keeps what is above 0
        self.rows += len(message)

    def expect(self, batch: Batch) -> None:
        """Say which batch comes next; the one before it was taken."""
        self._port, self._next = _port(batch), _told(batch.identities)
        waiting = self._waiting.setdefault(self._port, {})
        wanted = Counter(self._next)
        self._missing = wanted - Counter({i: len(waiting.get(i, ())) for i in wanted})

    def next_batch(self) -> Message | None:
        """Take the expected batch; None where some of its rows are not there.

        Raises:
            TraceError: its rows have unlike payloads, so they were never one batch.
        """
        if not self:
            return None
        waiting = self._waiting[self._port]
        parts = [_cut(*run) for run in _runs([_take(waiting, i) for i in self._next])]
        if len({part.merge_key for part in parts}) > 1:
            raise TraceError("rows of one batch have unlike payloads: gradients, and none")
        self.rows -= len(self._next)
        self._next = []
        return merge(parts)

    def begin_round(self) -> None:
        """Do nothing: what comes next, the trace says."""

    def missing(self) -> str:
        """Say which rows of the expected batch are not there: their states, or their slots."""
        told = [np.frombuffer(identity, np.int32).tolist() for identity in self._missing]
        more = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
        return ", ".join(map(str, told[:MOST_NAMED])) + more


def _port(of: Message | Batch) -> _Port:
    """Return numbers: to hash an enum takes as long as the rest of a look-up."""
    return int(of.direction), int(of.mode), of.port


def _told(identities: Int32) -> list[bytes]:
    width = identities.shape[1] * identities.itemsize
    row_bytes = np.ascontiguousarray(identities).tobytes()
    return [row_bytes[at : at + width] for at in range(0, len(row_bytes), width)]


def _take(waiting: dict[bytes, list[_Place]], identity: bytes) -> _Place:
    places = waiting[identity]
    if len(places) == 1:
        del waiting[identity]
    return places.pop(0)


def _runs(rows: list[tuple[Message, int]]) -> Iterator[tuple[Message, int, int]]:
    """Yield (message, first row, end) of rows that stand side by side in one message."""
    message, first = rows[0]
    end = first + 1
    for other, row in rows[1:]:
        if other is not message or row != end:
            yield message, first, end
            message, first = other, row
        end = row + 1
    yield message, first, end


def _cut(message: Message, first: int, end: int) -> Message:
    if first == 0 and end == len(message):
        return message
    cut, payload = slice(first, end), message.payload
    if payload is not None:
        payload = {name: array[cut] for name, array in payload.items()}
    return Message(message.direction, message.mode, message.port, message.columns[cut], payload)
