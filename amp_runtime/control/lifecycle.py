"""Statuses as a table: what may follow what. A missing pair is an error with history."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping

from amp_runtime.errors import LifecycleError


class ControllerStatus(enum.StrEnum):
    STARTING = "starting"
    """Workers are being started; waiting for every `hello`."""
    LINKING = "linking"
    """Channels are being connected; waiting for every `linked`."""
    RUNNING = "running"
    """Instances are injected and retire."""
    BARRIER = "barrier"
    """Nothing is in flight; waiting for every `acknowledged`."""
    SAVING = "saving"
    """Nothing is in flight; waiting for every worker's shards of a checkpoint."""
    COLLECTING = "collecting"
    """Waiting for the parameters of every parameterised node."""
    FINISHED = "finished"


CONTROLLER_TABLE: Mapping[ControllerStatus, frozenset[ControllerStatus]] = {
    ControllerStatus.STARTING: frozenset({ControllerStatus.LINKING}),
    ControllerStatus.LINKING: frozenset({ControllerStatus.RUNNING, ControllerStatus.BARRIER}),
    ControllerStatus.RUNNING: frozenset({ControllerStatus.BARRIER}),
    # A barrier at which replicas share is followed by another: they know then what came of it.
    ControllerStatus.BARRIER: frozenset(
        {
            ControllerStatus.BARRIER,
            ControllerStatus.SAVING,
            ControllerStatus.RUNNING,
            ControllerStatus.COLLECTING,
        }
    ),
    ControllerStatus.SAVING: frozenset({ControllerStatus.RUNNING, ControllerStatus.COLLECTING}),
    ControllerStatus.COLLECTING: frozenset({ControllerStatus.FINISHED}),
    ControllerStatus.FINISHED: frozenset(),
}


class Lifecycle:
    """The status of one thing, and how it came there.

    Args:
        who: for errors.
    """

    def __init__(
        self,
        who: str,
        table: Mapping[ControllerStatus, frozenset[ControllerStatus]] = CONTROLLER_TABLE,
        start: ControllerStatus = ControllerStatus.STARTING,
    ) -> None:
        self._who = who
        self._table = table
        self.status = start
        self._history: deque[str] = deque([start.value], maxlen=12)

    def to(self, status: ControllerStatus) -> None:
        """Go over to `status`.

        Raises:
            LifecycleError: the table has no such pair.
        """
        if status not in self._table[self.status]:
            raise LifecycleError(
                f"{self._who} cannot go from {self.status.value} to {status.value}; "
                f"it was {' -> '.join(self._history)}"
            )
        self.status = status
        self._history.append(status.value)

    def require(self, *statuses: ControllerStatus, event: str) -> None:
        """Assert that `event` may come now.

        Raises:
            LifecycleError: it came in another status.
        """
        if self.status not in statuses:
            raise LifecycleError(
                f"{event!r} came while {self._who} was {self.status.value}; "
                f"it was {' -> '.join(self._history)}"
            )
