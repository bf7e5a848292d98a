"""The header of a multipart message: its keys, ranges and limits, and their checks.

What a header says is untrusted: every key, type, range, dtype and size is checked
against closed tables, by name, and nothing is allocated from what it says: arrays
are views of the frames that came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import msgpack
import numpy as np

from amp_runtime.errors import WireError
from amp_runtime.rows.spec import DTYPES, Array
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.plain import check_keys, refuse, shown
from amp_runtime.wire.protocol import FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class Limits:
    """What a frame may be at most; anything larger is refused unread.

    Attributes:
        header_bytes: a message's header.
        record_bytes: a record's header: the report of a worker with many nodes
            is a few hundred KiB.
        frame_bytes: one buffer.
        arrays: buffers of one message or record, the column matrix apart.
        items: entries of any list or map in a record. msgpack allocates a list
            before it reads it, at any depth up to 1,024: 8 bytes x this x depth.
    """

    header_bytes: int = 64 << 10
    record_bytes: int = 1 << 20
    frame_bytes: int = 1 << 30
    arrays: int = 256
    items: int = 4096


LIMITS = Limits()


MAX_DIMS = 8
MAX_NAME = 128
MAX_SEQUENCE = 2**63 - 1
_I31 = 2**31 - 1
_RUN = re.compile(r"[0-9a-f]{32}").fullmatch

ENVELOPE_RANGES = {
    "gen": (0, 2**32 - 1),
    "from": (0, 2**16 - 1),
    "inc": (0, 2**32 - 1),
    "seq": (0, MAX_SEQUENCE),
}
MESSAGE_RANGES = {
    **ENVELOPE_RANGES,
    "dir": (0, 1),
    "mode": (0, 1),
    "port": (0, _I31),
    "rows": (1, _I31),
    "cols": (1, _I31),
}
MESSAGE_KEYS = frozenset({"v", "run", *MESSAGE_RANGES, "arrays"})
RECORD_KEYS = frozenset({"v", "run", *ENVELOPE_RANGES, "verb", "fields", "arrays"})

# msgpack writes a map of n < 16 entries as the byte 0x80 + n: the first byte tells
# the two kinds of header apart, and that a message's has no key twice.
MESSAGE_TAG = bytes([0x80 + len(MESSAGE_KEYS)])


def envelope_plain(envelope: Envelope) -> dict[str, Any]:
    """Return the entries that every header begins with."""
    return {
        "v": FORMAT_VERSION,
        "run": envelope.run,
        "gen": envelope.generation,
        "from": envelope.sender,
        "inc": envelope.incarnation,
        "seq": envelope.sequence,
    }


def envelope_from(header: Mapping[str, Any]) -> Envelope:
    """Return the envelope of a header that has been checked."""
    return Envelope(header["run"], header["gen"], header["from"], header["inc"], header["seq"])


def unpack(head: bytes | memoryview, limits: Limits, *, of_message: bool) -> dict[str, Any]:
    """Return the header's map, its keys, envelope and ranges checked.

    Raises:
        WireError: it is too long, no msgpack, of another version, or an entry is
            missing, unknown, there twice, of another type or out of range.
    """
    most = limits.header_bytes if of_message else limits.record_bytes
    if len(head) > most:
        refuse("size of the header", len(head), f"<= {most} bytes")
    items = max(limits.arrays, len(MESSAGE_KEYS)) if of_message else limits.items
    try:
        header = msgpack.unpackb(
            head,
            object_pairs_hook=None if of_message else _distinct,
            strict_map_key=True,
            max_array_len=items,
            max_map_len=items,
            max_bin_len=0,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise WireError(f"the header is no msgpack map of ours: {shown(str(error))}") from error
    if type(header) is not dict:
        refuse("the header", header, "a map")
    version = header.get("v")
    if type(version) is not int or version != FORMAT_VERSION:
        # Before the keys: another version may well have others.
        refuse("format version", version, f"{FORMAT_VERSION}, this program's")
    check_keys("the header", header, MESSAGE_KEYS if of_message else RECORD_KEYS)
    for key, (low, high) in (MESSAGE_RANGES if of_message else ENVELOPE_RANGES).items():
        value = header[key]
        if type(value) is not int or not low <= value <= high:
            refuse(f"header field {key!r}", value, f"an integer from {low} to {high}")
    run = header["run"]
    if type(run) is not str or not _RUN(run):
        refuse("header field 'run'", run, "32 lower-case hex digits")
    return header


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the map of `pairs`; msgpack alone would let the last of two equal keys win."""
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise WireError(f"key {shown(twice)} is twice in one map of the header")
    return made


def check_count(frames: Sequence[Any], must: int) -> None:
    """Check that as many frames came as the header says."""
    if len(frames) != must:
        refuse("number of frames", len(frames), f"{must}, as the header says")


def view_arrays(
    specs: Any, frames: Iterator[Any], rows: int | None, limits: Limits
) -> dict[str, Array]:
    """Return the arrays that `specs` declare, one frame each.

    Args:
        specs: [[name, dtype, shape], ...], not checked yet.
        frames: yields the buffers; as many as there are specs are taken.
        rows: the first dimension of all arrays, which their shapes leave out;
            None: the shapes are whole.
    Returns:
        Read-only views of the frames, [rows, *shape] or [*shape].
    """
    arrays: dict[str, Array] = {}
    for spec in specs:
        if type(spec) is not list or len(spec) != 3:
            refuse("array spec", spec, "[name, dtype, shape]")
        name, dtype, shape = spec
        if type(name) is not str or not 0 < len(name) <= MAX_NAME or name in arrays:
            refuse("name of an array", name, f"a new name of 1 to {MAX_NAME} characters")
        if type(dtype) is not str or dtype not in DTYPES:
            refuse(f"dtype of array {shown(name)}", dtype, f"one of {', '.join(DTYPES)}")
        if type(shape) is not list or len(shape) >= MAX_DIMS + (rows is None):
            refuse(f"shape of array {shown(name)}", shape, f"of at most {MAX_DIMS} dims in all")
        elements = rows or 1
        for dim in shape:
            if type(dim) is not int or not 0 <= dim <= _I31:
                refuse(f"shape of array {shown(name)}", shape, "integers from 0 to 2**31 - 1")
            elements *= dim or 1  # a 0 must not hide the size of the others from the cap
        if elements > limits.frame_bytes:
            refuse(f"shape of array {shown(name)}", shape, f"of <= {limits.frame_bytes} elements")
        whole = tuple(shape) if rows is None else (rows, *shape)
        arrays[name] = view(name, DTYPES[dtype], whole, next(frames))
    return arrays


def view(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], frame: Any) -> Array:
    """Return `frame` as a read-only array; its length must be that of the shape."""
    n_bytes = dtype.itemsize * prod(shape)
    if len(frame) != n_bytes:
        refuse(f"frame of {shown(name)}", len(frame), f"{n_bytes} bytes: {dtype}{list(shape)}")
    return view_of(dtype, shape, frame)


def view_of(dtype: np.dtype[Any], shape: tuple[int, ...], frame: Any) -> Array:
    """Return `frame`, whose length is that of the shape, as a read-only array."""
    if type(frame) is not bytes:
        frame = memoryview(frame).toreadonly()
    return np.ndarray(shape, dtype, frame)
