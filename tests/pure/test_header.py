"""What comes in is refused by name unless it is just what we would have sent."""

import pickle
import resource

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_frames import (
    ENVELOPE,
    RECORDS,
    RUN,
    as_bytes,
    body_or_words,
    edited,
    forward,
    frames_of,
    refused,
    same_message,
)

from amp_runtime.nodes.statistics import WorkerReport
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.wire.codec import Limits, encode_record
from amp_runtime.wire.protocol import Acknowledged, Link, Parameters, Stop


@pytest.mark.parametrize(
    "frames",
    [frames_of(), as_bytes(encode_record(ENVELOPE, RECORDS[4]))],
    ids=["message", "record"],
)
def test_every_truncation_of_a_header_is_refused(frames):
    for n in range(len(frames[0])):
        refused([frames[0][:n], *frames[1:]])
    refused([frames[0] + b"\x00", *frames[1:]])


@given(st.data())
@settings(max_examples=500)
def test_a_mutated_frame_is_refused_or_decodes_and_raises_nothing_else(data):
    valid = data.draw(
        st.sampled_from([frames_of(), *(as_bytes(encode_record(ENVELOPE, r)) for r in RECORDS)])
    )
    frames = [bytearray(frame) for frame in valid]
    for _ in range(data.draw(st.integers(1, 3))):
        frames[0][data.draw(st.integers(0, len(frames[0]) - 1))] = data.draw(st.integers(0, 255))
    outcome = body_or_words([bytes(frame) for frame in frames])
    assert outcome.isprintable() if isinstance(outcome, str) else outcome is not None


@given(st.lists(st.binary(max_size=80), max_size=4))
@settings(max_examples=500)
def test_random_frames_are_refused(frames):
    refused(frames)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(sorted(msgpack.unpackb(frames_of()[0]))), PLAIN)
@settings(max_examples=500)
def test_no_value_of_the_wrong_kind_passes_in_any_field(key, value):
    header = msgpack.unpackb(frames_of()[0])
    if header[key] == value and type(header[key]) is type(value):
        return
    body = body_or_words(edited(frames_of(), **{key: value}))
    if isinstance(body, str):
        assert body.isprintable()
        return
    # Other legal values: they mean another sender, port or mode, of the same rows.
    assert key in ("gen", "from", "inc", "seq", "dir", "mode", "port")
    assert type(value) is int
    assert same_message(
        forward(), Message(Direction.FORWARD, Mode.TRAIN, 7, body.columns, body.payload)
    )


@pytest.mark.parametrize("key", sorted(msgpack.unpackb(frames_of()[0])))
def test_a_missing_field_is_named(key):
    words = refused(edited(frames_of(), drop=key))
    assert ("version" if key == "v" else "arrays" if key == "arrays" else "") in words


def test_an_unknown_missing_or_repeated_key_of_a_record_is_named():
    frames = as_bytes(encode_record(ENVELOPE, RECORDS[3]))
    refused(edited(frames, extra=1), "has 'extra'")
    refused(edited(frames, drop="seq"), "lacks 'seq'")
    refused(edited(frames, fields={"barrier": 1}), "lacks 'apply_left_over'")
    refused(edited(frames, arrays={"w": []}), "has 'w'")
    header = frames[0]
    twice = bytes([header[0] + 1]) + header[1:] + msgpack.packb("verb") + msgpack.packb("stop")
    refused([twice], "'verb' is twice")
    message = frames_of()
    twice = bytes([message[0][0] + 1]) + message[0][1:] + msgpack.packb("port") + b"\x05"
    refused([twice, *message[1:]], "'port' is twice")


