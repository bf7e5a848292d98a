"""Frames of messages and records, whole and spoilt, for the tests of the wire."""

from typing import Any

import msgpack
import numpy as np
import pytest

from amp_runtime.errors import WireError
from amp_runtime.nodes.statistics import (
    ChannelCount,
    MetricSum,
    NodeReport,
    ProcessFacts,
    WorkerReport,
)
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.wire.codec import LIMITS, Limits, decode, encode_message
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.protocol import (
    Acknowledged,
    AskShare,
    Barrier,
    Fault,
    Hello,
    Link,
    Record,
    Reset,
    Stop,
)

RUN = "0123456789abcdef" * 2
ENVELOPE = Envelope(RUN, 1, 3, 0, 12)


def as_bytes(frames: list[Any]) -> list[bytes]:
    """Return what arrives when `frames` are sent."""
    return [bytes(f) if isinstance(f, bytes) else f.tobytes() for f in frames]


def forward(payload: Any = None, rows: int = 2, cols: int = 4) -> Message:
    columns = np.arange(rows * cols, dtype=np.int32).reshape(rows, cols)
    if payload is None:
        payload = {"x": np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)}
    return Message(Direction.FORWARD, Mode.TRAIN, 7, columns, payload)


def frames_of(message: Message | None = None) -> list[bytes]:
    return as_bytes(encode_message(ENVELOPE, message or forward()))


def edited(frames: list[bytes], drop: str = "", **entries: Any) -> list[bytes]:
    """Return `frames` with other entries in the header ("from" is a keyword: `from_`)."""
    header = msgpack.unpackb(frames[0])
    header |= {key.rstrip("_"): value for key, value in entries.items()}
    header.pop(drop, None)
    return [msgpack.packb(header), *frames[1:]]


def refused(frames: list[Any], match: str | None = None, limits: Limits | None = None) -> str:
    """Assert that `frames` are refused in words fit for a log; return the words."""
    with pytest.raises(WireError, match=match) as caught:
        decode(frames, limits or LIMITS)
    words = str(caught.value)
    assert len(words) < 600
    assert words.isascii()
    assert words.isprintable()
    return words


def body_or_words(frames: list[bytes]) -> Message | Record | str:
    """Return what `frames` hold, or the words of their WireError."""
    try:
        return decode(frames).body
    except WireError as error:
        return str(error)


def same_message(one: Message, two: Message) -> bool:
    return (
        one.merge_key == two.merge_key
        and one.columns.tobytes() == two.columns.tobytes()
        and one.columns.shape == two.columns.shape
        and (one.payload is None) == (two.payload is None)
        and all(
            a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            for a, b in zip((one.payload or {}).values(), (two.payload or {}).values(), strict=True)
        )
    )


REPORT = WorkerReport(
    {"linear-1": NodeReport(3, busy_s=0.5, metrics={"train": {"loss": MetricSum(0.25, 0)}})},
    ProcessFacts({"sent": [ChannelCount(1, "forward", 2, 3)], "dropped": {"gap": 1}}),
)
RECORDS = [
    Hello(2, 4711, [0, 2], 1, "openblas-haswell", 1 << 40),
    Link([0, 3]),
    Stop("done \x1b[31m"),
    Barrier(2, True, 100, False),
    Barrier(3, apply_left_over=True, share=True, resume=True),
    AskShare("cell.1"),
    Reset(),
    Acknowledged(2, 2, REPORT),
    Fault(2, "linear-1", {"code": "AMP-E404", "what": "é", "where": "", "fix": ""}, "Traceback"),
]
