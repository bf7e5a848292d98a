"""What follows when a worker fails: a new generation, or the end of the run. Without I/O.

    failures -> who is started anew, which instances are left out -> Generation
             -> an error: too many, the same again, or nothing may be recovered

All workers go back together, since a dead one takes its part of every instance in flight
with it: gradients that others have summed already, and rows that they wait for.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from amp_runtime.errors import AmpError, RestartLimitError


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """What is done about failures.

    Attributes:
        rollback: whether anything is.
        max_restarts: of workers within `window_s`; one more ends the run.
        quarantine_after: crashes of one worker that an instance has a part in before it is
            left out.
    """

    rollback: bool = True
    max_restarts: int = 5
    window_s: float = 600.0
    quarantine_after: int = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a generation.

    Attributes:
        error: what the run would end with.
        peer: the worker that is to be started anew; None: rows were lost between workers.
        raised: whether code of a node said so: the same a second time is no accident.
    """

    error: AmpError
    peer: int | None
    raised: bool = False

    @property
    def told(self) -> tuple[int | None, str, str]:
        """What two of the same have in common: a pid differs."""
        return self.peer, self.error.code, self.error.what


@dataclass(frozen=True, slots=True)
class Generation:
    """What holds from one recovery to the next.

    Attributes:
        incarnations: how often each peer was started before, of those that were.
        careful: instances that go alone, one at a time: one of them may crash its node.
        left_out: instances that are not injected any more.
    """

    number: int = 0
    incarnations: Mapping[int, int] = field(default_factory=dict)
    careful: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()

    def incarnation(self, peer: int) -> int:
        return self.incarnations.get(peer, 0)

    def admits(self, upcoming: int, live: frozenset[int]) -> int:
        """Return how many instances from number `upcoming` on may be admitted, `careful` not empty.

        Args:
            live: those in flight.
        """
        first, last = min(self.careful), max(self.careful)
        if live & self.careful:
            return 0
        if first <= upcoming <= last:
            return 0 if live else 1
        if upcoming > last:
            return sys.maxsize
        return first - upcoming - sum(upcoming <= i < first for i in self.left_out)


FIRST = Generation()


@dataclass(slots=True)
class _Suspects:
    """The instances that were in flight at all of `crashes` of one worker in a row."""

    instances: frozenset[int]
    crashes: int = 1


class Recovery:
    """Decides what follows on failures; counts them.

    Args:
        generation: number of the first: of a run that goes on, later than all before.

    Attributes:
        generation: the one that is under way.
        failures: all so far, the first one first.
    """

    def __init__(self, settings: RecoverySettings, generation: int = 0) -> None:
        self.settings = settings
        self.generation = Generation(generation)
        self.failures: list[Failure] = []
        self._restarts: deque[float] = deque()
        self._suspects: dict[int, _Suspects] = {}
        self._left_out: dict[int, int] = {}
        self._told: set[int] = set()

    def next(
        self, failures: Sequence[Failure], in_flight: frozenset[int], now: float
    ) -> Generation:
        """Return the generation that follows on failures that came together.

        Args:
            in_flight: the instances that were.
            now: seconds.
        Raises:
            AmpError: none follows: the run ends with it.
        """
        if not self.settings.rollback:
            raise failures[0].error
        if (final := next((f.error for f in failures if f.error.is_final), None)) is not None:
            raise final
        for failure in failures:
            self._note(failure, in_flight, now)
        restarted = {f.peer for f in failures if f.peer is not None}
        last = self.generation
        careful = [
            suspects.instances
            for suspects in self._suspects.values()
            if suspects.crashes >= self.settings.quarantine_after - 1
        ]
        self.generation = Generation(
            last.number + 1,
            {**last.incarnations, **{peer: last.incarnation(peer) + 1 for peer in restarted}},
            frozenset().union(*careful),
            frozenset(self._left_out),
        )
        return self.generation

    def _note(self, failure: Failure, in_flight: frozenset[int], now: float) -> None:
        last = self.failures[-1] if self.failures else None
        self.failures.append(failure)
        if failure.raised and last is not None and last.told == failure.told:
            error = failure.error
            what = f"{error.what} (the same twice in a row)"
            raise type(error)(what, where=error.where, fix=error.fix) from error.__cause__
        if failure.peer is not None and not failure.raised:
            self._suspect(failure.peer, in_flight)
        self._restarts.append(now)
        most, window_s = self.settings.max_restarts, self.settings.window_s
        while now - self._restarts[0] > window_s:
            self._restarts.popleft()
        if len(self._restarts) > most:
            # One code in a line: the line is of this error.
            raise RestartLimitError(
                f"restart limit {most} in {window_s:g} s; first failure: "
                f"{self.failures[-len(self._restarts)].error}",
                fix="mend the cause, or raise runtime.max_restarts",
            )

    def _suspect(self, peer: int, in_flight: frozenset[int]) -> None:
        """Note the crash of a worker; leave an instance out that was in flight at so many."""
        known = self._suspects.get(peer)
        if known is not None and (common := known.instances & in_flight):
            known.instances, known.crashes = common, known.crashes + 1
        else:
            known = self._suspects[peer] = _Suspects(in_flight)
        # More than one: they go alone from now on, and the next crash tells which it is.
        if known.crashes >= self.settings.quarantine_after and len(known.instances) == 1:
            self._left_out[next(iter(known.instances))] = peer
            del self._suspects[peer]

    @property
    def left_out(self) -> Mapping[int, int]:
        """{instance: the peer that crashed at it}."""
        return self._left_out

    def news(self, name_of: Callable[[int], str]) -> list[str]:
        """Say what is different in the newest generation, beside that all begin anew."""
        news = []
        if self.generation.careful:
            n = len(self.generation.careful)
            news.append(f"{n} instances that were in flight each time go alone")
        newly, self._told = self._left_out.keys() - self._told, set(self._left_out)
        for instance in sorted(newly):
            name = name_of(self._left_out[instance])
            news.append(
                f"instance {instance} is left out from now on: {name} crashed "
                f"{self.settings.quarantine_after} times while it was in flight"
            )
        return news

    def report(self, name_of: Callable[[int], str]) -> list[str]:
        """Return the lines about failures in the report of a run; none without a failure."""
        if not self.failures:
            return []
        n, first = len(self.failures), self.failures[0]
        lines = [f"recovered from {n} failure{'s'[: n > 1]}; the first: {first.error}"]
        if self._left_out:
            names = (f"{i} ({name_of(p)})" for i, p in sorted(self._left_out.items()))
            lines.append(f"instances left out, at which a worker crashed: {', '.join(names)}")
        return lines
