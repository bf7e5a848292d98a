"""Small frames, joined into one: what libzmq and the kernel do, they do once a frame.

    0xc1 | 0 | count: uint16 | size: uint32 of each | frame | pad | frame | pad | frame

Each frame begins at a multiple of 8 bytes, so that arrays are aligned. No msgpack begins
with 0xc1: the first byte tells whether a frame is joined. What is joined is copied once on
each side, which is cheaper than a frame of its own up to some 64 KiB; larger messages go
as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

from amp_runtime.wire.plain import refuse

JOINED_BYTES = 64 << 10
"""The most that the frames of one message may hold together to be joined."""

_TAG = 0xC1
_ALIGNMENT = 8
_COUNT = struct.Struct("<BBH")
_PADS = [b"\0" * n for n in range(_ALIGNMENT)]


@cache
def _table(n_frames: int) -> struct.Struct:
    return struct.Struct(f"<BBH{n_frames}I")


def join(frames: Sequence[Any]) -> Sequence[Any]:
    """Return what to send for `frames` (bytes or C-contiguous arrays): one frame, if small."""
    sizes = [len(frame) if type(frame) is bytes else frame.nbytes for frame in frames]
    if len(frames) == 1 or sum(sizes) > JOINED_BYTES:
        return frames
    table = _table(len(sizes))
    parts = [table.pack(_TAG, 0, len(sizes), *sizes)]
    end = table.size
    for size, frame in zip(sizes, frames, strict=True):
        if pad := -end % _ALIGNMENT:
            parts.append(_PADS[pad])
        parts.append(frame)
        end += pad + size
    return (b"".join(parts),)


def split(frames: Sequence[bytes]) -> Sequence[bytes | memoryview]:
    """Return the frames that were joined, the first as bytes, the others as views.

    Raises:
        WireError: a joined frame comes with others, or its table is not that of its bytes.
    """
    if len(frames) != 1 or frames[0][:1] != b"\xc1":
        return frames
    (joined,) = frames
    count = 0
    if len(joined) >= _COUNT.size:
        _, zero, count = _COUNT.unpack_from(joined)
    if count < 2 or zero or len(joined) < _table(count).size:
        refuse(
            "table of a joined frame", bytes(joined[:8]), "a count of 2 or more, and as many sizes"
        )
    table = _table(count)
    sizes = table.unpack_from(joined)[3:]
    view = memoryview(joined)
    found: list[bytes | memoryview] = []
    end = table.size
    for size in sizes:
        start = end + -end % _ALIGNMENT
        end = start + size
        found.append(view[start:end])
    if end != len(joined):
        refuse("size of a joined frame", len(joined), f"{end} bytes, as its table says")
    found[0] = bytes(found[0])
    return found
