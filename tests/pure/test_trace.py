"""Events as bytes, the file of a trace, and the queues that hand out recorded batches."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amp_runtime.errors import OutputError, TraceError
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.trace.events import (
    Batch,
    End,
    Updated,
    identities,
    pack_batch,
    pack_end,
    pack_record,
    pack_updated,
    unpack,
)
from amp_runtime.trace.file import TraceReader, TraceWriter
from amp_runtime.trace.replay_queues import ReplayQueues
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.protocol import Barrier, SetParameters

RUN = "0123456789abcdef" * 2


def down(*states: tuple[int, ...], port: int = 3, first: float = 0.0) -> Message:
    """Return forward rows with `states`, whose payloads are numbered from `first` on."""
    addresses = np.full((len(states), 2), 9, np.int32)
    columns = np.concatenate([addresses, np.array(states, np.int32)], axis=1)
    payload = {"x": np.arange(first, first + len(states))}
    return Message(Direction.FORWARD, Mode.TRAIN, port, columns, payload)


def up(*slots: int, port: int = 5, null: bool = False) -> Message:
    columns = np.array(slots, np.int32)[:, np.newaxis]
    payload = None if null else {"y": columns.astype(np.float64)}
    return Message(Direction.BACKWARD, Mode.EVALUATE, port, columns, payload)


def taken(message: Message) -> Batch:
    """Return the event of `message`, taken as one batch."""
    (event,) = unpack(pack_batch(message))
    assert isinstance(event, Batch)
    return event


def record(value: Any) -> bytes:
    return pack_record(Envelope(RUN, 0, 0, 0, 7), value)


EVENTS = (
    pack_batch(down((1, 2), (3, -4), (5, 6))),
    record(Barrier(3, reset_metrics=True, epoch=2)),
    pack_batch(up(8, 1 << 30)),
    record(SetParameters("linear", {"weight": np.arange(6.0).reshape(2, 3)})),
    pack_updated(2, 1, np.array([5, 0, 3, 0, 0, 1])),
    pack_updated(70_000, 3, np.array([0])),
    pack_end(6),
)

# ------------------------------------------------------------------------------- events


def test_events_come_back_as_they_were_several_in_a_block():
    first, barrier, second, parameters, updated, moved, end = unpack(b"".join(EVENTS))
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)
    assert (first.direction, first.mode, first.port) == (Direction.FORWARD, Mode.TRAIN, 3)
    assert first.identities.tolist() == [[1, 2], [3, -4], [5, 6]]
    assert (second.direction, second.mode, second.port) == (Direction.BACKWARD, Mode.EVALUATE, 5)
    assert second.identities.tolist() == [[8], [1 << 30]]
    assert barrier == Barrier(3, reset_metrics=True, epoch=2)
    assert isinstance(parameters, SetParameters)
    assert parameters.arrays["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert isinstance(updated, Updated)
    assert isinstance(moved, Updated)
    assert (updated.node, updated.versions) == (2, 1)
    assert (updated.staleness.tolist(), updated.rows.tolist()) == ([0, 2, 5], [5, 3, 1])
    assert (moved.node, moved.versions, len(moved.rows)) == (70_000, 3, 0)
    assert end == End(6)


def test_a_row_is_told_by_its_state_and_an_answer_by_its_slot_and_by_nothing_else():
    assert identities(down((1, 2))).tolist() == [[1, 2]]
    verified = Message(Direction.BACKWARD, Mode.TRAIN, 0, np.array([[4, 7, 7]], np.int32), None)
    assert identities(verified).tolist() == [[4]]


def test_garbled_events_are_refused_by_one_error_and_never_by_another():
    generator, whole = random.Random(5), b"".join(EVENTS)
    refused = 0
    for _ in range(1000):
        block = bytearray(whole)
        for _ in range(generator.randint(1, 3)):
            block[generator.randrange(len(block))] = generator.randrange(256)
        try:
            list(unpack(bytes(block[: generator.randint(1, len(block))])))
        except TraceError:
            refused += 1
    assert refused > 300


def test_an_event_that_is_cut_says_how_much_is_missing():
    with pytest.raises(TraceError, match="an event of 24 bytes more, but 23 are left"):
        list(unpack(EVENTS[0][:-1]))


# -------------------------------------------------------------------------------- files


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A whole trace of three events, in two blocks."""
    writer = TraceWriter(tmp_path / "linear", RUN, "linear")
    writer.add(EVENTS[0])
    writer.flush()
    writer.add(EVENTS[1])
    writer.end()
    return writer.path


def test_a_trace_is_read_as_it_was_written(trace):
    batch, barrier, end = TraceReader(trace, RUN, "linear")
    assert isinstance(batch, Batch)
    assert batch.identities.shape == (3, 2)
    assert (barrier, end) == (Barrier(3, reset_metrics=True, epoch=2), End(2))


def test_what_was_added_is_in_the_file_after_a_flush(tmp_path):
    writer = TraceWriter(tmp_path / "linear", RUN, "linear")
    writer.add(EVENTS[0])
    before = writer.path.stat().st_size
    writer.flush()
    assert writer.path.stat().st_size > before
    events = iter(TraceReader(writer.path, RUN, "linear"))
    assert isinstance(next(events), Batch)
    with pytest.raises(TraceError, match="linear, event 2: the trace ends here, expected"):
        next(events)
    writer.close()


