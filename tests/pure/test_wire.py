"""The wire format: what goes in comes out, and what a port did not declare is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from wire_frames import ENVELOPE, RECORDS, RUN, as_bytes, forward, frames_of, same_message

from amp_runtime.errors import PayloadShapeError, WireError
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.rows.spec import DTYPES, ArraySpec
from amp_runtime.wire.codec import check_payload, decode, encode_message, encode_record
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.protocol import Acknowledged, Parameters

# ------------------------------------------------------------------------- round trips


@st.composite
def messages(draw: st.DrawFn) -> Message:
    rows, cols = draw(st.integers(1, 5)), draw(st.integers(2, 6))
    ints = st.integers(-(2**31), 2**31 - 1)
    columns = draw(hnp.arrays(np.int32, (rows, cols), elements=ints))
    direction = draw(st.sampled_from(Direction))
    payload = {}
    for name in draw(st.lists(st.text(min_size=1, max_size=9), unique=True, max_size=3)):
        shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=3)))
        payload[name] = draw(hnp.arrays(draw(st.sampled_from(list(DTYPES.values()))), shape))
    null = direction is Direction.BACKWARD and draw(st.booleans())
    port = draw(st.integers(0, 2**31 - 1))
    return Message(direction, draw(st.sampled_from(Mode)), port, columns, None if null else payload)


@given(messages(), st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1))
def test_every_message_comes_back_to_the_bit(message, generation, sequence):
    envelope = Envelope(RUN, generation, 65535, 2, sequence)
    received = decode(as_bytes(encode_message(envelope, message)))
    assert received.envelope == envelope
    assert same_message(received.body, message)
    assert type(received.body.direction) is Direction
    assert type(received.body.mode) is Mode


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.verb)
def test_every_record_comes_back_equal(record):
    received = decode(as_bytes(encode_record(ENVELOPE, record)))
    assert received.body == record
    assert received.envelope == ENVELOPE


def test_arrays_of_a_record_keep_names_shapes_and_scalars():
    arrays = {
        "w": np.arange(6.0).reshape(2, 3),
        "step": np.array(5, np.int32),
        "none": np.zeros((0, 4), np.float32),
    }
    body = decode(as_bytes(encode_record(ENVELOPE, Parameters(1, "linear-1", arrays)))).body
    assert isinstance(body, Parameters)
    assert list(body.arrays) == ["w", "step", "none"]
    assert body.arrays["w"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert body.arrays["step"].shape == ()
    assert int(body.arrays["step"]) == 5
    assert body.arrays["none"].shape == (0, 4)


def test_contiguous_arrays_are_sent_without_a_copy_and_others_as_their_copy():
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    message = forward({"x": x, "strided": x[:, ::2]})
    frames = encode_message(ENVELOPE, message)
    assert frames[1] is message.columns
    assert frames[2] is x
    assert frames[3].tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_received_arrays_are_read_only_views_of_the_frames(wrap):
    frames = [wrap(frame) for frame in frames_of()]
    body = decode(frames).body
    x = body.payload["x"]
    assert np.shares_memory(x, np.frombuffer(frames[2], np.float32))
    with pytest.raises(ValueError, match="read-only"):
        x[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        body.columns[0, 0] = 1


# ------------------------------------------------------------- what we refuse to send


@pytest.mark.parametrize(
    ("payload", "match"),
    [
        ({"x": np.zeros((3, 1), np.float32)}, "rows"),
        ({"x": np.float32(1.0).reshape(())}, "rows"),
        ({"x": np.zeros((2, 1), ">f4")}, "dtype.*>f4"),
        ({"x": np.zeros((2, 1), object)}, "dtype.*O"),
        ({"x": np.zeros((2, 1), np.int64)}, "dtype.*int32, float32, float64"),
    ],
)
def test_an_array_that_does_not_fit_is_not_sent(payload, match):
    with pytest.raises(WireError, match=match):
        encode_message(ENVELOPE, forward(payload))


def test_a_message_without_rows_is_not_sent():
    with pytest.raises(WireError, match="columns"):
        encode_message(ENVELOPE, forward({}, rows=0))


@pytest.mark.parametrize(
    ("report", "match"),
    [
        ({"loss": np.float64(0.5)}, "acknowledged.report.loss"),
        ({"rows": np.int64(5)}, "acknowledged.report.rows"),
        ({"a": {"b": [1, (2, 3)]}}, r"acknowledged.report.a.b\[1\]"),
        ({1: 2}, "key of acknowledged.report"),
        ({"big": 2**63}, "64-bit"),
        ({"bad": "\ud800"}, "packed"),
        ({"n": list(range(5000))}, "5000.*4096"),
        ({str(i): "x" * 1000 for i in range(2000)}, "record"),
    ],
)
def test_a_report_that_is_not_plain_or_too_large_is_not_sent(report, match):
    with pytest.raises(WireError, match=match):
        encode_record(ENVELOPE, Acknowledged(0, 0, report))


# ------------------------------------------------------------------------------- ports


SPECS = {"x": ArraySpec((3,), "float32"), "h": ArraySpec((2,), "float64")}


def payload(**changes: Any) -> dict[str, Any]:
    arrays = {"x": np.zeros((2, 3), np.float32), "h": np.zeros((2, 2), np.float64)}
    return {name: a for name, a in (arrays | changes).items() if a is not None}


def backward(payload: Any) -> Message:
    return Message(Direction.BACKWARD, Mode.TRAIN, 7, np.zeros((2, 1), np.int32), payload)


def test_a_payload_as_declared_passes():
    check_payload(forward(payload()), SPECS, "linear-1.x", n_columns=4)
    check_payload(forward({}), {}, "linear-1.key")
    for answer in (None, {}, payload(), payload(h=None)):
        check_payload(backward(answer), SPECS, "linear-1.x", n_columns=1)


@pytest.mark.parametrize(
    ("message", "match"),
    [
        (forward(payload(x=np.zeros((2, 4), np.float32))), r"'x' is float32\[rows, 4\].*rows, 3"),
        (forward(payload(x=np.zeros((2, 3), np.float64))), r"'x' is float64.*float32"),
        (forward(payload(h=None)), "array h is missing"),
        (forward(payload(c=np.zeros((2, 1), np.float32))), "'c' is .*only x, h"),
        (backward(payload(c=np.zeros((2, 1), np.float32))), "'c' is .*only x, h"),
        (backward(payload(h=np.zeros((2, 3), np.float64))), r"rows, 3\].*rows, 2\]"),
        (Message(Direction.FORWARD, Mode.TRAIN, 7, np.zeros((2, 4), np.int32), None), "without"),
    ],
)
def test_a_payload_other_than_declared_is_refused_with_place_and_both_shapes(message, match):
    with pytest.raises(PayloadShapeError, match=f"linear-1.x: .*{match}"):
        check_payload(message, SPECS, "linear-1.x")


def test_a_matrix_with_other_columns_than_the_schema_is_refused():
    with pytest.raises(PayloadShapeError, match=r"linear-1\.x: 4 integer columns; declared: 5"):
        check_payload(forward(payload()), SPECS, "linear-1.x", n_columns=5)
