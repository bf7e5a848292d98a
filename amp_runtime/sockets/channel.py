"""One socket: its options, each with its reason, and the outbox of a channel."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

import zmq

from amp_runtime.wire.codec import Buffer
from amp_runtime.wire.ledger import Lane

CONTROL_LINGER_MS = 500
HEADROOM_BYTES = 4096

# As plain integers: `|` of two flags of an enum takes longer than a send.
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_LAST = int(zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_POLLOUT = int(zmq.POLLOUT)


def make_socket(
    context: zmq.Context[zmq.Socket[bytes]],
    kind: int,
    lane: Lane,
    high_water_mark: int,
    max_frame_bytes: int,
) -> zmq.Socket[bytes]:
    """Return a new PUSH or PULL socket, neither bound nor connected."""
    socket = context.socket(kind)
    # Rows of a run that ends are worth nothing; the last fault or stop is, for
    # a moment. The default would let one unsent message block the exit for ever.
    socket.linger = CONTROL_LINGER_MS if lane is Lane.CONTROL else 0
    # A message goes to a connected peer only: else it is accepted for, and lost
    # with, a peer that never comes. It also makes POLLOUT mean "connected".
    socket.immediate = 1
    socket.set_hwm(high_water_mark)
    # A larger frame closes the connection, and the sender sees nothing: so
    # `send` checks first, and this stops only a stranger.
    socket.maxmsgsize = max_frame_bytes + HEADROOM_BYTES
    # All sockets are bound before any connects, so a refused connection is a
    # dead peer or a full backlog: try soon, then seldom.
    socket.reconnect_ivl = 20
    socket.reconnect_ivl_max = 1000
    # All workers connect to the controller at once.
    socket.backlog = 1024
    return socket


def bind_private(socket: zmq.Socket[bytes], file: str) -> None:
    """Bind `socket` to an ipc file that only this user can connect to."""
    # The mode of a socket file follows the umask; a chmod would come too late.
    umask = os.umask(0o177)
    try:
        socket.bind(f"ipc://{file}")
    finally:
        os.umask(umask)


class Channel:
    """One PUSH socket and the messages that it has not taken yet."""

    __slots__ = ("incarnation", "linked", "outbox", "socket")

    def __init__(self, socket: zmq.Socket[bytes], incarnation: int) -> None:
        self.socket = socket
        self.incarnation = incarnation
        self.outbox: deque[Sequence[Buffer]] = deque()
        self.linked = False

    def try_send(self, frames: Sequence[Buffer]) -> bool:
        """Hand all of `frames` to libzmq, or none of them."""
        last = len(frames) - 1
        send = self.socket.send
        try:
            send(frames[0], _MORE if last else _LAST)
        except zmq.Again:
            return False
        # libzmq counts a multipart message as one at its end: once it has taken
        # the first frame it takes the others, and EAGAIN here would be a bug.
        for i in range(1, last + 1):
            send(frames[i], _MORE if i < last else _LAST)
        return True

    @property
    def writable(self) -> bool:
        """Whether the socket is connected and would take a message now."""
        return bool(int(self.socket.get(_EVENTS)) & _POLLOUT)

    def flush(self) -> None:
        """Hand over what waits, oldest first, as far as the socket takes it."""
        while self.outbox and self.try_send(self.outbox[0]):
            self.outbox.popleft()
