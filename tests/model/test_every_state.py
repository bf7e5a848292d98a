"""The protocol in every state that a small run can come to, and seven ways to break it.

What is searched is the shipped controller, hosts, links, accounts and decisions: `recovering`,
`search`. A mutant that no search finds would say that the search looks at nothing.
"""

from __future__ import annotations

import pytest
from recovering import Fixed, Worker, World
from search import Budget, Search, ViolationError

from amp_runtime.control.checkpoints import CheckpointRule
from amp_runtime.control.controller import Controller
from amp_runtime.control.lifecycle import CONTROLLER_TABLE, ControllerStatus
from amp_runtime.wire.ledger import Channels, Lane, Verdict
from amp_runtime.wire.protocol import CONTROLLER, Linked

EACH = CheckpointRule(epochs=None, examples=1)


def search(n_examples: int, rule: CheckpointRule | None = None, **budget: int) -> Search:
    # An instance a message: those that are injected together would travel together.
    fixed = Fixed.of(n_examples, update_every=1, checkpoints=rule)
    return Search(fixed, Budget(**budget)).run()


@pytest.mark.parametrize(
    ("n_examples", "budget", "at_least"),
    [
        (2, {}, 50),
        (2, {"kills": 1}, 1000),
        (1, {"kills": 2}, 3000),
        (1, {"losses": 1, "alarms": 1}, 300),
    ],
)
def test_whatever_fails_when_each_example_counts_once_and_the_run_ends(
    n_examples, budget, at_least
):
    assert search(n_examples, **budget).states >= at_least


@pytest.mark.parametrize(
    ("n_examples", "budget", "at_least"),
    [(2, {"alarms": 1}, 500), (1, {"kills": 1}, 500)],
)
def test_with_checkpoints_what_is_gone_back_to_holds_what_has_retired_and_no_more(
    n_examples, budget, at_least
):
    assert search(n_examples, EACH, **budget).states >= at_least


# ------------------------------------------------------------------------------ mutants


def without_generation(monkeypatch, applies, *, next_too: bool = False) -> None:
    """Have frames judged as if they were of the receiver's generation, where `applies` says.

    Args:
        next_too: and as if they were the next on their channel.
    """
    judge = Channels._judge

    def judged(self, envelope, lane):
        if applies(self, lane):
            envelope = envelope._replace(generation=self.generation)
            if next_too:
                envelope = envelope._replace(sequence=self.expected(envelope.sender, lane))
        return judge(self, envelope, lane)

    monkeypatch.setattr(Channels, "_judge", judged)


def test_mutant_1_rows_of_another_generation_are_held_and_nothing_behind_them_comes(monkeypatch):
    class HeldError(Exception):
        pass

    accept, deliver = Channels.accept, World.deliver

    def holding(self, envelope, lane, rows=0):
        verdict = accept(self, envelope, lane, rows)
        other = (Verdict.STALE_GENERATION, Verdict.FUTURE_GENERATION)
        if lane is not Lane.CONTROL and verdict in other:
            raise HeldError
        return verdict

    def delivered(self, channel):
        waiting = self.under_way[channel]
        try:
            deliver(self, channel)
        except HeldError:
            self.under_way[channel] = waiting

    monkeypatch.setattr(Channels, "accept", holding)
    monkeypatch.setattr(World, "deliver", delivered)
    with pytest.raises(ViolationError, match="no end can be reached"):
        search(1, alarms=1)


def test_mutant_2_the_first_worker_that_is_linked_is_taken_for_all(monkeypatch):
    when_all, on_record = Controller._when_all, Controller.on_record

    def when_first(self, worker, now, then):
        if self.status is ControllerStatus.LINKING:
            self._waiting_for = {worker + 1}
        return when_all(self, worker, now, then)

    def heard(self, record, now):
        late = isinstance(record, Linked) and self.status is not ControllerStatus.LINKING
        return [] if late else on_record(self, record, now)

    monkeypatch.setattr(Controller, "_when_all", when_first)
    monkeypatch.setattr(Controller, "on_record", heard)
    with pytest.raises(ViolationError, match="all stands still"):
        search(1, kills=1)


def test_mutant_3_rows_are_taken_whatever_generation_they_are_of(monkeypatch):
    without_generation(monkeypatch, lambda channels, lane: lane is not Lane.CONTROL)
    with pytest.raises(ViolationError):
        search(1, kills=1)


def test_mutant_4_survivors_keep_their_parameters(monkeypatch):
    make_host = Worker.make_host

    def kept(self):
        before = (
            {n.name: n.parameters for n in self.host.parameterised()} if self.incarnations else {}
        )
        make_host(self)
        for node in self.host.parameterised():
            if node.name in before:
                node.set_parameters(before[node.name])

    monkeypatch.setattr(Worker, "make_host", kept)
    with pytest.raises(ViolationError, match="counted"):
        search(1, kills=1)


def test_mutant_5_a_checkpoint_is_taken_while_instances_are_in_flight(monkeypatch):
    inject = Controller._inject

    def hasty(self, now):
        stage = self._current_stage()
        if not self.in_flight.instances or not self._is_to_save(stage, now):
            return inject(self, now)
        return self._save(self._place_in(stage, now), self._go_on)

    monkeypatch.setattr(Controller, "_inject", hasty)
    monkeypatch.setitem(
        CONTROLLER_TABLE,
        ControllerStatus.RUNNING,
        CONTROLLER_TABLE[ControllerStatus.RUNNING] | {ControllerStatus.SAVING},
    )
    with pytest.raises(ViolationError):
        search(2, EACH, alarms=1)


def test_mutant_7_the_controller_takes_shards_of_any_generation(monkeypatch):
    # Where it still counts the messages, no search finds that it does not look at generations:
    # those of one generation are never the next of another, but for the first.
    without_generation(
        monkeypatch,
        lambda channels, lane: channels.sender == CONTROLLER and lane is Lane.CONTROL,
        next_too=True,
    )
    with pytest.raises(ViolationError):
        search(1, EACH, alarms=1)


def test_mutant_6_the_controller_takes_answers_of_any_generation(monkeypatch):
    without_generation(
        monkeypatch,
        lambda channels, lane: channels.sender == CONTROLLER and lane is Lane.BACKWARD,
    )
    with pytest.raises(ViolationError):
        search(1, alarms=1)


def test_mutant_of_the_reset_one_of_this_generation_is_obeyed_again(monkeypatch):
    monkeypatch.setattr(Channels, "begins", lambda self, envelope: False)
    with pytest.raises(ViolationError, match=r"no end can be reached|all stands still"):
        search(1, kills=1)