@pytest.mark.parametrize("version", [0, 1, True, "1", None])
def test_another_version_is_refused_before_its_keys_are_read(version):
    refused(edited(frames_of(), v=version, new_key=1), "format version")
    refused(edited(frames_of(), v=version), "format version")


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"seq": True}, "'seq' is True"),
        ({"seq": -1}, "'seq' is -1"),
        ({"gen": 1.0}, "'gen' is 1.0"),
        ({"from_": 65536}, "'from'"),
        ({"dir": 2}, "'dir' is 2"),
        ({"mode": 2}, "'mode' is 2"),
        ({"port": 2**31}, "'port'"),
        ({"rows": 0}, "'rows' is 0"),
        ({"rows": 3}, "frame of 'columns' is 32"),
        ({"rows": 2**31 - 1, "cols": 2**31 - 1}, "frame of 'columns'"),
        ({"cols": 1}, "'cols' is 1"),
        ({"run": RUN.upper()}, "'run'"),
        ({"run": RUN + "\n"}, "'run'"),
        ({"run": RUN[:-1] + "\u0661"}, "'run'"),
        ({"arrays": None}, "only answers may be null"),
        ({"arrays": 1}, "'arrays' is 1"),
        ({"arrays": {}}, "'arrays'"),
    ],
)
def test_a_header_field_out_of_range_is_named_with_its_value(entries, match):
    refused(edited(frames_of(), **entries), match)


@pytest.mark.parametrize("dtype", ["O", "object", "float16", "<f4", "U4", ["<f4", "<f4"], None, 4])
def test_a_dtype_outside_the_table_is_refused(dtype):
    refused(edited(frames_of(), arrays=[["x", dtype, [3]]]), "dtype.*int32, float32, float64")


@pytest.mark.parametrize(
    "shape",
    [
        [-1],
        [True],
        [3.0],
        [2**31],
        [2**63],
        [2**32, 2**32],
        [2**30, 2**30, 2**30],
        [0, 2**30, 2**30],
        [1] * 8,
        [1] * 65,
        None,
        3,
        "3",
        [[3]],
    ],
    ids=str,
)
def test_a_shape_that_no_array_has_is_refused(shape):
    refused(edited(frames_of(), arrays=[["x", "float32", shape]]), "shape of array 'x'")


@pytest.mark.parametrize(
    "spec", [[], ["x"], ["x", "float32"], ["x", "float32", [3], 0], None, "xfs", {"x": 1}], ids=str
)
def test_an_array_spec_of_another_form_is_refused(spec):
    refused(edited(frames_of(), arrays=[spec]), "array spec")


@pytest.mark.parametrize("name", ["", "n" * 129, 7, None])
def test_an_array_name_of_another_form_is_refused(name):
    refused(edited(frames_of(), arrays=[[name, "float32", [3]]]), "name of an array")


def test_one_array_name_twice_is_refused():
    frames = frames_of()
    spec = ["x", "float32", [3]]
    refused([*edited(frames, arrays=[spec, spec]), frames[2]], "name of an array is 'x'")


def test_declared_bytes_must_be_those_of_the_frame():
    frames = frames_of()
    for wrong in (frames[2][:-1], frames[2] + b"\0", b""):
        refused([*frames[:2], wrong], "frame of 'x'.*24 bytes")
        refused([frames[0], wrong + b"12", frames[2]], "frame of 'columns'.*32 bytes")


def test_frame_count_must_be_exact():
    frames = frames_of()
    refused([], "empty")
    refused([b""])
    refused(frames[:1], "number of frames is 1.*3")
    refused(frames[:2], "number of frames is 2.*3")
    refused([*frames, b""], "number of frames is 4.*3")
    record = as_bytes(
        encode_record(ENVELOPE, Parameters(0, "linear", {"weight": np.zeros(2, np.float32)}))
    )
    refused(record[:1], "number of frames is 1.*2")
    refused([*record, b""], "number of frames is 3.*2")


