"""Sockets: one endpoint per process, three lanes, no blocking send.

A process binds one PULL socket a lane and connects one PUSH socket to each
(peer, lane) that it sends to; a PUSH with one PULL keeps order and has one reader.
Forward and backward share workers, so a send that could block would deadlock:
what a socket does not take at once waits in the channel's outbox, until POLLOUT.
The only throttle is admission at the controller.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import zmq

from amp_runtime.errors import StallError, WireError
from amp_runtime.sockets.channel import Channel, bind_private, make_socket
from amp_runtime.sockets.directory import SocketDirectory
from amp_runtime.wire.codec import LIMITS, Buffer
from amp_runtime.wire.ledger import Lane

__all__ = ["Endpoint", "Lane", "Ready", "SocketDirectory"]

# As plain integers: pyzmq turns them into members of an enum and back.
_NOBLOCK = int(zmq.NOBLOCK)
_RCVMORE = int(zmq.RCVMORE)
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
_LANES = tuple(Lane)

HIGH_WATER_MARK = 1000
"""Messages that libzmq queues per channel and side. It throttles nothing: more wait
in our outbox, where they are counted."""


class Ready(NamedTuple):
    """What `Endpoint.poll` found: lanes with frames to receive, and fds to read.

    Attributes:
        lanes: in order of urgency: control, backward, forward.
        fds: those of `extra_fds` that are readable (a pidfd: its process ended).
    """

    lanes: tuple[Lane, ...]
    fds: tuple[int, ...]


class Endpoint:
    """The sockets of one process. Not for use by more than one thread, or after fork.

    Args:
        directory: the run's socket directory.
        peer: this process's peer number; its three PULL sockets are bound at once.
        incarnation: how often it was started before.
        max_frame_bytes: the largest frame that may be sent or received.
        high_water_mark: see HIGH_WATER_MARK.
    Raises:
        StartError: a socket path is too long.
    Attributes:
        messages_sent, bytes_sent, messages_received, bytes_received: so far.
        outbox_messages: waiting now in all outboxes.
        peak_outbox_messages: the most that ever waited at once.
    """

    def __init__(
        self,
        directory: SocketDirectory,
        peer: int,
        incarnation: int = 0,
        *,
        max_frame_bytes: int = LIMITS.frame_bytes,
        high_water_mark: int = HIGH_WATER_MARK,
    ) -> None:
        self.peer = peer
        self.messages_sent = self.bytes_sent = 0
        self.messages_received = self.bytes_received = 0
        self.outbox_messages = self.peak_outbox_messages = 0
        self._directory = directory
        self._max_frame_bytes = max_frame_bytes
        self._high_water_mark = high_water_mark
        files = {lane: directory.file(peer, incarnation, lane) for lane in Lane}
        self._context = zmq.Context()
        # Not zmq's poller, which asks every socket, with a system call each, before it waits
        # and again after it: of those that have news the file descriptor is readable.
        self._poll = select.poll()
        self._extra_fds: tuple[int, ...] = ()
        self._channels: dict[tuple[int, Lane], Channel] = {}
        self._watched: dict[int, Channel] = {}
        self._pulls: dict[Lane, zmq.Socket[bytes]] = {}
        self._lane_of: dict[int, Lane] = {}
        # The lanes that may hold messages. A descriptor tells of news once: what is left of
        # them after a `receive` that stopped early, it does not tell again.
        self._undrained = dict.fromkeys(Lane, False)
        self._files: list[str] = []
        try:
            for lane in Lane:  # the poller reports in this order
                self._bind(lane, files[lane])
        except BaseException:
            self.close()
            raise

    def _bind(self, lane: Lane, file: str) -> None:
        pull = self._socket(zmq.PULL, lane)
        self._pulls[lane] = pull
        self._lane_of[pull.FD] = lane
        self._files.append(file)
        bind_private(pull, file)
        self._poll.register(pull.FD, select.POLLIN)

    def _socket(self, kind: int, lane: Lane) -> zmq.Socket[bytes]:
        return make_socket(self._context, kind, lane, self._high_water_mark, self._max_frame_bytes)

    def connect(self, peer: int, incarnation: int = 0, lanes: Iterable[Lane] = tuple(Lane)) -> None:
        """Open channels to `peer`; those to another incarnation of it are closed first.

        What waits in the outbox for a former incarnation is dropped.
        """
        for lane in lanes:
            channel = self._channels.get((peer, lane))
            if channel is not None:
                if channel.incarnation == incarnation:
                    continue
                self._disconnect(peer, lane)
            socket = self._socket(zmq.PUSH, lane)
            socket.connect(f"ipc://{self._directory.file(peer, incarnation, lane)}")
            channel = Channel(socket, incarnation)
            self._channels[peer, lane] = channel
            self._watch(channel)

    def disconnect(self, peer: int) -> None:
        """Close the channels to `peer`, with what waits in their outboxes."""
        for lane in Lane:
            if (peer, lane) in self._channels:
                self._disconnect(peer, lane)

    def _disconnect(self, peer: int, lane: Lane) -> None:
        channel = self._channels.pop((peer, lane))
        self.outbox_messages -= len(channel.outbox)
        self._unwatch(channel)
        channel.socket.close()

    def drop_outboxes(self) -> None:
        """Forget what waits to be sent."""
        for channel in self._channels.values():
            channel.outbox.clear()
        self.outbox_messages = 0

    # ------------------------------------------------------------------------- sending

    def send(self, peer: int, lane: Lane, frames: Sequence[Buffer]) -> None:
        """Send one multipart message, now or as soon as the socket takes it. Never blocks.

        Arrays that wait in the outbox are not copied: they belong to the message.

        Raises:
            WireError: a frame is larger than the receiver accepts; nothing is sent.
            KeyError: `connect` was not called for this channel.
        """
        channel = self._channels[peer, lane]
        n_bytes = 0
        for frame in frames:
            size = len(frame) if type(frame) is bytes else frame.nbytes
            if size > self._max_frame_bytes:
                raise WireError(
                    f"a frame of {size} bytes; the limit is {self._max_frame_bytes}",
                    where=f"peer {self.peer} to {peer}, {lane.name.lower()}",
                    fix="send fewer rows in one message: lower max_active_rows",
                )
            n_bytes += size
        self.messages_sent += 1
        self.bytes_sent += n_bytes
        # Behind others in the outbox it must wait its turn: a channel keeps order.
        if channel.outbox or not channel.try_send(frames):
            channel.outbox.append(frames)
            self.outbox_messages += 1
            self.peak_outbox_messages = max(self.peak_outbox_messages, self.outbox_messages)
            self._watch(channel)

    def flush(self) -> int:
        """Send what the sockets take of the outboxes; return the messages that still wait."""
        if self.outbox_messages:
            for channel in self._channels.values():
                self._flush(channel)
        return self.outbox_messages

    def _flush(self, channel: Channel) -> None:
        before = len(channel.outbox)
        channel.flush()
        self.outbox_messages -= before - len(channel.outbox)
        if channel.linked and not channel.outbox:
            self._unwatch(channel)

    def linked(self) -> bool:
        """Whether every channel is connected to its peer."""
        return not self.unlinked()

    def unlinked(self) -> list[tuple[int, Lane]]:
        """Return the channels, as (peer, lane), that have not been connected yet."""
        missing = []
        for key, channel in self._channels.items():
            if not channel.linked and channel.writable:
                channel.linked = True
                self._flush(channel)
            if not channel.linked:
                missing.append(key)
        return missing

    # ----------------------------------------------------------------------- receiving

    def poll(self, timeout_s: float, extra_fds: tuple[int, ...] = ()) -> Ready:
        """Wait until something can be received or `timeout_s` has passed.

        Meanwhile outboxes are sent as sockets take them, and channels found
        connected: these end the wait too, with nothing in the result.

        Args:
            timeout_s: 0 looks and returns.
            extra_fds: watched beside the sockets; passing the same ones again is cheap.
        """
        if extra_fds != self._extra_fds:
            self._set_extra_fds(extra_fds)
        deadline = time.monotonic() + timeout_s
        undrained = self._undrained
        while True:
            news = bool(self._watched) and self._look_at_watched()
            if news or True in undrained.values():
                timeout_s = 0
            fds: list[int] = []
            # Rounded up: a wait of 0.4 ms must not become a busy loop.
            readable = self._poll.poll(math.ceil(timeout_s * 1000))
            for fd, _ in readable:
                if fd in extra_fds:
                    fds.append(fd)
                elif (lane := self._lane_of.get(fd)) is None:
                    news = self._look_at_watched() or news
                elif not undrained[lane]:
                    # Asking takes the news from the descriptor, a message or not.
                    undrained[lane] = bool(int(self._pulls[lane].get(_EVENTS)) & _POLLIN)
            if timeout_s <= 0 or not readable or fds or news or True in undrained.values():
                return Ready(tuple([lane for lane in _LANES if undrained[lane]]), tuple(fds))
            timeout_s = max(deadline - time.monotonic(), 0)

    def _look_at_watched(self) -> bool:
        """Send from outboxes, find channels connected; return whether there was any such news."""
        news = False
        for channel in tuple(self._watched.values()):
            if channel.writable:
                channel.linked = news = True
                self._flush(channel)
        return news

    def receive(self, lane: Lane) -> list[bytes] | None:
        """Return the frames of the next message on `lane`, or None: there is none now.

        Frames are copied out of libzmq: below some 100 KiB that is faster than
        wrapping them, and what arrays are made of is aligned.
        """
        pull = self._pulls[lane]
        try:
            frames = [pull.recv(_NOBLOCK)]
        except zmq.Again:
            self._undrained[lane] = False
            return None
        n_bytes = len(frames[0])
        while pull.get(_RCVMORE):
            frames.append(frame := pull.recv(_NOBLOCK))
            n_bytes += len(frame)
        # To ask whether there is another takes less time than to be told by an exception.
        self._undrained[lane] = bool(int(pull.get(_EVENTS)) & _POLLIN)
        self.messages_received += 1
        self.bytes_received += n_bytes
        return frames

    def has_more(self, lane: Lane) -> bool:
        """Return whether there was another message on `lane` after the last received."""
        return self._undrained[lane]

    def wait_linked(self, timeout_s: float) -> None:
        """Wait until every channel is connected.

        Raises:
            StallError: some are not after `timeout_s`; it names them.
        """
        deadline = time.monotonic() + timeout_s
        while missing := self.unlinked():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                names = ", ".join(f"{peer} ({lane.name.lower()})" for peer, lane in missing)
                raise StallError(
                    f"no connection to peer {names} after {timeout_s:g} s",
                    where=f"peer {self.peer}",
                )
            news = select.poll()
            for key in missing:
                news.register(self._channels[key].socket.FD, select.POLLIN)
            news.poll(math.ceil(min(left_s, 0.1) * 1000))

    # ------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Close all sockets and remove their files; again is harmless.

        Control messages have CONTROL_LINGER_MS to leave; outboxes are dropped.
        """
        for channel in self._channels.values():
            channel.socket.close()
        for pull in self._pulls.values():
            pull.close()
        self._channels.clear()
        self._watched.clear()
        self._pulls.clear()
        self._lane_of.clear()
        self._poll = select.poll()
        self._extra_fds = ()
        self._context.term()
        for file in self._files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)
        self._files.clear()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------------------ the poller

    def _watch(self, channel: Channel) -> None:
        # Only while there is something to wait for: a socket that was sent to has news often.
        fd = channel.socket.FD
        if fd not in self._watched:
            self._poll.register(fd, select.POLLIN)
            self._watched[fd] = channel

    def _unwatch(self, channel: Channel) -> None:
        fd = channel.socket.FD
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _set_extra_fds(self, extra_fds: tuple[int, ...]) -> None:
        for fd in self._extra_fds:
            self._poll.unregister(fd)
        for fd in extra_fds:
            self._poll.register(fd, select.POLLIN)
        self._extra_fds = extra_fds
