"""Rows and messages: the columnar records that pass between nodes.

    forward row    [return_port, slot | state ... | (verify) emitted state ...] + payload
    backward row   [slot | (verify) emitted state ...]                + gradient or null

The integer columns of all rows of a message are one int32 matrix, so merging,
choosing and sending rows is one operation on one array.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from amp_runtime.rows.picking import picked
from amp_runtime.rows.spec import Array, Int32

Payload: TypeAlias = Mapping[str, Array]
"""Named arrays, `[rows, *feature_shape]` each."""

MergeKey: TypeAlias = "tuple[Direction, Mode, int, tuple[str, ...] | None]"
"""Direction, mode, port, and the names of the arrays; None: null rows."""

ADDRESS_COLUMNS = 2

# The classes below are not frozen: several are made for each batch, and to make a frozen one
# takes three times as long. Nobody writes to one that was made.


class Mode(enum.IntEnum):
    """Why a row is here; part of every header and merge key."""

    TRAIN = 0
    EVALUATE = 1


class Direction(enum.IntEnum):
    FORWARD = 0
    BACKWARD = 1


@dataclass(slots=True)
class Rows:
    """Forward rows on one edge.

    Attributes:
        columns: int32 [rows, 2 + n (+ n)]: return port, slot, the n state
            columns, and under `verify` the state as the stamping node emitted it.
        payload: {name: [rows, *shape]}; read-only once emitted.
        width: n, the number of state columns.
    """

    columns: Int32
    payload: Payload
    width: int

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def addresses(self) -> Int32:
        """int32 [rows, 2]: return port and slot."""
        return self.columns[:, :ADDRESS_COLUMNS]

    @property
    def state(self) -> Int32:
        """int32 [rows, n]."""
        return self.columns[:, ADDRESS_COLUMNS : ADDRESS_COLUMNS + self.width]

    @property
    def origin(self) -> Int32:
        """int32 [rows, n] under `verify`, else [rows, 0]: the state as stamped."""
        return self.columns[:, ADDRESS_COLUMNS + self.width :]

    @property
    def return_to(self) -> Int32:
        """int32 [rows, 2 (+ n)]: what an answer needs: the address (and origin)."""
        if self.columns.shape[1] == ADDRESS_COLUMNS + self.width:
            return self.columns[:, :ADDRESS_COLUMNS]
        return np.delete(
            self.columns, np.s_[ADDRESS_COLUMNS : ADDRESS_COLUMNS + self.width], axis=1
        )

    def take(self, index: Array) -> Rows:
        """Return the rows at `index` (positions or a mask), new memory."""
        if index.dtype == np.bool_:
            index = index.nonzero()[0]
        payload = {name: picked(array, index) for name, array in self.payload.items()}
        return Rows(picked(self.columns, index), payload, self.width)


@dataclass(slots=True)
class Emission:
    """Forward rows that leave a node by output port `port`."""

    port: str
    rows: Rows


@dataclass(slots=True)
class Answer:
    """Backward rows to the nodes that stamped them.

    Attributes:
        return_to: int32 [rows, 2 (+ n)]: return port, slot (and the emitted state).
        gradient: {name: [rows, *shape]}, or None: all rows are null.
    """

    return_to: Int32
    gradient: Payload | None


@dataclass(slots=True)
class Message:
    """Rows on their way along one channel.

    Attributes:
        port: forward: number of the receiving input port; backward: the return port.
        columns: forward: as in `Rows`; backward: int32 [rows, 1 (+ n)], slot first.
        payload: the arrays; None: null rows (backward only).
    """

    direction: Direction
    mode: Mode
    port: int
    columns: Int32
    payload: Payload | None

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def merge_key(self) -> MergeKey:
        """Messages with equal keys may become one batch."""
        names = None if self.payload is None else tuple(self.payload)
        return (self.direction, self.mode, self.port, names)


def dealt(instances: Array, n: int) -> Iterator[tuple[int, Array | None]]:
    """Yield each of `n` replicas that any row is for, and its rows; None: all of them.

    The one rule by which rows find their replica: instance mod n.

    Args:
        instances: int [rows].
    """
    replicas = instances % n
    first = int(replicas[0])
    if (replicas == first).all():  # often: one message seldom holds many instances
        yield first, None
        return
    for replica in range(n):
        rows = np.flatnonzero(replicas == replica)
        if len(rows):
            yield replica, rows


def merge(messages: Sequence[Message]) -> Message:
    """Join messages with one merge key into one, rows in the order given."""
    first = messages[0]
    if len(messages) == 1:
        return first
    payload: Payload | None = None
    if first.payload is not None:
        payload = {
            name: np.concatenate([m.payload[name] for m in messages if m.payload is not None])
            for name in first.payload
        }
    columns = np.concatenate([m.columns for m in messages])
    return Message(first.direction, first.mode, first.port, columns, payload)
