"""A message whose arrays are not in its frames but in memory that both ends share.

    0xc1 | 1 | count: uint16 | sender: uint32 | generation: uint32 | zero: uint32
         | position: uint64 | size: uint32 of each array | header

The header is that of the same message with its arrays in frames (`codec`), and is checked as
that one is. What is said here tells where the arrays are before it is looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from amp_runtime.wire.plain import refuse

_TAGS = b"\xc1\x01"
_FIXED = struct.Struct("<BBHIIIQ")


class Elsewhere(NamedTuple):
    """Where the arrays of a message are.

    Attributes:
        position: of the first, in the bytes that the channel has carried in this generation.
        sizes: of each array, in bytes; where each begins, `shared_memory` says.
    """

    sender: int
    generation: int
    position: int
    sizes: Sequence[int]
    header: bytes


@cache
def _table(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def pack(elsewhere: Elsewhere) -> bytes:
    """Return the only frame of such a message."""
    sender, generation, position, sizes, header = elsewhere
    fixed = _FIXED.pack(*_TAGS, len(sizes), sender, generation, 0, position)
    return b"".join((fixed, _table(len(sizes)).pack(*sizes), header))


def unpack(frames: Sequence[Any]) -> Elsewhere | None:
    """Return where the arrays of a message are; None: it is of another form.

    Raises:
        WireError: it is of this form, and damaged.
    """
    if len(frames) != 1 or frames[0][:2] != _TAGS:
        return None
    (frame,) = frames
    if len(frame) < _FIXED.size:
        refuse("size of a frame without arrays", len(frame), f"{_FIXED.size} bytes or more")
    _, _, count, sender, generation, zero, position = _FIXED.unpack_from(frame)
    begin = _FIXED.size + 4 * count
    if zero or not count or len(frame) < begin:
        refuse("table of a frame without arrays", bytes(frame[:12]), "a count, and as many sizes")
    sizes = _table(count).unpack_from(frame, _FIXED.size)
    return Elsewhere(sender, generation, position, sizes, bytes(frame[begin:]))
