"""Small frames travel as one and come apart again; a table that lies is refused."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_frames import ENVELOPE, RECORDS, as_bytes, body_or_words, forward, frames_of, same_message

from amp_runtime.errors import WireError
from amp_runtime.wire.codec import LIMITS, Limits, decode, encode_message, encode_record
from amp_runtime.wire.joined import JOINED_BYTES, join, split


@given(st.lists(st.binary(max_size=40), min_size=2, max_size=6))
def test_frames_come_apart_as_they_were(frames):
    (joined,) = join(frames)
    assert [bytes(frame) for frame in split([joined])] == frames


def test_a_message_is_one_frame_and_its_arrays_are_aligned_views_of_it():
    message = forward({"x": np.ones((2, 3), np.float32), "h": np.arange(4.0).reshape(2, 2)})
    (joined,) = join(encode_message(ENVELOPE, message))
    body = decode(split([joined])).body
    assert same_message(body, message)
    for array in (body.columns, *body.payload.values()):
        assert array.flags.aligned
        assert not array.flags.writeable
        assert np.shares_memory(array, np.frombuffer(joined, np.uint8))


def test_large_messages_and_single_frames_go_as_they_are():
    large = encode_message(ENVELOPE, forward({"x": np.zeros((2, JOINED_BYTES // 8), np.float32)}))
    alone = encode_record(ENVELOPE, RECORDS[1])
    for frames in (large, alone):
        assert join(frames) is frames
        assert split(as_bytes(frames)) == as_bytes(frames)


def test_every_truncation_and_every_byte_too_many_is_refused():
    (joined,) = join(frames_of())
    for n in range(1, len(joined)):
        with pytest.raises(WireError, match="joined frame"):
            split([joined[:n]])
    with pytest.raises(WireError, match=f"is {len(joined) + 1}; it must be {len(joined)} bytes"):
        split([joined + b"\0"])


@pytest.mark.parametrize(
    "table",
    [
        struct.pack("<BBH", 0xC1, 0, 0),
        struct.pack("<BBH", 0xC1, 0, 1) + struct.pack("<I", 0),
        struct.pack("<BBH", 0xC1, 1, 2) + struct.pack("<2I", 0, 0),
        struct.pack("<BBH", 0xC1, 0, 65535),
        struct.pack("<BBH", 0xC1, 0, 2) + struct.pack("<2I", 2**32 - 1, 2**32 - 1),
    ],
)
def test_a_table_that_lies_is_refused(table):
    with pytest.raises(WireError, match="joined frame"):
        split([table])


def test_a_joined_frame_among_others_is_no_header():
    (joined,) = join(frames_of())
    for frames in ([joined, b""], [joined, joined]):
        with pytest.raises(WireError, match="header"):
            decode(split(frames))


@given(st.data())
def test_a_layout_that_is_known_is_decoded_and_refused_as_one_that_is_not(data):
    """Messages of known layouts take a shorter way, but with the limits of this module only."""
    payload = data.draw(st.sampled_from([None, {}, {"£seq\x05": np.ones((2, 1), np.float32)}]))
    frames = frames_of(forward(payload))
    assert not isinstance(body_or_words(frames), str)
    spoilt = [bytearray(frame) for frame in frames]
    for _ in range(data.draw(st.integers(0, 2))):
        spoilt[0][data.draw(st.integers(0, len(frames[0]) - 1))] = data.draw(st.integers(0, 255))
    for i, cut in enumerate(data.draw(st.lists(st.integers(0, 3), max_size=3))):
        spoilt[i % len(spoilt)] = spoilt[i % len(spoilt)][: len(spoilt[i % len(spoilt)]) - cut]
    outcomes = []
    for limits in (LIMITS, Limits()):
        try:
            outcomes.append(decode([bytes(frame) for frame in spoilt], limits))
        except WireError as error:
            outcomes.append(str(error))
    known, checked = outcomes
    if isinstance(checked, str):
        assert known == checked
    else:
        assert known.envelope == checked.envelope
        assert same_message(known.body, checked.body)


@pytest.mark.parametrize("sequence", [0, 1, 127, 128, 2**16, 2**32, 2**63 - 1])
def test_a_known_layout_tells_every_sequence_number(sequence):
    for envelope in (ENVELOPE, ENVELOPE._replace(sequence=sequence)):
        frames = as_bytes(encode_message(envelope, forward()))
        assert decode(frames).envelope == envelope
        assert decode(frames, Limits()).envelope == envelope
