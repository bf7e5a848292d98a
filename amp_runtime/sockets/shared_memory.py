"""Rings in memory that all processes of a run map: where arrays of rows pass from one to another.

    | tails: uint64 of each channel, to a whole page | ring of channel 0 | ring of channel 1 | ...

The message itself goes through its socket, in its turn, and says where in the ring its arrays
are; so order, loss and the end of a peer are what they are without a ring. What a ring has no
room for goes through the socket as a whole: nobody waits for room. A socket's bytes are copied
twice by libzmq and twice by the kernel, in pieces, a ring's once by each end.

The sender alone knows the head of a ring, the receiver alone writes its tail. Positions count
the bytes of a channel in this generation. The memory has no name, and is gone with the last
process that maps it, however that ends.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amp_runtime.rows.spec import Array
from amp_runtime.wire.ledger import Lane
from amp_runtime.wire.plain import refuse

RING_BYTES = 2 << 20
"""Of each channel; memory of which a page was never needed is never taken."""
LEAST_BYTES = 4096
"""Fewer go through the socket, in the frame that goes there anyway."""
ALIGNMENT = 64

Channel = tuple[int, int, Lane]
"""Sender, receiver, lane."""


@dataclass(slots=True)
class _Outgoing:
    """A ring as its sender sees it.

    Attributes:
        head: position after the last array.
        floor: all before it has been taken, whatever the tail says.
    """

    number: int
    head: int = 0
    floor: int = 0


def create(n_channels: int) -> int:
    """Return the descriptor of new memory for so many channels.

    Raises:
        OSError: the system gives none, or a limit on the size of files (`ulimit -f`) is less.
    """
    fd = os.memfd_create("amp-rows", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, _size(n_channels))
    except OSError:
        os.close(fd)
        raise
    return fd


class SharedRings:
    """The rings of one process.

    Args:
        fd: as `create` returned it.
        channels: of all processes, in the order that all agree on.
        peer: this process.
    """

    def __init__(self, fd: int, channels: Sequence[Channel], peer: int) -> None:
        self._memory = mmap.mmap(fd, _size(len(channels)))
        self._rings = _tails_bytes(len(channels))
        self._tails = memoryview(self._memory)[: 8 * len(channels)].cast("Q")
        self._outgoing = {
            (to, lane): _Outgoing(n) for n, (of, to, lane) in enumerate(channels) if of == peer
        }
        self._incoming = {(of, lane): n for n, (of, to, lane) in enumerate(channels) if to == peer}
        self.begin_generation()

    def begin_generation(self) -> None:
        """Forget what is in all rings of this process: nobody sends before all have done so."""
        for ring in self._outgoing.values():
            ring.head = ring.floor = 0
        for number in self._incoming.values():
            self._tails[number] = 0

    def put(self, peer: int, lane: Lane, arrays: Sequence[Array]) -> tuple[int, list[int]] | None:
        """Copy arrays into the ring to `peer`, in C order; return their position and sizes.

        None: there is no such ring, no room in it, or they are few enough for the socket.
        """
        ring = self._outgoing.get((peer, lane))
        sizes = [array.nbytes for array in arrays]
        total = sum(map(_aligned, sizes))
        if ring is None or not LEAST_BYTES <= total <= RING_BYTES:
            return None
        taken = max(self._tails[ring.number], ring.floor)
        begin = ring.head
        if begin == taken:
            # Empty: from the start, so that no more memory is taken than is needed at once.
            begin = taken = ring.floor = begin + -begin % RING_BYTES
        elif begin % RING_BYTES + total > RING_BYTES:
            begin += -begin % RING_BYTES
        if begin + total - taken > RING_BYTES:
            return None
        at = self._rings + ring.number * RING_BYTES + begin % RING_BYTES
        for array, size in zip(arrays, sizes, strict=True):
            np.ndarray(array.shape, array.dtype, self._memory, at)[...] = array
            at += _aligned(size)
        ring.head = begin + total
        return begin, sizes

    def take(
        self, sender: int, lane: Lane, position: int, sizes: Sequence[int], *, release: bool
    ) -> list[memoryview]:
        """Return the arrays' bytes, copied.

        Args:
            release: let the sender have the room again; not of a generation that has ended.
        Raises:
            WireError: no ring holds such bytes.
        """
        number = self._incoming.get((sender, lane))
        total = sum(map(_aligned, sizes))
        if number is None or position % RING_BYTES + total > RING_BYTES:
            refuse("arrays in shared memory", (sender, position, total), "those of a ring to here")
        if release and not 0 <= position - self._tails[number] <= 2 * RING_BYTES:
            # From an end of the ring to its start, and once round.
            refuse("position in shared memory", position, f"{self._tails[number]} or soon after")
        begin = self._rings + number * RING_BYTES + position % RING_BYTES
        copy = memoryview(self._memory[begin : begin + total])
        if release:
            self._tails[number] = position + total
        found, at = [], 0
        for size in sizes:
            found.append(copy[at : at + size])
            at += _aligned(size)
        return found

    def close(self) -> None:
        self._tails.release()
        self._memory.close()


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT


def _tails_bytes(n_channels: int) -> int:
    return 8 * n_channels + -8 * n_channels % mmap.PAGESIZE


def _size(n_channels: int) -> int:
    # A file of no bytes cannot be mapped.
    return max(_tails_bytes(n_channels) + n_channels * RING_BYTES, mmap.PAGESIZE)
