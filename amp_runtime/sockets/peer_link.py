"""One process's end of the protocol: stamps, sends, receives and judges frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from amp_runtime.errors import MessagesLostError, WireError
from amp_runtime.rows.message import Direction, Message
from amp_runtime.sockets.shared_memory import SharedRings
from amp_runtime.sockets.transport import Endpoint
from amp_runtime.wire.codec import (
    Buffer,
    Received,
    contiguous,
    decode,
    encode_message,
    encode_record,
)
from amp_runtime.wire.elsewhere import Elsewhere, pack, unpack
from amp_runtime.wire.joined import join, split
from amp_runtime.wire.ledger import Channels, Envelope, Lane, Verdict
from amp_runtime.wire.protocol import CONTROLLER, Record, Reset

LANE_OF = {Direction.FORWARD: Lane.FORWARD, Direction.BACKWARD: Lane.BACKWARD}


class PeerLink:
    """An endpoint with the accounts of its channels.

    Args:
        run: 32 hex digits.
        peers: {peer: incarnation} of those it may hear from.
        peer_name: what to call a peer in an error.
        incarnation: of this process.
        generation: that it begins in.
        rings: where arrays of rows go; None: through sockets, as all else does.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        run: str,
        peers: Mapping[int, int],
        peer_name: Callable[[int], str] = "peer {}".format,
        incarnation: int = 0,
        generation: int = 0,
        rings: SharedRings | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._rings = rings
        self._peer_name = peer_name
        self.channels = Channels(run, endpoint.peer, incarnation, peers, generation)

    def advance(self, generation: int, peers: Mapping[int, int]) -> None:
        """Begin a later generation; what waits to be sent is of the one before, and dropped."""
        self.channels.advance(generation, peers)
        self.endpoint.drop_outboxes()
        if self._rings:
            self._rings.begin_generation()

    def send_record(self, peer: int, record: Record) -> None:
        """Send a record.

        Raises:
            WireError: it cannot be encoded, or is too large; nothing is sent, and the
                next message has its number.
        """
        envelope = self.channels.stamp(peer, Lane.CONTROL)
        try:
            self.endpoint.send(peer, Lane.CONTROL, encode_record(envelope, record))
        except BaseException:
            self.channels.withdraw(peer, Lane.CONTROL)
            raise

    def send_message(self, peer: int, message: Message) -> None:
        """Send rows; errors as in `send_record`."""
        lane = LANE_OF[message.direction]
        envelope = self.channels.stamp(peer, lane, len(message))
        try:
            self.endpoint.send(peer, lane, self._frames(peer, lane, envelope, message))
        except BaseException:
            self.channels.withdraw(peer, lane, len(message))
            raise

    def _frames(
        self, peer: int, lane: Lane, envelope: Envelope, message: Message
    ) -> Sequence[Buffer]:
        header, *arrays = encode_message(envelope, message)
        put = self._rings.put(peer, lane, arrays) if self._rings else None
        if put is None:
            return join([header, *map(contiguous, arrays)])
        return (pack(Elsewhere(envelope.sender, envelope.generation, *put, header)),)

    def _from_ring(self, elsewhere: Elsewhere, lane: Lane) -> Sequence[bytes | memoryview]:
        """Return the frames of a message whose arrays are in shared memory."""
        sender, generation, position, sizes, header = elsewhere
        if self._rings is None:
            raise WireError("arrays in shared memory, which this process has none of")
        # What a former generation put there is dropped below, and may be anything by now.
        release = generation == self.channels.generation
        arrays = self._rings.take(sender, lane, position, sizes, release=release)
        return [header, *arrays]

    def receive(self, lane: Lane, at_most: int) -> Iterator[Received]:
        """Yield what has come on `lane` and is ours and next; drop and count the rest.

        A reset of a later generation begins it, whatever the rest is.

        Raises:
            WireError: a frame that is not of our protocol, or a record that its sender may not
                send.
            MessagesLostError: a gap.
        """
        for _ in range(at_most):
            frames = self.endpoint.receive(lane)
            if frames is None:
                return
            received = self._judge(frames, lane)
            if received is not None:
                yield received
            if not self.endpoint.has_more(lane):
                return

    def _judge(self, frames: Sequence[bytes], lane: Lane) -> Received | None:
        try:
            elsewhere = unpack(frames)
            whole = self._from_ring(elsewhere, lane) if elsewhere else split(frames)
            received = decode(whole, peer_name=self._peer_name)
        except WireError as error:
            raise error.at(f"a frame on the {lane.name.lower()} lane") from error.__cause__
        envelope, body = received.envelope, received.body
        if elsewhere and envelope[1:3] != (elsewhere.generation, elsewhere.sender):
            raise WireError(
                f"arrays of generation {elsewhere.generation} from peer {elsewhere.sender} in "
                f"shared memory, with a header of generation {envelope.generation}",
                where=f"from {self._peer_name(envelope.sender)}",
            )
        is_message = isinstance(body, Message)
        if is_message != (lane is not Lane.CONTROL) or (
            isinstance(body, Message) and LANE_OF[body.direction] is not lane
        ):
            raise WireError(
                f"{type(body).__name__} on the {lane.name.lower()} lane",
                where=f"from {self._peer_name(envelope.sender)}",
            )
        if isinstance(body, Reset) and self.channels.begins(envelope):
            self.advance(envelope.generation, {CONTROLLER: envelope.incarnation})
        rows = len(body) if isinstance(body, Message) else 0
        verdict = self.channels.accept(envelope, lane, rows)
        if verdict is Verdict.GAP:
            raise MessagesLostError(
                f"message {envelope.sequence} came, "
                f"{self.channels.expected(envelope.sender, lane)} is next: messages were lost",
                where=f"{lane.name.lower()} channel from {self._peer_name(envelope.sender)}",
            )
        if verdict is not Verdict.OK:
            return None
        if not isinstance(body, Message):
            try:
                body.check_sender(envelope.sender)
            except WireError as error:
                raise error.at(f"from {self._peer_name(envelope.sender)}") from None
        return received
