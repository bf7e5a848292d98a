"""The account of channels: what is ours, what is next, what is lost."""

import pytest

from amp_runtime.wire.ledger import Channels, Envelope, Lane, Verdict

RUN = "0123456789abcdef" * 2


def pair(generation: int = 0) -> tuple[Channels, Channels]:
    """Return the accounts of worker 0 (peer 1) and worker 1 (peer 2, incarnation 4)."""
    return (
        Channels(RUN, 1, 0, {0: 0, 2: 4}, generation),
        Channels(RUN, 2, 4, {0: 0, 1: 0}, generation),
    )


def test_sequence_counts_up_per_channel_and_every_message_is_accepted_once():
    one, two = pair()
    first, second = one.stamp(2, Lane.FORWARD, rows=3), one.stamp(2, Lane.FORWARD, rows=5)
    answer = one.stamp(2, Lane.BACKWARD, rows=1)
    assert [first.sequence, second.sequence, answer.sequence] == [0, 1, 0]
    assert two.accept(first, Lane.FORWARD, 3) is Verdict.OK
    assert two.accept(second, Lane.FORWARD, 5) is Verdict.OK
    assert two.accept(answer, Lane.BACKWARD, 1) is Verdict.OK
    assert one.counts()["sent"] == [(2, "backward", 1, 1), (2, "forward", 2, 8)]
    assert two.counts()["received"] == [(1, "backward", 1, 1), (1, "forward", 2, 8)]
    assert two.counts()["dropped"] == {}


def test_a_replayed_message_is_a_duplicate_and_counts_once():
    one, two = pair()
    envelope = one.stamp(2, Lane.FORWARD, rows=3)
    assert two.accept(envelope, Lane.FORWARD, 3) is Verdict.OK
    assert two.accept(envelope, Lane.FORWARD, 3) is Verdict.DUPLICATE
    assert two.counts()["received"] == [(1, "forward", 1, 3)]
    assert two.counts()["dropped"] == {"duplicate": 1}


def test_a_lost_message_is_a_gap_and_does_not_move_the_expected_number():
    one, two = pair()
    lost, late = one.stamp(2, Lane.FORWARD), one.stamp(2, Lane.FORWARD)
    assert two.accept(late, Lane.FORWARD) is Verdict.GAP
    assert two.expected(1, Lane.FORWARD) == 0
    assert two.accept(lost, Lane.FORWARD) is Verdict.OK
    assert two.accept(late, Lane.FORWARD) is Verdict.OK


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"run": "f" * 32}, Verdict.OTHER_RUN),
        ({"generation": 6}, Verdict.STALE_GENERATION),
        ({"generation": 8}, Verdict.FUTURE_GENERATION),
        ({"incarnation": 1}, Verdict.OTHER_INCARNATION),
        ({"sender": 9}, Verdict.OTHER_INCARNATION),
        ({"sequence": 1}, Verdict.GAP),
    ],
)
def test_a_foreign_frame_is_named_counted_and_not_booked(change, verdict):
    _, two = pair(generation=7)
    fields = {"run": RUN, "generation": 7, "sender": 1, "incarnation": 0, "sequence": 0}
    assert two.accept(Envelope(**(fields | change)), Lane.CONTROL, 2) is verdict
    assert two.counts()["dropped"] == {verdict.value: 1}
    assert all(messages == 0 for _, _, messages, _ in two.counts()["received"])
    assert two.accept(Envelope(**fields), Lane.CONTROL, 2) is Verdict.OK


def test_a_new_generation_starts_every_channel_at_zero_and_drops_the_old_one():
    one, two = pair()
    old = one.stamp(2, Lane.FORWARD)
    one.advance(1, {0: 0, 2: 5})
    two.advance(1, {0: 0, 1: 0})
    assert two.accept(old, Lane.FORWARD) is Verdict.STALE_GENERATION
    new = one.stamp(2, Lane.FORWARD)
    assert (new.generation, new.sequence) == (1, 0)
    assert two.accept(new, Lane.FORWARD) is Verdict.OK


def test_a_frame_of_the_future_is_accepted_after_advance():
    one, two = pair()
    one.advance(3, {0: 0, 2: 4})
    reset = one.stamp(2, Lane.CONTROL)
    assert two.accept(reset, Lane.CONTROL) is Verdict.FUTURE_GENERATION
    two.advance(3, {1: 0})
    assert two.accept(reset, Lane.CONTROL) is Verdict.OK


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        ({}, True),
        ({"generation": 9}, True),
        ({"generation": 2}, False),
        ({"generation": 1}, False),
        ({"sender": 1}, False),
        ({"incarnation": 1}, False),
        ({"run": "f" * 32}, False),
    ],
)
def test_only_the_controller_that_is_heard_begins_a_generation_and_only_a_later_one(change, begins):
    _, two = pair(generation=2)
    fields = {"run": RUN, "generation": 3, "sender": 0, "incarnation": 0, "sequence": 0}
    assert two.begins(Envelope(**(fields | change))) is begins
    assert two.generation == 2


def test_who_is_heard_can_change_within_a_generation():
    one, two = pair()
    envelope = one.stamp(2, Lane.FORWARD)
    two.hear({0: 0})
    assert two.accept(envelope, Lane.FORWARD) is Verdict.OTHER_INCARNATION
    two.hear({0: 0, 1: 0})
    assert two.accept(envelope, Lane.FORWARD) is Verdict.OK


def test_a_generation_never_goes_back():
    one, _ = pair(generation=2)
    with pytest.raises(ValueError, match="generation 2 does not follow 2"):
        one.advance(2, {})
    assert one.generation == 2


def test_lanes_are_numbered_in_order_of_urgency():
    assert sorted(Lane) == [Lane.CONTROL, Lane.BACKWARD, Lane.FORWARD]
