"""Rings in shared memory: what was put in comes out whole, in order, or goes another way."""

from __future__ import annotations

import os
import resource
import signal
from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.errors import WireError
from amp_runtime.sockets import shared_memory
from amp_runtime.sockets.shared_memory import LEAST_BYTES, RING_BYTES, SharedRings
from amp_runtime.wire.elsewhere import Elsewhere, pack, unpack
from amp_runtime.wire.ledger import Lane

CHANNELS = [(0, 1, Lane.FORWARD), (1, 2, Lane.FORWARD), (2, 1, Lane.BACKWARD)]
KIB = 1024


class Two:
    """Workers 1 and 2 of a run, as they would be in two processes."""

    def __init__(self) -> None:
        self.fd = shared_memory.create(len(CHANNELS))
        self.one, self.two = (SharedRings(self.fd, CHANNELS, peer) for peer in (1, 2))

    def close(self) -> None:
        self.one.close()
        self.two.close()
        os.close(self.fd)


@pytest.fixture
def rings() -> Iterator[Two]:
    made = Two()
    yield made
    made.close()


def block(n_bytes: int, value: int = 1) -> np.ndarray:
    return np.full(n_bytes, value, np.uint8)


def test_arrays_of_any_layout_come_out_as_they_are(rings):
    whole = np.arange(6000, dtype=np.float32).reshape(50, 120)
    columns = np.arange(150, dtype=np.int32).reshape(50, 3)
    sent = [columns, whole, whole[:, 7:20], whole.T, columns[:, :1], np.zeros((50, 0))]
    position, sizes = rings.one.put(2, Lane.FORWARD, sent)
    assert sizes == [array.nbytes for array in sent]
    taken = rings.two.take(1, Lane.FORWARD, position, sizes, release=True)
    for array, data in zip(sent, taken, strict=True):
        assert bytes(data) == array.tobytes()
        assert np.frombuffer(data, np.uint8).ctypes.data % 8 == 0 or not array.size


@pytest.mark.parametrize("n_bytes", [LEAST_BYTES - 64, RING_BYTES + 1])
def test_what_is_too_little_or_too_much_goes_another_way(rings, n_bytes):
    assert rings.one.put(2, Lane.FORWARD, [block(n_bytes)]) is None
    assert rings.one.put(2, Lane.BACKWARD, [block(LEAST_BYTES)]) is None  # no such channel


