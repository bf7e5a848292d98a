"""Log lines: one event a line, whatever the values hold."""

from __future__ import annotations

import io
import re

import pytest

from amp_runtime.output.log import VALUE_BYTES, Log, shown


def lines(stream: io.StringIO) -> list[str]:
    """Return the lines without their times, whose form is asserted."""
    found = []
    for line in stream.getvalue().splitlines():
        time, rest = line.split(" ", 1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", time)
        found.append(rest)
    return found


def test_a_line_holds_time_level_who_event_and_pairs():
    stream = io.StringIO()
    log = Log("worker-1", stream)
    log.info("linked", channels=3, share=0.123456789)
    log.error("fault", node="linear-1", error="KeyError: 'x'")
    assert lines(stream) == [
        "INFO worker-1 linked channels=3 share=0.123457",
        "ERROR linear-1 fault error=\"KeyError: 'x'\"",
    ]


def test_a_warning_of_a_node_comes_once():
    stream = io.StringIO()
    log = Log("w", stream)
    for n in range(3):
        log.warning("slow", n=n)
        log.warning("slow", node="other", n=n)
    assert lines(stream) == ["WARNING w slow n=0", "WARNING other slow n=0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain-1.5", "plain-1.5"),
        ("[1,2]", "[1,2]"),
        ("", "''"),
        ("two words", "'two words'"),
        ("a=b", "'a=b'"),
        ("x\n2026-01-01T00:00:00.000+00:00 ERROR forged", None),
        ("\x1b[31m", r"'\x1b[31m'"),
        ("é", r"'\xe9'"),
        (None, "None"),
        (True, "True"),
        (1e-9, "1e-09"),
        (float("nan"), "nan"),
    ],
)
def test_a_value_is_one_word_or_quoted_and_cannot_forge_a_line(value, text):
    assert "\n" not in shown(value)
    assert shown(value).isascii()
    if text is not None:
        assert shown(value) == text


def test_a_long_value_is_cut():
    assert shown("x" * 10_000) == "x" * VALUE_BYTES + "..."


def test_raw_text_is_indented_so_that_no_line_of_it_looks_like_ours():
    stream = io.StringIO()
    Log("w", stream).raw("Traceback:\n2026-01-01T00:00:00 ERROR forged\n\n")
    assert stream.getvalue() == "    Traceback:\n    2026-01-01T00:00:00 ERROR forged\n"


def test_a_full_disk_does_not_end_the_run():
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    log = Log("w", Full())
    log.info("one")
    log.info("two")


def test_standard_error_is_the_default(capsys):
    Log("w").info("hello")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("INFO w hello\n")
