"""The protocol under any order of events: deliver, mix, repeat, lose, kill, take fright.

More processes, epochs and examples than a search can go through: hypothesis draws the events,
and shrinks those that break something.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from recovering import Fixed, World, crash

from amp_runtime.control.checkpoints import CheckpointRule

EPOCHS = 2
FIXED = Fixed.of(
    6,
    nodes=2,
    valid=2,
    max_epochs=EPOCHS,
    max_active_keys=3,
    update_every=2,
    checkpoints=CheckpointRule(examples=4),
)
MOST_STEPS = 5000
CHOICE = st.integers(0, 1_000)


class Recovering(RuleBasedStateMachine):
    """A run of two nodes that count, a loss, and whatever happens to them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World.of(FIXED)

    @property
    def going_on(self) -> bool:
        return self.world.control.finished is None

    @precondition(lambda self: self.going_on and self.world.channels())
    @rule(choice=CHOICE, times=st.integers(1, 20))
    def deliver(self, choice: int, times: int) -> None:
        for _ in range(times):
            channels = self.world.channels()
            if not channels or not self.going_on:
                return
            self.world.deliver(channels[choice % len(channels)])

    @precondition(lambda self: self.going_on and self.world.channels())
    @rule(choice=CHOICE)
    def repeat(self, choice: int) -> None:
        """A message comes twice."""
        channels = self.world.channels()
        channel = channels[choice % len(channels)]
        waiting = self.world.under_way[channel]
        self.world.under_way[channel] = (waiting[0], *waiting)

    @precondition(lambda self: self.going_on and self.world.channels())
    @rule(choice=CHOICE)
    def lose(self, choice: int) -> None:
        channels = self.world.channels()
        self.world.take(channels[choice % len(channels)])

    @precondition(lambda self: self.going_on and len(self.world.dead()) < 3)
    @rule(choice=CHOICE, losing=st.booleans())
    def kill(self, choice: int, losing: bool) -> None:
        alive = [peer for peer in self.world.workers if peer not in self.world.dead()]
        self.world.kill(alive[choice % len(alive)], losing=losing)

    @precondition(lambda self: self.going_on and self.world.dead())
    @rule()
    def see(self) -> None:
        self.world.recover([crash(peer) for peer in self.world.dead()])

    @rule()
    def take_fright(self) -> None:
        if self.going_on:  # a rule there must always be
            self.world.recover([crash(None)])

    @invariant()
    def no_example_counts_twice_in_an_epoch(self) -> None:
        for worker in self.world.workers.values():
            if worker is not None:
                assert max(worker.counts(), default=0) <= EPOCHS, worker.counts()

    @invariant()
    def admission_holds(self) -> None:
        in_flight = self.world.control.controller.in_flight.instances
        assert in_flight <= FIXED.settings.max_active_keys

    def teardown(self) -> None:
        """Let nothing more happen: the run comes to its end, and all counts are right."""
        for _ in range(MOST_STEPS):
            if not self.going_on:
                break
            if dead := self.world.dead():
                self.world.recover([crash(peer) for peer in dead])
            elif channels := self.world.channels():
                self.world.deliver(channels[0])
            else:  # what was lost is seen when all stands still
                self.world.recover([crash(None)])
        finished = self.world.control.finished
        assert finished is not None, "the run does not end"
        for node, arrays in finished.parameters.items():
            assert arrays["count"].tolist() == [float(EPOCHS)] * 6, node


TestRecovering = Recovering.TestCase
TestRecovering.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)