def test_a_trace_cut_anywhere_is_refused_with_file_and_event(trace):
    content = trace.read_bytes()
    for size in range(len(content)):
        trace.write_bytes(content[:size])
        with pytest.raises(TraceError, match=r"linear(: it begins|, event [12]: ).*expected|cut"):
            list(TraceReader(trace, RUN, "linear"))


def test_a_trace_with_any_other_byte_is_refused(trace):
    content = trace.read_bytes()
    for at in range(len(content)):
        if content[at : at + 1] in b" \n{" and at < content.index(b"\n"):
            continue  # of the header, which may be written in other ways
        trace.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(TraceError, match="linear"):
            list(TraceReader(trace, RUN, "linear"))


def test_a_trace_that_goes_on_behind_its_end_or_counts_wrongly_is_refused(trace, tmp_path):
    whole = trace.read_bytes()
    blocks = whole[whole.index(b"\n") + 1 :]
    trace.write_bytes(whole + blocks)
    with pytest.raises(TraceError, match="linear, event 4: it goes on behind its end"):
        list(TraceReader(trace, RUN, "linear"))
    writer = TraceWriter(tmp_path / "wrong", RUN, "linear")
    writer.add(EVENTS[-1])
    writer.flush()
    writer.close()
    with pytest.raises(TraceError, match="event 1: its end says 6 events, but 0 went before"):
        list(TraceReader(writer.path, RUN, "linear"))


@pytest.mark.parametrize(
    ("run", "worker", "said"),
    [
        ("f" * 32, "linear", f"a trace of run '{RUN}', expected '{'f' * 32}'"),
        (RUN, "loss", "a trace of worker 'linear', expected 'loss'"),
    ],
)
def test_anothers_trace_is_refused(trace, run, worker, said):
    with pytest.raises(TraceError, match=said):
        TraceReader(trace, run, worker)


def test_a_file_that_is_no_trace_of_this_format_or_is_missing_is_refused(trace, tmp_path):
    with pytest.raises(TraceError, match=r"nowhere: cannot be read: No such file.*record"):
        TraceReader(tmp_path / "nowhere", RUN, "linear")
    header = json.dumps({"format": 9, "run": RUN, "worker": "linear"})
    trace.write_text(header + "\n")
    with pytest.raises(TraceError, match="a trace of format 9, expected 2"):
        TraceReader(trace, RUN, "linear")
    trace.write_text("[1]\n")
    with pytest.raises(TraceError, match="expected the header of a trace"):
        TraceReader(trace, RUN, "linear")


def test_a_folder_that_is_gone_and_a_full_disk_are_told_with_the_file(tmp_path):
    with pytest.raises(OutputError, match=r"gone/linear: cannot write the trace: No such file"):
        TraceWriter(tmp_path / "gone" / "linear", RUN, "linear")
    writer = TraceWriter(tmp_path / "linear", RUN, "linear")
    writer.close()
    writer._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - closed below
    writer.add(EVENTS[0])
    with pytest.raises(OutputError, match=r"No space left.*free some space, or leave out"):
        writer.flush()
    writer.close()


# ------------------------------------------------------------------------------- queues


def test_a_batch_is_handed_out_once_all_its_rows_are_there_in_its_recorded_order():
    queues = ReplayQueues()
    queues.add(down((1, 0), (2, 0), (3, 0), first=10.0))
    queues.expect(taken(down((3, 0), (2, 0), (7, 1))))
    assert not queues
    assert queues.next_batch() is None
    assert queues.missing() == "[7, 1]"
    queues.add(down((7, 1), (8, 1), first=20.0))
    assert queues
    batch = queues.next_batch()
    assert batch is not None
    assert identities(batch).tolist() == [[3, 0], [2, 0], [7, 1]]
    assert batch.payload is not None
    assert batch.payload["x"].tolist() == [12.0, 11.0, 20.0]
    assert (queues.rows, bool(queues)) == (2, False)
    queues.expect(taken(down((8, 1), (1, 0))))
    assert queues  # they were there before anyone waited for them


def test_rows_of_another_port_way_or_mode_are_others():
    queues = ReplayQueues()
    queues.add(down((4,), port=1))
    for other in (down((4,), port=2), up(4, port=1)):
        queues.expect(taken(other))
        assert not queues
    queues.expect(taken(down((4,), port=1)))
    assert queues


def test_a_message_that_was_a_batch_is_handed_on_as_it_is():
    queues, message = ReplayQueues(), up(3, 1, 2)
    queues.add(message)
    queues.expect(taken(message))
    assert queues.next_batch() is message


def test_rows_that_no_state_tells_apart_come_in_the_order_they_came():
    queues = ReplayQueues()
    queues.expect(taken(down((4,), (4,))))
    queues.add(down((4,), first=1.0))
    assert not queues
    queues.add(down((4,), first=2.0))
    batch = queues.next_batch()
    assert batch is not None
    assert batch.payload is not None
    assert batch.payload["x"].tolist() == [1.0, 2.0]


def test_a_batch_of_gradients_and_null_rows_was_never_one():
    queues = ReplayQueues()
    queues.add(up(1))
    queues.add(up(2, null=True))
    queues.expect(taken(up(1, 2)))
    with pytest.raises(TraceError, match="unlike payloads"):
        queues.next_batch()


def test_only_a_few_of_many_missing_rows_are_named():
    queues = ReplayQueues()
    queues.expect(taken(up(*range(9))))
    assert queues.missing() == "[0], [1], [2], [3], [4] and 4 more"
