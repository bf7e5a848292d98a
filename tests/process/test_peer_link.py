"""One end of the protocol on real sockets: what cannot be sent leaves no gap."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from runs import wait_until

from amp_runtime.errors import MessagesLostError, WireError
from amp_runtime.nodes.statistics import WorkerReport
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.sockets import shared_memory
from amp_runtime.sockets.directory import SocketDirectory
from amp_runtime.sockets.peer_link import PeerLink
from amp_runtime.sockets.shared_memory import SharedRings
from amp_runtime.sockets.transport import Endpoint
from amp_runtime.wire.codec import encode_message
from amp_runtime.wire.elsewhere import Elsewhere, pack
from amp_runtime.wire.ledger import Lane
from amp_runtime.wire.protocol import CONTROLLER, Link, Linked, Reset, Status, Stop

pytestmark = pytest.mark.process
RUN = "0" * 32


def rows(n_payload: int) -> Message:
    """Return two rows with a payload for `n_payload`."""
    payload = {"x": np.zeros((n_payload, 3), np.float32)}
    return Message(Direction.FORWARD, Mode.TRAIN, 0, np.zeros((2, 3), np.int32), payload)


def test_what_cannot_be_sent_is_refused_and_the_next_message_has_its_number():
    directory = SocketDirectory.create(n_peers=2)
    try:
        with Endpoint(directory, 1) as sender, Endpoint(directory, 2) as receiver:
            sender.connect(2)
            sender.wait_linked(10)
            ours, theirs = PeerLink(sender, RUN, {2: 0}), PeerLink(receiver, RUN, {1: 0})
            with pytest.raises(WireError):
                ours.send_record(2, Status(0, WorkerReport({}, live_structures=np.int64(1))))
            with pytest.raises(WireError):
                ours.send_message(2, rows(n_payload=1))
            ours.send_record(2, Linked(0))
            ours.send_message(2, rows(n_payload=2))
            for lane in (Lane.CONTROL, Lane.FORWARD):
                got = []
                while not got:
                    assert receiver.poll(10).lanes
                    got = list(theirs.receive(lane, 1))
                assert got[0].envelope.sequence == 0
            sent, received = ours.channels.counts()["sent"], theirs.channels.counts()["received"]
            assert [counts[1:] for counts in sent] == [counts[1:] for counts in received]
            assert sent == [(2, "control", 1, 0), (2, "forward", 1, 2)]
    finally:
        directory.remove()


def test_a_reset_begins_a_generation_and_what_is_of_another_is_dropped_and_counted():
    directory = SocketDirectory.create(n_peers=2)
    try:
        with Endpoint(directory, CONTROLLER) as sender, Endpoint(directory, 2) as receiver:
            sender.connect(2)
            sender.wait_linked(10)
            ours, theirs = PeerLink(sender, RUN, {2: 0}), PeerLink(receiver, RUN, {CONTROLLER: 0})
            ours.send_message(2, rows(n_payload=2))
            ours.advance(4, {2: 0})
            ours.send_message(2, rows(n_payload=2))  # of a generation that is still to come
            wait_until(lambda: Lane.FORWARD in receiver.poll(0).lanes, "rows")
            wait_until(lambda: not list(theirs.receive(Lane.FORWARD, 1)), "the first, dropped")
            ours.send_record(2, Reset())
            ours.send_record(2, Link([0, 0]))
            got = []
            while len(got) < 2:
                assert receiver.poll(10).lanes
                got += theirs.receive(Lane.CONTROL, 2)
            assert [type(received.body) for received in got] == [Reset, Link]
            assert theirs.channels.generation == 4
    finally:
        directory.remove()


def test_what_waits_to_be_sent_is_forgotten_when_a_generation_begins():
    directory = SocketDirectory.create(n_peers=2)
    try:
        with Endpoint(directory, CONTROLLER) as sender:
            sender.connect(2)
            ours = PeerLink(sender, RUN, {2: 0})
            ours.send_record(2, Reset())
            assert sender.outbox_messages == 1
            ours.advance(1, {2: 0})
            assert sender.outbox_messages == 0
            ours.send_record(2, Reset())
            with Endpoint(directory, 2) as receiver:
                sender.wait_linked(10)
                theirs = PeerLink(receiver, RUN, {CONTROLLER: 0})
                assert receiver.poll(10).lanes
                (received,) = theirs.receive(Lane.CONTROL, 9)
                assert received.envelope[1:] == (1, CONTROLLER, 0, 0)
    finally:
        directory.remove()


def test_a_gap_is_told_as_lost_messages():
    directory = SocketDirectory.create(n_peers=2)
    try:
        with Endpoint(directory, 1) as sender, Endpoint(directory, 2) as receiver:
            sender.connect(2)
            sender.wait_linked(10)
            ours, theirs = PeerLink(sender, RUN, {2: 0}), PeerLink(receiver, RUN, {1: 0})
            ours.channels.stamp(2, Lane.FORWARD, 2)  # never sent
            ours.send_message(2, rows(n_payload=2))
            assert receiver.poll(10).lanes
            with pytest.raises(MessagesLostError, match="message 1 came, 0 is next"):
                list(theirs.receive(Lane.FORWARD, 1))
    finally:
        directory.remove()


def test_a_record_that_its_sender_may_not_send_is_refused_by_name():
    directory = SocketDirectory.create(n_peers=2)
    try:
        with Endpoint(directory, 1) as sender, Endpoint(directory, 2) as receiver:
            sender.connect(2)
            sender.wait_linked(10)
            ours = PeerLink(sender, RUN, {2: 0})
            theirs = PeerLink(receiver, RUN, {1: 0}, {1: "worker 'one'"}.__getitem__)
            for record, said in (
                (Linked(5), "linked.worker is 5; it must be 0, the sender's"),
                (Stop(""), "record 'stop', which is the controller's to send"),
            ):
                ours.send_record(2, record)
                assert receiver.poll(10).lanes
                with pytest.raises(WireError, match=f"^from worker 'one': {said}"):
                    list(theirs.receive(Lane.CONTROL, 1))
    finally:
        directory.remove()


class Joined(NamedTuple):
    """The controller and worker 2, linked, with shared memory from the one to the other."""

    ours: PeerLink
    theirs: PeerLink
    rings: list[SharedRings]


@pytest.fixture
def joined() -> Iterator[Joined]:
    directory, channels = SocketDirectory.create(n_peers=2), [(CONTROLLER, 2, Lane.FORWARD)]
    fd = shared_memory.create(1)
    rings = [SharedRings(fd, channels, peer) for peer in (CONTROLLER, 2)]
    try:
        with Endpoint(directory, CONTROLLER) as sender, Endpoint(directory, 2) as receiver:
            sender.connect(2)
            sender.wait_linked(10)
            ours = PeerLink(sender, RUN, {2: 0}, rings=rings[0])
            yield Joined(ours, PeerLink(receiver, RUN, {CONTROLLER: 0}, rings=rings[1]), rings)
    finally:
        for each in rings:
            each.close()
        os.close(fd)
        directory.remove()


def test_arrays_pass_through_shared_memory_and_what_has_no_room_there_through_the_socket(joined):
    ours, theirs, _ = joined
    sizes = [2, 4000, 60_000, 300_000, 5000, 7]

    def message(n: int) -> Message:
        payload = {"x": np.arange(3 * n, dtype=np.float32).reshape(3, n).T}  # not contiguous
        return Message(Direction.FORWARD, Mode.TRAIN, 0, np.full((n, 3), n, np.int32), payload)

    ours.send_message(2, message(4000))  # of a generation that ends before it came
    ours.advance(1, {2: 0})
    theirs.advance(1, {CONTROLLER: 0})
    for n in sizes:
        ours.send_message(2, message(n))
    got: list[Message] = []
    while len(got) < len(sizes):
        assert Lane.FORWARD in theirs.endpoint.poll(10).lanes
        got += [received.body for received in theirs.receive(Lane.FORWARD, 99)]
    for n, found in zip(sizes, got, strict=True):
        assert (found.columns == message(n).columns).all()
        assert (found.payload["x"] == message(n).payload["x"]).all()
    assert theirs.channels.counts()["dropped"] == {"stale_generation": 1}
    # All but the smallest and the largest: of these only headers went.
    assert ours.endpoint.bytes_sent < 300_000 * 24 + 10_000
    ours.send_message(2, message(4000))
    alone = PeerLink(theirs.endpoint, RUN, {CONTROLLER: 0}, generation=1)
    assert theirs.endpoint.poll(10).lanes
    with pytest.raises(WireError, match="shared memory, which this process has none of"):
        list(alone.receive(Lane.FORWARD, 1))


def test_a_header_that_contradicts_where_its_arrays_are_is_refused(joined):
    ours, theirs, rings = joined
    ours.channels.generation = 3
    message = Message(Direction.FORWARD, Mode.TRAIN, 0, np.zeros((999, 3), np.int32), {})
    header, *arrays = encode_message(ours.channels.stamp(2, Lane.FORWARD, 999), message)
    position, sizes = rings[0].put(2, Lane.FORWARD, arrays)
    frame = pack(Elsewhere(0, 0, position, sizes, header))
    ours.endpoint.send(2, Lane.FORWARD, [frame])
    assert theirs.endpoint.poll(10).lanes
    with pytest.raises(WireError, match=r"generation 0 .*header of generation 3"):
        list(theirs.receive(Lane.FORWARD, 1))
