"""Rows that wait at the nodes of a worker, by merge key; the next batch is taken here.

Answers go before forward rows, and among forward rows the oldest instance goes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from amp_runtime.rows.message import ADDRESS_COLUMNS, Direction, MergeKey, Message, merge


class _Queue:
    """Messages with one merge key, in order of arrival."""

    __slots__ = ("_messages", "_oldest")

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._oldest: deque[int] = deque()

    def __bool__(self) -> bool:
        return bool(self._messages)

    @property
    def oldest(self) -> int:
        """The oldest instance among all rows."""
        return min(self._oldest)

    @property
    def rows(self) -> int:
        return sum(map(len, self._messages))

    def add(self, message: Message, oldest: int) -> None:
        self._messages.append(message)
        self._oldest.append(oldest)

    def take(self, at_most: float) -> list[Message]:
        """Take messages of up to `at_most` rows together, but at least one."""
        taken: list[Message] = []
        rows = 0
        while self._messages and (not taken or rows + len(self._messages[0]) <= at_most):
            message = self._messages.popleft()
            self._oldest.popleft()
            taken.append(message)
            rows += len(message)
        return taken


class RowQueues:
    """All queues of one worker.

    Args:
        most_rows: how many rows of a merge key may become one batch.
    """

    def __init__(self, most_rows: Callable[[MergeKey], float]) -> None:
        self._most_rows = most_rows
        self._backward: dict[MergeKey, _Queue] = {}
        self._forward: dict[MergeKey, _Queue] = {}

    def __bool__(self) -> bool:
        """Whether any row waits."""
        return bool(self._backward or self._forward)

    @property
    def rows(self) -> int:
        queues = (*self._backward.values(), *self._forward.values())
        return sum(queue.rows for queue in queues)

    def add(self, message: Message) -> None:
        if message.direction is Direction.BACKWARD:
            self._backward.setdefault(message.merge_key, _Queue()).add(message, 0)
            return
        oldest = int(message.columns[:, ADDRESS_COLUMNS].min())
        self._forward.setdefault(message.merge_key, _Queue()).add(message, oldest)

    def next_batch(self) -> Message | None:
        """Take the next batch, merged; None if nothing waits."""
        if self._backward:
            return self._take(self._backward, next(iter(self._backward)))
        if self._forward:
            return self._take(self._forward, min(self._forward, key=self._age))
        return None

    def _age(self, key: MergeKey) -> int:
        return self._forward[key].oldest

    def _take(self, queues: dict[MergeKey, _Queue], key: MergeKey) -> Message:
        queue = queues[key]
        batch = merge(queue.take(self._most_rows(key)))
        if not queue:
            del queues[key]
        return batch
