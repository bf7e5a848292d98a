"""Frames to records and back: what crosses a process, and nothing else.

    message   [header | int32 column matrix | one buffer per array]
    record    [header | one buffer per array]

The header is a msgpack map; buffers are raw, little-endian, C-contiguous. There is
no pickle and no extension type; `header` checks all that comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple, TypeAlias, get_type_hints

import msgpack
import numpy as np

from amp_runtime.errors import PayloadShapeError, WireError
from amp_runtime.rows.message import ADDRESS_COLUMNS, Direction, Message, Mode, Payload
from amp_runtime.rows.spec import DTYPES, Array, ArraySpec
from amp_runtime.wire.header import (
    LIMITS,
    MAX_SEQUENCE,
    MESSAGE_TAG,
    Limits,
    check_count,
    envelope_from,
    envelope_plain,
    unpack,
    view,
    view_arrays,
    view_of,
)
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.plain import as_plain, check_keys, check_plain, from_plain, refuse, shown
from amp_runtime.wire.protocol import Arrays, Record

__all__ = [
    "LIMITS",
    "Envelope",
    "Limits",
    "Received",
    "check_payload",
    "contiguous",
    "decode",
    "encode_message",
    "encode_record",
]

Buffer: TypeAlias = Any
"""bytes, or an array as it is: what zmq can send. (numpy's stubs declare no buffer
before Python 3.12, so a closer type would be refused everywhere.)"""

_COLUMNS = np.dtype("<i4")
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_DIRECTIONS = (Direction.FORWARD, Direction.BACKWARD)
_MODES = (Mode.TRAIN, Mode.EVALUATE)
_pack = msgpack.Packer().pack  # kept: making one costs more than packing a header
_unpack = msgpack.unpackb
_SEQUENCE_KEY = msgpack.packb("seq")


class Received(NamedTuple):
    """What came: who sent it, and the message or record."""

    envelope: Envelope
    body: Message | Record


# ---------------------------------------------------------------------------- encoding


def encode_message(envelope: Envelope, message: Message) -> list[Buffer]:
    """Return the header of `message` and its arrays, column matrix first.

    They belong to the message now and must not be written to; `contiguous` makes frames of them.

    Raises:
        WireError: no rows, an array whose rows are not the message's, or a dtype
            outside the table. Nothing is cast.
    """
    columns = message.columns
    rows, cols = columns.shape
    if not rows or columns.dtype != _COLUMNS:
        refuse("columns", f"{columns.dtype}{[rows, cols]}", "int32, of one row or more")
    frames: list[Buffer] = [b"", columns]
    specs: list[Any] | None = None
    if message.payload is not None:
        specs = []
        for name, array in message.payload.items():
            shape = array.shape
            if not shape or shape[0] != rows:
                refuse(f"shape of array {shown(name)}", list(shape), f"[{rows}, ...]: {rows} rows")
            specs.append((name, _dtype_name(name, array), shape[1:]))
            frames.append(array)
    header = envelope_plain(envelope)
    sequence = header.pop("seq")
    header["dir"] = message.direction
    header["mode"] = message.mode
    header["port"] = message.port
    header["rows"] = rows
    header["cols"] = cols
    header["arrays"] = specs
    header["seq"] = sequence  # last: all before it is the same from message to message
    frames[0] = _pack(header)
    return frames


def encode_record(envelope: Envelope, record: Record, limits: Limits = LIMITS) -> list[Buffer]:
    """Return the frames of `record`; C-contiguous arrays are frames as they are.

    Raises:
        WireError: a field is not of its annotated type (a numpy integer is no
            int, a tuple no list), the record's own check fails, or the header is
            larger than a peer accepts.
    """
    record.check()
    plain: dict[str, Any] = {}
    specs: dict[str, list[Any]] = {}
    frames: list[Buffer] = [b""]
    for name, hint in _hints(record.verb).items():
        value = getattr(record, name)
        if hint == Arrays:
            specs[name] = [(key, _dtype_name(key, a), a.shape) for key, a in value.items()]
            frames += map(contiguous, value.values())
        else:
            what = f"{record.verb}.{name}"
            plain[name] = as_plain(value, hint, what)
            check_plain(plain[name], hint, what, limits.items)
    header = envelope_plain(envelope)
    header |= {"verb": record.verb, "fields": plain, "arrays": specs}
    try:
        frames[0] = _pack(header)
    except ValueError as error:  # a lone surrogate in a string
        raise WireError(f"{record.verb} cannot be packed: {shown(str(error))}") from error
    if len(frames[0]) > limits.record_bytes:
        refuse(f"size of a {record.verb} record", len(frames[0]), f"<= {limits.record_bytes} bytes")
    return frames


def contiguous(array: Array) -> Array:
    """Return `array` as a frame may hold it: itself, or a C-contiguous copy."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _dtype_name(name: str, array: Array) -> str:
    try:
        return _NAMES[array.dtype]
    except KeyError:
        refuse(f"dtype of array {shown(name)}", array.dtype.str, f"one of {', '.join(DTYPES)}")


