"""YAML is read as it is written, refused where readers disagree, and placed by line."""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.checking.rules import ConfigProblemsError
from amp_runtime.config.yaml_reader import (
    MAX_BYTES,
    MAX_DEPTH,
    plain,
    read_file,
    read_text,
    write_text,
)


def problems(text):
    """Return what is said about a text, whether reading went on or not."""
    try:
        found = read_text(text, origin="x.yaml", lines=True).problems
    except ConfigProblemsError as error:
        found = error.problems
    return [str(problem) for problem in found]


# ------------------------------------------------------------------------------ scalars


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-0", 0),
        ("+12", 12),
        ("0x1F", 31),
        ("9223372036854775807", 2**63 - 1),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e-3", 0.001),
        ("1E-3", 0.001),
        ("1.5e3", 1500.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("adam", "adam"),
        ("y", "y"),
        ("2024-01-01", "2024-01-01"),
        ("package.module:function", "package.module:function"),
        ("mnist/mnist_5k.csv.gz", "mnist/mnist_5k.csv.gz"),
    ],
)
def test_plain_scalar_has_the_value_and_type_of_yaml_1_2(text, value):
    got = plain(text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("no", "true or false"),
        ("On", "true or false"),
        ("010", "write 10 or 8"),
        ("-010", "write -10 or -8"),
        ("08", "write 8, or quote it"),
        ("1e3", r"write 1000\.0"),
        ("1E+3", r"write 1000\.0"),
        ("1:30", "quote it"),
        ("1_000", "plain digits"),
        ("0b101", "plain digits"),
        ("0o17", "plain digits"),
        (".inf", "not a finite"),
        ("-.INF", "not a finite"),
        (".nan", "not a finite"),
        ("1e309", "too large"),
        ("1.0e309", "too large"),
        ("1" + "0" * 40, "64 bits"),
        ("9" * 5000, "64 bits"),
        ("9223372036854775808", "64 bits"),
    ],
)
def test_scalar_that_readers_disagree_about_is_refused_with_what_to_write(text, advice):
    with pytest.raises(ValueError, match=advice):
        plain(text)


@pytest.mark.parametrize("text", ["no", "010", "1e3", "1:30", ".nan", "3", "null", "<<"])
def test_quoted_scalar_is_always_text(text):
    for quote in "'\"":
        document = read_text(f"a: {quote}{text}{quote}", origin="x.yaml")
        assert (document.value, document.problems) == ({"a": text}, [])


@pytest.mark.parametrize("name", ["no", "on", "1e3", "010", "1:30", "7", "true", "1.5", "~"])
def test_node_name_that_is_not_plainly_text_must_be_quoted(name):
    (said,) = problems(f"nodes:\n  {name}: {{lr: 1}}\n")
    assert said.startswith(f"x.yaml:2: nodes.{name}: ")
    assert "quote it" in said
    assert problems(f"nodes:\n  '{name}': {{lr: 1}}\n") == []


# ------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.yaml: no configuration: the file is empty"),
        ("# a comment\n\n", "x.yaml: no configuration: the file is empty"),
        ("a: 1\n\tb: 2\n", "x.yaml:2:1: not YAML: a tab; YAML is indented with spaces"),
        ("a: 1\nb: 'x\nc: 2\n", "x.yaml:2:4: not YAML: while scanning a quoted scalar"),
        ("a: [1,\n  2\n", "x.yaml:1:4: not YAML: while parsing a flow sequence"),
        ("a: b: c", "x.yaml:1:5: not YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: a second document; one file is one configuration"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: a: duplicate key, first on line 1"),
        ("b:\n  a: 1\n  'a': 1\n", "x.yaml:3: b.a: duplicate key, first on line 2"),
        ("a: &x 1\n", "x.yaml:1: a: anchor &x: write the value out each time"),
        ("a: *x\n", "x.yaml:1: a: alias *x: write the value out"),
        ("<<: {a: 1}\n", "x.yaml:1: merge key <<: write the keys out"),
        ("a: !!str 1\n", "x.yaml:1: a: tag tag:yaml.org,2002:str: tags are not allowed"),
        ("a: !x 1\n", "x.yaml:1: a: tag !x: tags are not allowed"),
        ("!x a: 1\n", "x.yaml:1: key 'a': no anchors, no tags"),
        ("? [a, b]\n: 1\n", "x.yaml:1: a key must be text"),
        ('a: "\\0"\n', "x.yaml:1: a: '\\x00' holds a character that is no text"),
        ('a: "\\uD800"\n', "x.yaml:1: a: '\\ud800' holds a character that is no text"),
        ("a: 1\nb: \x07\n", "x.yaml:2: character 0x0007 does not belong in a text file"),
    ],
)
def test_what_no_config_needs_is_refused_with_its_line(text, said):
    first, *more = problems(text)
    assert first.startswith(said)
    assert more == []


def test_python_tag_is_refused_and_runs_nothing(tmp_path):
    canary = tmp_path / "canary"
    (said,) = problems(f"a: !!python/object/apply:os.system ['touch {canary}']\n")
    assert "tags are not allowed" in said
    assert not canary.exists()


def test_reading_goes_on_past_a_bad_value_to_the_next():
    assert [said.split(":")[1] for said in problems("a: 010\nb: no\nc: 1e3\nd: ok\n")] == [
        "1",
        "2",
        "3",
    ]


