"""The events of a trace as bytes, and back. Pure.

    batch    what a worker took from its queues: whose rows, in merged order
    updated  a node has updated, and how stale the gradients of that were; after the event that
             brought it about, before the next
    record   what it obeyed of the controller's, and its parameters where it sent them
    end      the trace is whole

    event = kind, direction, mode, 0: uint8 | port, n, m: uint32 | what follows
    batch:   n rows, m numbers each: int32 [m, n], numbers of one column together
    updated: node `port`, m versions on: int32 [2, n], each staleness and its rows
    record:  n frames of the wire: uint64 [n], their sizes | the frames
    end:     n events went before

A forward row is told by its state, which no two visits of a port share; an answer by its
slot, as a node's slots depend on nothing but the order of its own events.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from amp_runtime.errors import AmpError, TraceError
from amp_runtime.rows.message import ADDRESS_COLUMNS, Direction, Message, Mode
from amp_runtime.rows.spec import Int32, Int64
from amp_runtime.wire.codec import decode, encode_record
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.protocol import Record

_HEAD = struct.Struct("<BBBBIII")
_BATCH, _RECORD, _END, _UPDATED = 1, 2, 3, 4
_NUMBER = np.dtype("<i4")
_SIZE = np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that were worked on together.

    Attributes:
        port: as in `Message`.
        identities: int32 [rows, k], one row of numbers a row, in merged order.
    """

    direction: Direction
    mode: Mode
    port: int
    identities: Int32


@dataclass(frozen=True, slots=True)
class Updated:
    """A node has updated.

    Attributes:
        node: its number.
        versions: that it is further; 1, as long as each update has an event.
        staleness, rows: int32 [n], each staleness among the gradients since the update before,
            and how many rows had it.
    """

    node: int
    versions: int
    staleness: Int32
    rows: Int32


@dataclass(frozen=True, slots=True)
class End:
    """The last event of a whole trace; `n_events` went before it."""

    n_events: int


Event: TypeAlias = Batch | Updated | Record | End


def identities(message: Message) -> Int32:
    """Return what tells the rows of `message` from all others at their port: int32 [rows, k]."""
    if message.direction is Direction.FORWARD:
        return message.columns[:, ADDRESS_COLUMNS:]
    return message.columns[:, :1]


def pack_batch(message: Message) -> bytes:
    """Return the event of a batch that was taken."""
    told = identities(message)
    head = _HEAD.pack(_BATCH, message.direction, message.mode, 0, message.port, *told.shape)
    return head + told.T.tobytes()


def pack_updated(node: int, versions: int, counts: Int64) -> bytes:
    """Return the event of an update.

    Args:
        counts: rows by their staleness.
    """
    staleness = np.flatnonzero(counts)
    head = _HEAD.pack(_UPDATED, 0, 0, 0, node, len(staleness), versions)
    return head + np.stack([staleness, counts[staleness]]).astype(_NUMBER).tobytes()


def pack_record(envelope: Envelope, record: Record) -> bytes:
    """Return the event of a record that was obeyed, or that was sent.

    Raises:
        WireError: as `encode_record`.
    """
    frames = [bytes(frame) for frame in encode_record(envelope, record)]
    sizes = np.array([len(frame) for frame in frames], _SIZE)
    head = _HEAD.pack(_RECORD, 0, 0, 0, 0, len(frames), 0)
    return b"".join([head, sizes.tobytes(), *frames])


def pack_end(n_events: int) -> bytes:
    """Return the event that says that a trace is whole."""
    return _HEAD.pack(_END, 0, 0, 0, 0, n_events, 0)


def unpack(block: bytes) -> Iterator[Event]:
    """Yield the events of a block, which holds whole ones.

    Raises:
        TraceError: it does not, or they are not as this module writes them.
    """
    view, at = memoryview(block), 0
    while at < len(view):
        (kind, direction, mode, zero, port, n, m), at = _head(view, at)
        if kind == _BATCH and not zero and direction in (0, 1) and mode in (0, 1) and n and m:
            body, at = _taken(view, at, n * m * _NUMBER.itemsize)
            told = np.frombuffer(body, _NUMBER).reshape(m, n).T
            yield Batch(Direction(direction), Mode(mode), port, told)
        elif kind == _UPDATED and not (direction or mode or zero) and m:
            body, at = _taken(view, at, 2 * n * _NUMBER.itemsize)
            yield _updated(port, m, np.frombuffer(body, _NUMBER).reshape(2, n))
        elif kind == _RECORD and not (direction or mode or zero or port or m) and n:
            body, at = _taken(view, at, n * _SIZE.itemsize)
            frames = []
            for size in np.frombuffer(body, _SIZE).tolist():
                frame, at = _taken(view, at, size)
                frames.append(frame)
            yield _record(frames)
        elif kind == _END and not (direction or mode or zero or port or m):
            yield End(n)
        else:
            raise TraceError(
                f"an event that begins with {(kind, direction, mode, zero, port, n, m)}, "
                "expected a batch, an update, a record or the end"
            )


def _head(view: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    body, end = _taken(view, at, _HEAD.size)
    return _HEAD.unpack(body), end


def _taken(view: memoryview, at: int, n_bytes: int) -> tuple[memoryview, int]:
    if n_bytes > len(view) - at:
        raise TraceError(f"an event of {n_bytes} bytes more, but {len(view) - at} are left")
    return view[at : at + n_bytes], at + n_bytes


def _updated(node: int, versions: int, counts: Int32) -> Updated:
    staleness, rows = counts
    if (np.diff(staleness, prepend=-1) <= 0).any() or (rows <= 0).any():
        raise TraceError(
            f"an update of node {node} with {counts.tolist()}, expected each staleness once, in "
            "order, and the rows that had it"
        )
    return Updated(node, versions, staleness, rows)


def _record(frames: Sequence[Any]) -> Record:
    try:
        body = decode([bytes(frames[0]), *frames[1:]]).body
    except AmpError as error:
        raise TraceError(f"a record that is none: {error}") from error
    if isinstance(body, Message):
        raise TraceError("rows where a record is expected")
    return body
