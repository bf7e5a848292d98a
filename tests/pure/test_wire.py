"""The wire format: what goes in comes out, and what a port did not declare is refused."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from wire_frames import (
    ENVELOPE,
    RECORDS,
    REPORT,
    RUN,
    as_bytes,
    edited,
    forward,
    frames_of,
    refused,
    same_message,
)

from amp_runtime.errors import PayloadShapeError, WireError
from amp_runtime.nodes.statistics import NodeReport, WorkerReport
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.rows.spec import DTYPES, ArraySpec
from amp_runtime.wire.codec import check_payload, decode, encode_message, encode_record
from amp_runtime.wire.ledger import Envelope
from amp_runtime.wire.protocol import (
    CONTROLLER,
    Acknowledged,
    Fault,
    FromWorker,
    Parameters,
    Record,
    Retired,
    Status,
    Structure,
)

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
    ("nodes", "match"),
    [
        ({"n": NodeReport(busy_s=np.float64(0.5))}, "acknowledged.report.nodes.n.busy_s"),
        ({"n": NodeReport(np.int64(5))}, "acknowledged.report.nodes.n.rows_forward"),
        ({"n": NodeReport(staleness=[1, (2, 3)])}, r"nodes.n.staleness\[1\] is \(2, 3\)"),
        ({1: NodeReport()}, "key of acknowledged.report.nodes"),
        ({"n": NodeReport(updates=-1)}, "nodes.n.updates is -1; it must be >= 0"),
        ({"n": NodeReport(updates=2**63)}, "64-bit"),
        ({"\ud800": NodeReport()}, "packed"),
        ({"n": NodeReport(staleness=list(range(5000)))}, "5000.*4096"),
        ({"x" * 1000 + str(i): NodeReport() for i in range(2000)}, "record"),
    ],
)
def test_a_report_that_is_not_plain_or_too_large_is_not_sent(nodes, match):
    with pytest.raises(WireError, match=match):
        encode_record(ENVELOPE, Acknowledged(0, 0, WorkerReport(nodes)))


# ------------------------------------------------------------- what a record must hold


def record_frames(record: Record, **entries: Any) -> list[bytes]:
    """Return the frames of `record`, other entries in its header."""
    return edited(as_bytes(encode_record(ENVELOPE, record)), **entries)


def report(**entries: Any) -> list[bytes]:
    """Return the frames of a status whose report has other entries (None: without)."""
    plain = asdict(REPORT) | entries
    plain = {name: value for name, value in plain.items() if value is not None}
    return record_frames(Status(2, REPORT), fields={"worker": 2, "report": plain})


def sent(*count: Any) -> list[bytes]:
    return report(process={"channels": {"sent": [count]}, "cpu_s": 0.0, "rss_bytes": 0})


def node(**entries: Any) -> list[bytes]:
    return report(nodes={"n": asdict(NodeReport()) | entries})


@pytest.mark.parametrize(
    ("frames", "match"),
    [
        (report(nodes=None), "status.report lacks 'nodes'"),
        (report(nodes={"n": {}}), "status.report.nodes.n lacks 'averagings'"),
        (report(nodes={"n": 5}), "status.report.nodes.n is 5; it must be a map of NodeReport"),
        (report(more=5), "status.report has 'more'"),
        (node(rows_forward="5"), "status.report.nodes.n.rows_forward is '5'; it must be int"),
        (node(rows_backward=-5), "n.rows_backward is -5; it must be >= 0"),
        (node(metrics={"train": {"loss": [1.0, 0]}}), "train.loss .*a map of MetricSum"),
        (node(metrics={"train": {"loss": {"total": 1, "count": 0}}}), "loss.total is 1; .*float"),
        (node(staleness=[1, -1]), r"n.staleness\[1\] is -1"),
        (sent(1, "forward", 2), r"channels.sent\[0\] is .*a list of peer, lane, messages, rows"),
        (sent(1, "forward", 2, None), r"channels.sent\[0\].rows is None"),
        (
            record_frames(
                Fault(2, "n", RECORDS[-1].error, ""),
                fields={"worker": 2, "node": "n", "error": {"code": "AMP-E404"}, "traceback": ""},
            ),
            "fault.error lacks 'fix'",
        ),
    ],
)
def test_a_record_with_other_contents_is_refused_by_sender_record_and_field(frames, match):
    refused(frames, f"record from peer 3: .*{match}")


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"n_examples": None}, "arrays lacks 'n_examples'"),
        ({"instances": np.zeros(2, np.float32)}, r"arrays.instances is 'float32\[2\]'"),
        (
            {"n_examples": np.ones(3, np.int32)},
            r"n_examples is 'int32\[3\]'; it must be int32\[2\]",
        ),
        ({"instances": np.int32([1, -1])}, "an entry of .*arrays.instances is -1"),
    ],
)
@pytest.mark.parametrize("cls", [Structure, Retired])
def test_arrays_of_instances_that_do_not_fit_are_neither_sent_nor_taken(cls, arrays, match):
    good = {"instances": np.int32([1, 2]), "n_examples": np.int32([1, 2])}
    neither_sent_nor_taken(cls(good), cls(given_arrays(good, arrays)), match)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"#label": None}, "structure.arrays lacks '#label'"),
        ({"label": None}, "structure.arrays has '#label'"),
        ({"#label": np.ones(2, np.int32)}, r"arrays.#label is 'int32\[2\]'; it must be int32\[3\]"),
        ({"#label": np.int32([2, 2, -1])}, "an entry of structure.arrays.#label is -1"),
        ({"label": np.zeros(4)}, r"shape of structure.arrays.label is \[4\]; it must be \[3, "),
        ({"label": np.zeros(())}, r"shape of structure.arrays.label is \[\]"),
    ],
)
def test_fields_of_a_structure_that_do_not_add_up_are_neither_sent_nor_taken(arrays, match):
    good = {
        "instances": np.int32([1, 2]),
        "n_examples": np.int32([1, 2]),
        "label": np.zeros(3),
        "#label": np.int32([1, 0, 2]),
    }
    neither_sent_nor_taken(Structure(good), Structure(given_arrays(good, arrays)), match)


def given_arrays(good: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in (good | changes).items() if array is not None}


def neither_sent_nor_taken(good: Record, bad: Record, match: str) -> None:
    assert decode(as_bytes(encode_record(ENVELOPE, good))).body.arrays.keys() == good.arrays.keys()
    with pytest.raises(WireError, match=match):
        encode_record(ENVELOPE, bad)
    with pytest.MonkeyPatch.context() as unchecked:
        unchecked.setattr(type(bad), "check", lambda self: None)
        frames = as_bytes(encode_record(ENVELOPE, bad))
    refused(frames, match)


WORKERS = [r for r in RECORDS if isinstance(r, FromWorker)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.verb)
def test_a_worker_speaks_for_itself_alone_and_gives_no_orders(record):
    if record in WORKERS:
        record.check_sender(3)
        with pytest.raises(WireError, match=f"{record.verb}.worker is 2; it must be 3, the sende"):
            record.check_sender(4)
        with pytest.raises(WireError, match=f"{record.verb}', which is a worker's to send"):
            record.check_sender(CONTROLLER)
    else:
        record.check_sender(CONTROLLER)
        with pytest.raises(WireError, match=f"{record.verb}', which is the controller's to send"):
            record.check_sender(3)


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