def test_size_limits_are_those_given():
    limits = Limits(header_bytes=50, record_bytes=50, frame_bytes=8, arrays=1)
    refused(frames_of(), "size of the header", limits)
    refused(as_bytes(encode_record(ENVELOPE, RECORDS[0])), "size of the header", limits)
    refused(frames_of(forward({"x": np.zeros((2, 5), np.float32)})), "shape", Limits(frame_bytes=8))
    two = {name: np.zeros((2, 1), np.float32) for name in "xy"}
    refused(frames_of(forward(two)), "at most 1$", Limits(arrays=1))


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"worker": True}, "hello.worker is True.*int"),
        ({"worker": 1.0}, "hello.worker is 1.0"),
        ({"cores": [0, "1"]}, r"hello.cores\[1\] is '1'"),
        ({"cores": None}, "hello.cores is None"),
        ({"blas_kernel": 5}, "hello.blas_kernel is 5.*str"),
    ],
)
def test_a_record_field_must_have_its_annotated_type(fields, match):
    frames = as_bytes(encode_record(ENVELOPE, RECORDS[0]))
    valid = msgpack.unpackb(frames[0])["fields"]
    refused(edited(frames, fields=valid | fields), match)


@pytest.mark.parametrize("verb", ["reboot", "", "__class__", 5, None, "n" * 10_000])
def test_an_unknown_verb_is_refused(verb):
    refused(edited(as_bytes(encode_record(ENVELOPE, Link([0]))), verb=verb), "'verb'.*hello")


def test_hostile_strings_are_escaped_and_cut_in_the_error():
    frames = as_bytes(encode_record(ENVELOPE, Stop("")))
    for text in ("a\nAMP-E000: forged", "\x1b[2J", "\u202egnp", "x" * 900_000):
        words = refused(edited(frames, verb=text))
        assert text not in words
        refused(edited(frames, fields={text: 1}))
        refused(edited(frames_of(), arrays=[[text, "O", []]]))


def bombs() -> dict[str, bytes]:
    valid = as_bytes(encode_record(ENVELOPE, Acknowledged(0, 0, WorkerReport({}))))[0]
    tag = msgpack.packb("nodes") + b"\x80"
    inside = {
        "wide lists in lists": b"\xdd\x00\x00\x0f\xff" * 1000,
        "list of 2**32 - 1": b"\xdd\xff\xff\xff\xff",
        "map of 2**32 - 1": b"\xdf\xff\xff\xff\xff",
        "string of 2**32 - 1": b"\xdb\xff\xff\xff\xff",
        "5000 deep": b"\x91" * 5000 + b"\xc0",
        "500 deep": b"\x91" * 500 + b"\xc0",
        "500 maps deep": b"\x81\xa1a" * 500 + b"\xc0",
        "ext": b"\xc7\x04\x05abcd",
        "empty ext": b"\xc7\x00\x05",
        "timestamp": b"\xd6\xff\x00\x00\x00\x00",
        "bytes": b"\xc4\x02ab",
        "empty bytes": b"\xc4\x00",
        "bytes as a key": b"\x81\xc4\x01a\x01",
        "number as a key": b"\x81\x01\x01",
        "list as a key": b"\x81\x90\x01",
        "no utf-8": b"\x81\xa1\xff\x01",
        "never used byte": b"\xc1",
    }
    made = {name: valid.replace(tag, tag[:-1] + bytes_) for name, bytes_ in inside.items()}
    assert all(head != valid for head in made.values())
    lists = b"\xdc\xff\xff" * 20_000
    return made | {"message of lists": frames_of()[0][:1] + lists, "only lists": lists}


@pytest.mark.parametrize("name", bombs())
def test_msgpack_bombs_are_refused_without_memory(name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused([bombs()[name]])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


class Canary:
    """Its pickle creates a file when it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickle_in_any_frame_is_never_loaded(tmp_path):
    canary = tmp_path / "canary"
    bomb = pickle.dumps(Canary(str(canary)))
    frames = frames_of()
    refused([bomb])
    refused([bomb, *frames[1:]])
    refused([frames[0], bomb, frames[2]])
    refused([*frames[:2], bomb])
    refused([*edited(frames, arrays=[["x", "O", [1]]])[:2], bomb])
    assert not canary.exists()
    pickle.loads(bomb).close()  # noqa: S301 - the canary does sing
    assert canary.exists()