def test_nesting_stops_at_the_limit_and_not_before():
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert problems(deep) == []
    assert "nested deeper than 16" in problems(f"[{deep}]")[0]


@pytest.mark.timeout(30)  # reading all of it would take minutes, or the memory
@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 100_000])
def test_nesting_without_end_is_refused(text):
    (said,) = problems(text)
    assert "nested deeper" in said


# ------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: 1".encode("utf-16"), "byte 0: this is UTF-16"),
        (b"a: \xff\n", "byte 3: not UTF-8"),
        (b"a: 1\0\n", "byte 4: a NUL byte"),
        (b"a: 1\n" * (MAX_BYTES // 5 + 1), "is longer than 256 KiB"),
    ],
)
def test_file_that_is_not_short_utf_8_is_refused_with_the_offset(tmp_path, content, said):
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigProblemsError, match=said) as raised:
        read_file(path)
    assert raised.value.exit_code == 78
    assert str(path) in raised.value.line()


def test_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: gr\xc3\xbcn\r\n")
    document = read_file(path)
    assert document.value == {"a": 1, "b": "grün"}
    assert str(document.place(("b",))) == f"{path}:2"


def test_missing_file_names_the_nearest_beside_it(tmp_path):
    (tmp_path / "mnist.yaml").touch()
    with pytest.raises(ConfigProblemsError, match=r"no such file \(did you mean 'mnist.yaml'"):
        read_file(tmp_path / "mnist.yml")


@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_what_is_no_regular_file_is_refused_without_blocking(tmp_path, kind):
    path = tmp_path / "x.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ConfigProblemsError, match="is not a regular file"):
        read_file(path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/dev/null/x"])
def test_path_that_cannot_be_opened_is_refused(path):
    with pytest.raises(ConfigProblemsError, match="cannot be opened"):
        read_file(path)


@pytest.mark.timeout(60)  # an algorithm that is quadratic would take minutes
def test_largest_file_is_read(tmp_path):
    path = tmp_path / "x.yaml"
    lines = "".join(f"key-{n:06}: {{a: [1, 2, 3], b: text}}\n" for n in range(7_200))
    assert MAX_BYTES * 0.9 < len(lines) <= MAX_BYTES
    path.write_text(lines)
    assert len(read_file(path).value) == 7_200


# ---------------------------------------------------------------------------- overrides


def overridden(*texts):
    document = read_text("a: {b: 1, c: {d: 2}}\ne: [1]\n", origin="x.yaml", lines=True)
    for text in texts:
        document.override(text)
    return document


def test_override_sets_one_key_and_says_that_it_did():
    document = overridden("a.c.d=0.5", "new.key=[1, {x: y}]", "e=null")
    assert document.value == {
        "a": {"b": 1, "c": {"d": 0.5}},
        "e": None,
        "new": {"key": [1, {"x": "y"}]},
    }
    assert document.problems == []
    assert str(document.place(("a", "c", "d"))) == "override 'a.c.d=0.5'"
    assert str(document.place(("a", "b"))) == "x.yaml:1"


def test_override_of_a_mapping_replaces_all_of_it():
    assert overridden("a={x: 1}").value["a"] == {"x": 1}


def test_last_of_two_overrides_wins():
    assert overridden("a.b=2", "a.b=3").value["a"]["b"] == 3


def test_value_of_an_override_may_hold_an_equals_sign():
    assert overridden("a.b=x=y").value["a"]["b"] == "x=y"


def test_override_mends_a_bad_value_of_the_file():
    document = read_text("a: 010\n", origin="x.yaml", lines=True)
    document.override("a=10")
    assert (document.value, document.problems) == ({"a": 10}, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.b", "an override is written key.key=value"),
        ("=1", "an override is written key.key=value"),
        ("a..b=1", "an override is written key.key=value"),
        ("a.b=", "a.b: no value"),
        ("a.b=#1", "a.b: no configuration"),
        ("a.b=[1", "a.b: not YAML"),
        ("a.b=010", "a.b: 010 is octal"),
        ("a.b=*x", "a.b: alias"),
        ("a.b.c=1", "a.b: is not a mapping"),
        ("e.0=1", "e: is not a mapping"),
    ],
)
def test_bad_override_is_named_in_what_is_said(text, said):
    (problem,) = overridden(text).problems
    assert str(problem).startswith(f"override {text!r}: {said}")


# -------------------------------------------------------------------------- and back

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
awkward = st.sampled_from(["no", "010", "1e3", "1:30", "<<", "=", "~", "", ".inf", "0o7", " x "])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | awkward
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | awkward, inner, max_size=3),
    max_leaves=8,
)


@given(trees)
def test_what_is_written_is_read_back_equal(tree):
    document = read_text(write_text(tree), origin="x.yaml")
    assert document.problems == []
    assert document.value == tree
    assert repr(document.value) == repr(tree)  # 1 is not 1.0, and not true


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_but_never_crashes(text):
    try:
        document = read_text(text, origin="x.yaml", lines=True)
    except ConfigProblemsError:
        return
    assert isinstance(document.value, dict | list | str | int | float | bool | None)
    assert not isinstance(document.value, float) or math.isfinite(document.value)
