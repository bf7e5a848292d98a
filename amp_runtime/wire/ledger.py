"""Who a frame is from, and the account of every channel: is it ours, is it next?

PUSH/PULL is at-most-once: what dies with a peer is lost without notice, so loss
is found end to end. Every frame carries an `Envelope`; a channel's sequence
number is the number of messages that went before, so one count is at once the
number to stamp, the number to expect, and the figure that must agree when
nothing is in flight. Frames that are not for this generation are dropped and
counted, never held: holding them deadlocks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from amp_runtime.errors import InvariantError
from amp_runtime.nodes.statistics import ChannelCount, ChannelCounts
from amp_runtime.wire.protocol import CONTROLLER


class Lane(enum.IntEnum):
    """The three kinds of traffic, each on its own socket, in order of urgency."""

    CONTROL = 0
    BACKWARD = 1
    FORWARD = 2


class Envelope(NamedTuple):
    """Where a frame comes from and which it is; part of every header.

    Attributes:
        run: 32 lower-case hex digits, new at each launch.
        generation: +1 at each recovery; fences off what was sent before it.
        sender: peer number: 0 is the controller, w + 1 is worker w.
        incarnation: how often the sender's process was started before.
        sequence: messages that the sender sent before on this channel, in this
            generation.
    """

    run: str
    generation: int
    sender: int
    incarnation: int
    sequence: int


class Verdict(enum.Enum):
    """What to do with a frame: handle it (OK), fail (GAP), or drop it (the rest)."""

    OK = "ok"
    OTHER_RUN = "other_run"
    STALE_GENERATION = "stale_generation"
    FUTURE_GENERATION = "future_generation"
    OTHER_INCARNATION = "other_incarnation"
    DUPLICATE = "duplicate"
    GAP = "gap"


@dataclass(slots=True)
class _Account:
    """One channel's messages and rows so far, in this generation."""

    messages: int = 0
    rows: int = 0


_Accounts = dict[tuple[int, Lane], _Account]


class Channels:
    """The accounts of one peer with all others.

    Args:
        run: this launch, 32 hex digits.
        sender: this peer's own number.
        incarnation: this peer's own incarnation.
        peers: {peer number: incarnation} of those it may hear from.
        generation: the first generation.
    """

    def __init__(
        self,
        run: str,
        sender: int,
        incarnation: int,
        peers: Mapping[int, int],
        generation: int = 0,
    ) -> None:
        self.run = run
        self.sender = sender
        self.incarnation = incarnation
        self.generation = generation
        self._peers = dict(peers)
        self._sent: _Accounts = {}
        self._received: _Accounts = {}
        self._dropped = dict.fromkeys(Verdict, 0)

    def advance(self, generation: int, peers: Mapping[int, int]) -> None:
        """Begin a later generation: every channel starts again from 0.

        Raises:
            ValueError: `generation` is not later; it never goes back.
        """
        if generation <= self.generation:
            raise ValueError(f"generation {generation} does not follow {self.generation}")
        self.generation = generation
        self._peers = dict(peers)
        self._sent.clear()
        self._received.clear()

    def begins(self, envelope: Envelope) -> bool:
        """Whether a reset in this envelope begins a later generation here.

        It does when the controller that this peer hears sent it; any other is judged by
        `accept`, as all frames are.
        """
        return (
            envelope.run == self.run
            and envelope.sender == CONTROLLER
            and self._peers.get(CONTROLLER) == envelope.incarnation
            and envelope.generation > self.generation
        )

    def hear(self, peers: Mapping[int, int]) -> None:
        """Hear these from now on: {peer number: incarnation}."""
        self._peers = dict(peers)

    def stamp(self, peer: int, lane: Lane, rows: int = 0) -> Envelope:
        """Return the envelope of the next message to `peer`, and count it as sent."""
        account = self._sent.get((peer, lane))
        if account is None:
            account = self._sent[peer, lane] = _Account()
        envelope = Envelope(
            self.run, self.generation, self.sender, self.incarnation, account.messages
        )
        account.messages += 1
        account.rows += rows
        return envelope

    def withdraw(self, peer: int, lane: Lane, rows: int = 0) -> None:
        """Take back the last `stamp` of a channel: its message could not be sent."""
        account = self._sent[peer, lane]
        account.messages -= 1
        account.rows -= rows

    def accept(self, envelope: Envelope, lane: Lane, rows: int = 0) -> Verdict:
        """Judge a frame that came on `lane`; only one that is OK counts as received.

        Any other verdict changes nothing but the count of that verdict. After a
        GAP the messages in between are lost for good: a new generation must begin.
        """
        verdict, account = self._judge(envelope, lane)
        if account is not None:
            account.messages += 1
            account.rows += rows
        else:
            self._dropped[verdict] += 1
        return verdict

    def _judge(self, envelope: Envelope, lane: Lane) -> tuple[Verdict, _Account | None]:
        """Return the verdict, and the account to book on when it is OK."""
        if envelope.run != self.run:
            return Verdict.OTHER_RUN, None
        if envelope.generation != self.generation:
            if envelope.generation < self.generation:
                return Verdict.STALE_GENERATION, None
            return Verdict.FUTURE_GENERATION, None
        if self._peers.get(envelope.sender) != envelope.incarnation:
            return Verdict.OTHER_INCARNATION, None
        account = self._received.get((envelope.sender, lane))
        if account is None:
            account = self._received[envelope.sender, lane] = _Account()
        if envelope.sequence != account.messages:
            if envelope.sequence < account.messages:
                return Verdict.DUPLICATE, None
            return Verdict.GAP, None
        return Verdict.OK, account

    def expected(self, peer: int, lane: Lane) -> int:
        """Return the sequence number that the next message from `peer` must have."""
        account = self._received.get((peer, lane))
        return account.messages if account is not None else 0

    def counts(self) -> ChannelCounts:
        """Return the accounts for a report."""
        return ChannelCounts(
            generation=self.generation,
            sent=_counted(self._sent),
            received=_counted(self._received),
            dropped={v.value: n for v, n in self._dropped.items() if n},
        )


def _counted(accounts: _Accounts) -> list[ChannelCount]:
    return [
        ChannelCount(peer, lane.name.lower(), account.messages, account.rows)
        for (peer, lane), account in sorted(accounts.items())
    ]


def check_accounts(counts: Mapping[int, ChannelCounts], name_of: Callable[[int], str]) -> None:
    """Assert that what was sent on each channel of rows was received, when none is under way.

    Args:
        counts: {peer: its `Channels.counts()`}.
        name_of: what to call a peer.
    Raises:
        InvariantError: names the channel and both counts.
    """
    sent: dict[tuple[int, int, str], tuple[int, int]] = {}
    received: dict[tuple[int, int, str], tuple[int, int]] = {}
    for peer, accounts in counts.items():
        for other, lane, messages, rows in accounts.get("sent", ()):
            sent[peer, other, lane] = (messages, rows)
        for other, lane, messages, rows in accounts.get("received", ()):
            received[other, peer, lane] = (messages, rows)
    for channel in sorted(sent.keys() | received.keys()):
        sender, receiver, lane = channel
        # Control goes on while the others rest: its counts are a moment old.
        if lane != "control" and sent.get(channel) != received.get(channel):
            raise InvariantError(
                f"(messages, rows) sent {sent.get(channel, (0, 0))}, "
                f"received {received.get(channel, (0, 0))}",
                where=f"{lane} channel from {name_of(sender)} to {name_of(receiver)}",
            )