# ---------------------------------------------------------------------------- decoding


def decode(
    frames: Sequence[bytes | memoryview],
    limits: Limits = LIMITS,
    peer_name: Callable[[int], str] = "peer {}".format,
) -> Received:
    """Return what `frames` hold.

    Args:
        frames: the parts of one multipart message; memoryviews are flat bytes.
        peer_name: what to call a sender in an error.
    Returns:
        The envelope with a Message or Record whose arrays are read-only views of
        `frames`, and keep them alive.
    Raises:
        WireError: anything at all is not as this module would have written it.
            No other exception leaves this function.
    """
    if not frames:
        raise WireError("an empty multipart message: not even a header")
    if frames[0][:1] == MESSAGE_TAG:
        return _decode_message(frames, limits)
    return _decode_record(frames, limits, peer_name)


def _decode_message(frames: Sequence[Any], limits: Limits) -> Received:
    head = bytes(frames[0])
    constant, _, sequence = head.rpartition(_SEQUENCE_KEY)
    layout = _layouts.get(constant) if limits is LIMITS else None
    if layout is not None and (received := layout.received(sequence, frames)) is not None:
        return received
    header = unpack(head, limits, of_message=True)
    rows, cols, specs = header["rows"], header["cols"], header["arrays"]
    direction = _DIRECTIONS[header["dir"]]
    if direction is Direction.FORWARD:
        if specs is None:
            refuse("header field 'arrays'", None, "a list: only answers may be null")
        if cols < ADDRESS_COLUMNS:
            refuse("header field 'cols'", cols, "a return port, a slot and the state")
    check_count(frames, 2 + (_n_arrays(specs, limits) if specs is not None else 0))
    buffers = iter(frames)
    next(buffers)
    columns = view("columns", _COLUMNS, (rows, cols), next(buffers))
    payload: Payload | None = None
    if specs is not None:
        payload = view_arrays(specs, buffers, rows, limits)
    message = Message(direction, _MODES[header["mode"]], header["port"], columns, payload)
    received = Received(envelope_from(header), message)
    # Where the number's key is the last, and nothing else than the number follows it.
    if limits is LIMITS and next(reversed(header)) == "seq" and sequence == _pack(header["seq"]):
        if len(_layouts) >= _MAX_LAYOUTS:
            _layouts.clear()
        _layouts[constant] = _Layout.of(received.envelope, message)
    return received


class _Layout(NamedTuple):
    """What a message that has passed every check is made of.

    It is kept by its header up to the sequence number. One whose header differs in that
    number alone needs no other check than of the number and of its frames' sizes.

    Attributes:
        envelope: its sequence number stands for none.
        arrays: dtype, shape and bytes of the column matrix and of the payload's arrays.
        names: of the payload's arrays; None: null rows.
    """

    envelope: Envelope
    direction: Direction
    mode: Mode
    port: int
    arrays: tuple[tuple[np.dtype[Any], tuple[int, ...], int], ...]
    names: tuple[str, ...] | None

    @staticmethod
    def of(envelope: Envelope, message: Message) -> _Layout:
        payload = message.payload
        arrays = (message.columns, *(payload or {}).values())
        return _Layout(
            envelope,
            message.direction,
            message.mode,
            message.port,
            tuple((a.dtype, a.shape, a.nbytes) for a in arrays),
            None if payload is None else tuple(payload),
        )

    def received(self, sequence: bytes, frames: Sequence[Any]) -> Received | None:
        """Return what `frames` hold; None: something is wrong, and the full checks say what."""
        envelope, direction, mode, port, specs, names = self
        number = _integer(sequence)
        if not 0 <= number <= MAX_SEQUENCE or len(frames) != 1 + len(specs):
            return None
        arrays = []
        for i, (dtype, shape, n_bytes) in enumerate(specs, start=1):
            if len(frames[i]) != n_bytes:
                return None
            arrays.append(view_of(dtype, shape, frames[i]))
        run, generation, sender, incarnation, _ = envelope
        payload = None if names is None else dict(zip(names, arrays[1:], strict=True))
        return Received(
            Envelope(run, generation, sender, incarnation, number),
            Message(direction, mode, port, arrays[0], payload),
        )


