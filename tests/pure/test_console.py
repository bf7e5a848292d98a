"""What a run prints: final lines, and a live line on terminals only."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from amp_runtime.control.stages import Progress, Split, StageResult
from amp_runtime.output.console import Console, progress_line, stage_line

RESULT = StageResult(Split.TRAIN, 3, 2.0, 500, {"loss": 0.41237, "accuracy": 1.0}, 1.25)
PROGRESS = Progress(Split.TRAIN, 3, 40, 100, 500, 2.0, 4, {"loss": 0.5}, None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    tried = 0

    def write(self, text: str) -> int:
        self.tried += 1
        raise BrokenPipeError


def screen(text: str) -> list[str]:
    """Return the lines that a terminal shows after `text`."""
    lines, row, column = [""], 0, 0
    for character in text:
        if character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, 0
            lines.append("")
        else:
            lines[row] = lines[row].ljust(column)
            lines[row] = lines[row][:column] + character + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def test_a_stage_is_one_line_of_numbers():
    assert stage_line(RESULT, 40, 4) == (
        "epoch  3/40 train      500 examples in   2.0 s (250/s)  loss 0.4124  accuracy 1.0000"
        "  staleness 1.2  in flight 4"
    )


def test_a_validation_has_neither_staleness_nor_rows_in_flight():
    valid = replace(RESULT, split=Split.VALID, staleness=None, complete=False)
    assert stage_line(valid, 3, 4) == (
        "epoch 3/3 valid      500 examples in   2.0 s (250/s)  loss 0.4124  accuracy 1.0000"
        "  stopped early"
    )


@pytest.mark.parametrize(
    ("seconds", "tail"), [(2.0, "ETA 8 s"), (30.0, "ETA 2 min 00 s"), (0.0, "in flight 4")]
)
def test_progress_says_how_far_and_how_long(seconds, tail):
    line = progress_line(replace(PROGRESS, seconds=seconds))
    assert line.startswith("epoch  3/40 train      100 of 500 (")
    assert line.endswith(tail)


def test_a_stream_that_is_no_terminal_gets_final_lines_only():
    stream = io.StringIO()
    console = Console(stream)
    console.refresh(lambda now: PROGRESS, 0.0)
    console.stage(RESULT, 40, 4)
    console.say("done")
    assert stream.getvalue() == stage_line(RESULT, 40, 4) + "\ndone\n"


def test_a_terminal_shows_a_live_line_that_the_final_line_replaces():
    stream = Terminal()
    console = Console(stream)
    console.refresh(
        lambda now: replace(PROGRESS, metrics={"loss": 0.5, "a_long_metric_name": 1.0}), 0.0
    )
    console.refresh(lambda now: PROGRESS, 1.0)
    assert screen(stream.getvalue()) == [progress_line(PROGRESS)]
    console.say("short")
    assert screen(stream.getvalue()) == ["short", ""]
    console.say("again")
    assert screen(stream.getvalue()) == ["short", "again", ""]


def test_the_live_line_is_not_drawn_too_often_nor_for_nothing():
    stream = Terminal()
    console = Console(stream)
    console.refresh(lambda now: None, 0.0)
    assert stream.getvalue() == ""
    console.refresh(lambda now: PROGRESS, 1.0)
    first = stream.getvalue()
    console.refresh(lambda now: PROGRESS, 1.4)
    assert stream.getvalue() == first
    console.refresh(lambda now: PROGRESS, 1.6)
    assert stream.getvalue() != first


def test_how_far_a_stage_is_is_asked_only_when_it_is_drawn():
    def never(now: float) -> None:
        pytest.fail("asked")

    Console(io.StringIO()).refresh(never, 0.0)  # no terminal
    console = Console(Terminal())
    console.refresh(lambda now: PROGRESS, 1.0)
    console.refresh(never, 1.4)


def test_a_closed_pipe_ends_the_printing_and_not_the_run():
    stream = Closed()
    console = Console(stream)
    console.say("nobody reads this")
    console.stage(RESULT, 40, 4)
    assert stream.tried == 1