def test_a_full_ring_takes_no_more_until_something_was_taken_from_it(rings):
    first = rings.one.put(2, Lane.FORWARD, [block(RING_BYTES // 2, 1)])
    second = rings.one.put(2, Lane.FORWARD, [block(RING_BYTES // 2, 2)])
    assert rings.one.put(2, Lane.FORWARD, [block(LEAST_BYTES, 3)]) is None
    assert set(rings.two.take(1, Lane.FORWARD, *first, release=True)[0]) == {1}
    third = rings.one.put(2, Lane.FORWARD, [block(LEAST_BYTES, 3)])
    for value, put in ((2, second), (3, third)):
        assert set(rings.two.take(1, Lane.FORWARD, *put, release=True)[0]) == {value}


def test_an_empty_ring_is_filled_from_its_start(rings):
    for _ in range(3):
        position, sizes = rings.one.put(2, Lane.FORWARD, [block(300 * KIB)])
        assert position % RING_BYTES == 0
        rings.two.take(1, Lane.FORWARD, position, sizes, release=True)


@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(0, 700 * KIB), min_size=1, max_size=3),  # put; else take
            st.none(),
        ),
        max_size=60,
    )
)
def test_whatever_is_put_and_taken_nothing_is_overwritten_before_it_is_taken(steps):
    rings, under_way, value = Two(), deque(), 0
    try:
        for sizes in steps:
            if sizes is None:
                if under_way:
                    expected, put = under_way.popleft()
                    taken = rings.two.take(1, Lane.FORWARD, *put, release=True)
                    assert_equal(taken, expected)
                continue
            value += 1
            arrays = [block(n, value % 251) for n in sizes]
            put = rings.one.put(2, Lane.FORWARD, arrays)
            if put is None:
                total = sum(sizes)
                assert total < LEAST_BYTES or under_way or total > RING_BYTES - 64 * len(sizes)
            else:
                under_way.append((arrays, put))
        for expected, put in under_way:
            taken = rings.two.take(1, Lane.FORWARD, *put, release=True)
            assert_equal(taken, expected)
    finally:
        rings.close()


def assert_equal(taken: list[memoryview], expected: list[np.ndarray]) -> None:
    assert [bytes(data) for data in taken] == [array.tobytes() for array in expected]


def test_a_generation_begins_with_empty_rings_whatever_was_in_them(rings):
    old = rings.one.put(2, Lane.FORWARD, [block(RING_BYTES // 2)])
    rings.one.put(2, Lane.FORWARD, [block(RING_BYTES // 2)])
    for of in (rings.two, rings.one):
        of.begin_generation()
    # Of the one before a frame may still come: it is read, and gives back no room.
    assert len(rings.two.take(1, Lane.FORWARD, *old, release=False)[0]) == RING_BYTES // 2
    put = [rings.one.put(2, Lane.FORWARD, [block(RING_BYTES // 2, n)]) for n in (5, 6)]
    assert rings.one.put(2, Lane.FORWARD, [block(LEAST_BYTES)]) is None
    for value, where in zip((5, 6), put, strict=True):
        assert set(rings.two.take(1, Lane.FORWARD, *where, release=True)[0]) == {value}


@pytest.mark.parametrize(
    ("sender", "position", "sizes"),
    [(3, 0, [64]), (2, 0, [64]), (1, 0, [RING_BYTES + 1]), (1, RING_BYTES - 64, [65])],
)
def test_what_is_in_no_ring_is_refused(rings, sender, position, sizes):
    with pytest.raises(WireError, match="arrays in shared memory"):
        rings.two.take(sender, Lane.FORWARD, position, sizes, release=True)


@pytest.mark.parametrize("position", [0, 5 * RING_BYTES, 2**64 - RING_BYTES])
def test_a_position_that_no_sender_could_have_come_to_is_refused(rings, position):
    for _ in range(2):
        put = rings.one.put(2, Lane.FORWARD, [block(RING_BYTES)])
        rings.two.take(1, Lane.FORWARD, *put, release=True)
    with pytest.raises(WireError, match="position in shared memory"):
        rings.two.take(1, Lane.FORWARD, position, [64], release=True)
    assert rings.one.put(2, Lane.FORWARD, [block(RING_BYTES)]) is not None  # nothing was released


def test_memory_that_a_limit_forbids_leaves_no_descriptor():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before, handler = os.listdir("/proc/self/fd"), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            shared_memory.create(3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert len(os.listdir("/proc/self/fd")) == len(before)


# -------------------------------------------------------------------------- the frame


WHERE = Elsewhere(3, 7, 1 << 40, (12, 0, 4096), b"\x8bheader")


def test_a_frame_says_where_the_arrays_are():
    assert unpack([pack(WHERE)]) == WHERE


@pytest.mark.parametrize(
    "frames", [[b""], [b"\xc1"], [b"\xc1\0\2\0"], [b"\x8b"], [pack(WHERE), b""]]
)
def test_other_frames_are_left_to_others(frames):
    assert unpack(frames) is None


@given(st.integers(2, 35))
def test_a_frame_that_was_cut_short_is_refused(n):
    with pytest.raises(WireError, match="without arrays"):
        unpack([pack(WHERE)[:n]])


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_our_error(rest):
    try:
        found = unpack([b"\xc1\x01" + rest])
    except WireError:
        return
    assert found is not None
    assert pack(found) == b"\xc1\x01" + rest