_layouts: dict[bytes, _Layout] = {}
_MAX_LAYOUTS = 1024
"""Then all are forgotten: a message of a layout that comes again is checked in full."""


def _integer(packed: bytes) -> int:
    """Return the integer that `packed` is, or -1: it is none."""
    if not 0 < len(packed) <= 9:
        return -1
    try:
        number = _unpack(packed)
    except ValueError:
        return -1
    return number if type(number) is int else -1


def _decode_record(
    frames: Sequence[Any], limits: Limits, peer_name: Callable[[int], str]
) -> Received:
    header = unpack(frames[0], limits, of_message=False)
    envelope = envelope_from(header)
    try:
        record = _record(header, frames, limits)
        record.check()
    except WireError as error:
        raise error.at(f"record from {peer_name(envelope.sender)}") from error.__cause__
    return Received(envelope, record)


def _record(header: Mapping[str, Any], frames: Sequence[Any], limits: Limits) -> Record:
    verb, plain, specs = header["verb"], header["fields"], header["arrays"]
    if type(verb) is not str or verb not in Record.by_verb:
        refuse("header field 'verb'", verb, f"one of {', '.join(Record.by_verb)}")
    for key in ("fields", "arrays"):
        if type(header[key]) is not dict:
            refuse(f"{verb}: header field {key!r}", header[key], "a map")
    hints = _hints(verb)
    check_keys(f"{verb}.fields", plain, {name for name, hint in hints.items() if hint != Arrays})
    check_keys(f"{verb}.arrays", specs, {name for name, hint in hints.items() if hint == Arrays})
    check_count(frames, 1 + sum(_n_arrays(spec, limits) for spec in specs.values()))
    buffers = iter(frames)
    next(buffers)
    values: dict[str, Any] = {}
    for name, hint in hints.items():
        if hint == Arrays:
            values[name] = view_arrays(specs[name], buffers, None, limits)
        else:
            check_plain(plain[name], hint, f"{verb}.{name}", limits.items)
            values[name] = from_plain(plain[name], hint)
    return Record.by_verb[verb](**values)


def _n_arrays(specs: Any, limits: Limits) -> int:
    if type(specs) is not list or len(specs) > limits.arrays:
        refuse("header field 'arrays'", specs, f"a list of at most {limits.arrays}")
    return len(specs)


@cache
def _hints(verb: str) -> Mapping[str, Any]:
    """Return {field: annotated type} of a verb's record, in order."""
    cls = Record.by_verb[verb]
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in fields(cls)}


# ------------------------------------------------------------------------------- ports


def check_payload(
    message: Message, arrays: Mapping[str, ArraySpec], where: str, n_columns: int | None = None
) -> None:
    """Check that what `message` carries is what its port declares.

    Args:
        arrays: the port's; a forward message has all of them, an answer some.
        where: the node and port, for the error.
        n_columns: the columns that its matrix must have, where the caller knows.
    Raises:
        PayloadShapeError: names the array and both shapes.
    """
    if n_columns is not None and message.columns.shape[1] != n_columns:
        found = message.columns.shape[1]
        raise PayloadShapeError(f"{found} integer columns; declared: {n_columns}", where=where)
    payload = message.payload
    if payload is None:
        if message.direction is Direction.FORWARD:
            raise PayloadShapeError("forward rows without a payload", where=where)
        return
    for name, array in payload.items():
        spec = arrays.get(name)
        if spec is None or not spec.fits(array):
            found_spec = ArraySpec(array.shape[1:], array.dtype.name)
            declared = spec or f"only {', '.join(arrays) or 'null'}"
            what = f"array {shown(name)} is {found_spec}; declared: {declared}"
            raise PayloadShapeError(what, where=where)
    if message.direction is Direction.FORWARD and len(payload) < len(arrays):
        missing = ", ".join(name for name in arrays if name not in payload)
        raise PayloadShapeError(f"array {missing} is missing", where=where)
