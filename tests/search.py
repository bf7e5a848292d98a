"""All states that a small run can come to, breadth first, whatever fails and when.

A step delivers one message, kills a worker, loses a message, or lets the controller see what has
failed; every message is worked on when it comes. A state is what can make a difference later.
What must hold is looked at in each, and in the end: from each, the run can come to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from recovering import Channel, Control, Fixed, Worker, World, crash

from amp_runtime.errors import AmpError
from amp_runtime.wire.ledger import Channels, Lane
from amp_runtime.wire.protocol import CONTROLLER


class Budget(NamedTuple):
    """What may still go wrong.

    Attributes:
        kills: workers that may be killed.
        losses: messages of rows that may be lost on the way.
        alarms: failures seen where none was.
    """

    kills: int = 0
    losses: int = 0
    alarms: int = 0


class ViolationError(AssertionError):
    """What must hold does not; says after which steps."""


@dataclass(frozen=True)
class State:
    """A world, and what may still go wrong in it.

    Attributes:
        lost: whether a message was lost in this generation: then all may come to stand still,
            and the controller sees that.
    """

    world: World
    left: Budget
    lost: bool = False

    @property
    def over(self) -> bool:
        return self.world.control.finished is not None

    def steps(self) -> Iterator[tuple[str, State]]:
        """Yield all that may happen next, in words, and what comes of it."""
        world, left = self.world, self.left
        for channel in world.channels():
            yield self._delivered(channel)
            if left.losses and channel[3] is not Lane.CONTROL:
                after = world.branch()
                after.take(channel)
                less = left._replace(losses=left.losses - 1)
                yield f"lose {name(channel)}", State(after, less, lost=True)
        if left.kills:
            less = left._replace(kills=left.kills - 1)
            for peer, worker in world.workers.items():
                if worker is None:
                    continue
                for losing in (False, True):
                    after = world.branch()
                    after.kill(peer, losing=losing)
                    yield (
                        f"kill {peer}{' and what it sent' * losing}",
                        replace(self, world=after, left=less),
                    )
        if dead := world.dead():
            yield "the controller sees who is dead", self._recovered(dead)
        elif left.alarms:
            less = left._replace(alarms=left.alarms - 1)
            yield "a false alarm", replace(self._recovered([None]), left=less)
        elif self.lost and not world.under_way:
            yield "the controller sees that all stands still", self._recovered([None])

    def _delivered(self, channel: Channel) -> tuple[str, State]:
        receiver = channel[1]
        # A gap that the controller finds begins a generation, in which a worker may be made.
        after = self.world.branch(receiver)
        number = after.control.recovery.generation.number
        after.deliver(channel)
        lost = self.lost and after.control.recovery.generation.number == number
        return f"deliver {name(channel)}", State(after, self.left, lost)

    def _recovered(self, failed: list[Any]) -> State:
        after = self.world.branch(CONTROLLER)
        after.recover([crash(peer) for peer in failed])
        return State(after, self.left, lost=False)

    def check(self) -> None:
        """Assert what must hold in every state."""
        for peer, worker in self.world.workers.items():
            if worker is not None:
                twice = [n for n in worker.counts() if n > 1]
                assert not twice, f"worker {peer} counted an example twice: {worker.counts()}"
        control = self.world.control
        if control.newest is not None:
            behind = control.newest.run.numbers["place"]["trained"]
            for (folder, node), (_, counts) in self.world.disk.items():
                if counts and folder == control.newest.folder:
                    said = f"a checkpoint of {behind} examples, of which {node} counted {counts}"
                    assert sum(counts) == behind, said
        in_flight = control.controller.in_flight.instances
        assert in_flight <= control.fixed.settings.max_active_keys
        if control.finished is not None:
            for node, arrays in control.finished.parameters.items():
                counts = arrays["count"].tolist()
                assert counts == [1.0] * len(counts), f"at the end {node} counted {counts}"

    def key(self) -> Hashable:
        """Return what tells this state from another."""
        world = self.world
        workers = tuple(worker and worker_key(worker) for worker in world.workers.values())
        under_way = tuple(sorted(world.under_way.items()))
        disk = tuple(sorted((*place, counts) for place, (_, counts) in world.disk.items()))
        return control_key(world.control), workers, under_way, disk, self.left, self.lost


def name(channel: Channel) -> str:
    sender, receiver, incarnation, lane = channel
    return f"{lane.name.lower()} {sender}->{receiver}.{incarnation}"


def accounts_key(channels: Channels) -> Hashable:
    counts = channels.counts()
    peers = tuple(sorted(channels._peers.items()))
    return counts["generation"], peers, tuple(counts["sent"]), tuple(counts["received"])


def worker_key(worker: Worker) -> Hashable:
    host = worker.host
    nodes = tuple(
        (node.stash.used, getattr(node, "version", 0), node.updates.rows if counts else 0)
        for node in host.nodes.values()
        for counts in [node.parameterised]
    )
    return (
        accounts_key(worker.link.channels),
        worker.counts(),
        nodes,
        host.queued_rows,
        host.arena.live,
        worker.stopped,
    )


def control_key(control: Control) -> Hashable:
    made = control.controller
    stage = made._stage
    return (
        accounts_key(control.link.channels),
        made.status,
        tuple(sorted(made._waiting_for)),
        tuple(sorted(made.in_flight.numbers())),
        made.in_flight.rows,
        None if stage is None else (stage.feed.passed, stage.tally.examples, stage.split),
        sum(len(retired.instances) for retired in made._unsent),
        made._barrier,
        control.finished is None,
        control.newest and (control.newest.folder, str(control.newest.run.numbers)),
    )


@dataclass
class Search:
    """A search through all states of a run.

    Attributes:
        states: how many there are.
    """

    fixed: Fixed
    budget: Budget
    most_states: int = 100_000
    states: int = 0
    _found: dict[Hashable, tuple[Hashable, str] | None] = field(default_factory=dict)
    _before: dict[Hashable, list[Hashable]] = field(default_factory=dict)

    def run(self) -> Search:
        """Go through all states.

        Raises:
            ViolationError: one is reached that must not be.
        """
        first = State(World.of(self.fixed), self.budget)
        key = first.key()
        self._found[key] = None
        todo, ends = deque([(key, first)]), []
        while todo:
            key, state = todo.popleft()
            if state.over:
                ends.append(key)
                continue
            n_steps = 0
            try:
                for step, after in state.steps():
                    n_steps += 1
                    reached = after.key()
                    self._before.setdefault(reached, []).append(key)
                    if reached not in self._found:
                        self._found[reached] = (key, step)
                        after.check()
                        todo.append((reached, after))
            except (AmpError, AssertionError) as error:
                raise ViolationError(f"{error}; after {self._way(key)}") from error
            if not n_steps:
                raise ViolationError(f"all stands still; after {self._way(key)}")
            assert len(self._found) <= self.most_states, "more states than there should be"
        self.states = len(self._found)
        self._all_end(ends)
        return self

    def _all_end(self, ends: list[Hashable]) -> None:
        """Assert that an end can be reached from every state."""
        reaching, todo = set(ends), list(ends)
        while todo:
            for before in self._before.get(todo.pop(), ()):
                if before not in reaching:
                    reaching.add(before)
                    todo.append(before)
        for key in self._found:
            if key not in reaching:
                raise ViolationError(f"no end can be reached; after {self._way(key)}")

    def _way(self, key: Hashable) -> str:
        """Return the steps to a state, in words."""
        steps = []
        while (found := self._found[key]) is not None:
            key, step = found
            steps.append(step)
        return ", ".join(reversed(steps))
