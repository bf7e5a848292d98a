"""Rows that wait at the nodes of a worker, by merge key; the next batch is taken here.

One node: answers go before forward rows, and among forward rows the oldest instance
goes first. Several nodes take turns, in rounds:

    answers        last port of the graph ---> first        each merge key that has
    forward rows   first port ---> last                     rows is served once

What a batch causes at a port that is still to come is served in the same round, merged
with all that waits there. So rows go far in a round without getting few, as they would
if the answers to the first of them went before the rest; and nothing waits longer than
a round.

In the synchronous schedule forward rows go first instead: no answer is late there, and answers
that wait for the last of them are merged with those of rows that left their loop later.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from typing import Protocol, TypeAlias

from amp_runtime.rows.message import ADDRESS_COLUMNS, Direction, MergeKey, Message, merge

_Position: TypeAlias = "tuple[int, int, bool, tuple[str, ...]]"
_BEFORE_ALL: _Position = (-sys.maxsize, 0, False, ())


class _Queue:
    """Messages with one merge key, in order of arrival.

    Attributes:
        position: where in a round it is served.
    """

    __slots__ = ("_messages", "_oldest", "key", "position")

    def __init__(self, key: MergeKey) -> None:
        self.key = key
        self.position = _position(key)
        self._messages: deque[Message] = deque()
        self._oldest: deque[int] = deque()  # of each message, as far as anyone asked

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def oldest(self) -> int:
        """The oldest instance among all rows, of forward messages."""
        for message in islice(self._messages, len(self._oldest), None):
            self._oldest.append(int(message.columns[:, ADDRESS_COLUMNS].min()))
        return min(self._oldest)

    @property
    def rows(self) -> int:
        return sum(map(len, self._messages))

    def add(self, message: Message) -> None:
        self._messages.append(message)

    def pop(self) -> Message:
        """Take the first message."""
        if self._oldest:
            self._oldest.popleft()
        return self._messages.popleft()

    def take(self, at_most: float) -> list[Message]:
        """Take messages of up to `at_most` rows together, but at least one."""
        taken = [self.pop()]
        rows = len(taken[0])
        while self._messages and (rows := rows + len(self._messages[0])) <= at_most:
            taken.append(self.pop())
        return taken


class Queues(Protocol):
    """What a host needs of its queues; a replay has others."""

    def __bool__(self) -> bool: ...

    @property
    def rows(self) -> int: ...

    def add(self, message: Message) -> None: ...

    def next_batch(self) -> Message | None: ...

    def begin_round(self) -> None: ...


class RowQueues:
    """All queues of one worker.

    Args:
        most_rows: how many rows of a merge key may become one batch.
        taking_turns: serve in rounds: for several nodes.
        forward_first: answers wait until no forward row does.
    """

    def __init__(
        self,
        most_rows: Callable[[MergeKey], float],
        *,
        taking_turns: bool = False,
        forward_first: bool = False,
    ) -> None:
        self._most_rows = most_rows
        self._forward_first = forward_first
        self._taking_turns = taking_turns
        self._backward: dict[MergeKey, _Queue] = {}
        self._forward: dict[MergeKey, _Queue] = {}
        self.begin_round()

    def __bool__(self) -> bool:
        """Whether any row waits."""
        return bool(self._backward or self._forward)

    @property
    def rows(self) -> int:
        queues = (*self._backward.values(), *self._forward.values())
        return sum(queue.rows for queue in queues)

    def add(self, message: Message) -> None:
        queues = self._backward if message.direction is Direction.BACKWARD else self._forward
        key = message.merge_key
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = _Queue(key)
        queue.add(message)

    def next_batch(self) -> Message | None:
        """Take the next batch, merged; None if nothing waits."""
        if self._taking_turns:
            return self._next_in_turn()
        if self._backward and not self._forward_stays_first:
            return self._take(self._backward, next(iter(self._backward)))
        if len(self._forward) > 1:
            return self._take(self._forward, min(self._forward, key=self._age))
        if self._forward:
            return self._take(self._forward, next(iter(self._forward)))
        return None

    def begin_round(self) -> None:
        """Begin a round anew: no row waits."""
        self._way = Direction.FORWARD if self._forward_first else Direction.BACKWARD
        self._served = _BEFORE_ALL

    def _next_in_turn(self) -> Message | None:
        if not self:
            return None
        while True:
            queues = self._backward if self._way is Direction.BACKWARD else self._forward
            ahead = [queue for queue in queues.values() if queue.position > self._served]
            if ahead:
                first = min(ahead, key=attrgetter("position"))
                self._served = first.position
                return self._take(queues, first.key)
            forward = self._way is Direction.BACKWARD or self._forward_stays_first
            self._way = Direction.FORWARD if forward else Direction.BACKWARD
            self._served = _BEFORE_ALL

    @property
    def _forward_stays_first(self) -> bool:
        return self._forward_first and bool(self._forward)

    def _age(self, key: MergeKey) -> int:
        return self._forward[key].oldest

    def _take(self, queues: dict[MergeKey, _Queue], key: MergeKey) -> Message:
        queue = queues[key]
        if len(queue) == 1:
            del queues[key]
            return queue.pop()
        batch = merge(queue.take(self._most_rows(key)))
        if not queue:
            del queues[key]
        return batch


def _position(key: MergeKey) -> _Position:
    """Return where in a round a merge key is served: ports are numbered as the graph goes."""
    direction, mode, port, names = key
    at = -port if direction is Direction.BACKWARD else port
    return (at, mode, names is None, names or ())
