"""Several log files, one story in order of time."""

from __future__ import annotations

from amp_runtime.output.logs import merged_lines


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}.000+00:00"


def test_lines_of_all_files_come_in_order_of_time(tmp_path):
    (tmp_path / "a.log").write_text(f"{at(1)} INFO a one\n{at(4)} INFO a four\n")
    (tmp_path / "b.log").write_text(f"{at(2)} INFO b two\n{at(3)} INFO b three\n")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "notes.txt").write_text(f"{at(0)} not a log\n")
    assert [line.rsplit(" ", 1)[1] for line in merged_lines(tmp_path)] == [
        "one", "two", "three", "four",
    ]  # fmt: skip


def test_a_traceback_stays_behind_its_line(tmp_path):
    (tmp_path / "a.log").write_text(f"{at(1)} ERROR a fault\n    Traceback\n    KeyError\n")
    (tmp_path / "b.log").write_text(f"{at(1)} INFO b one\n{at(2)} INFO b two\n")
    assert [line.split()[-1] for line in merged_lines(tmp_path)] == [
        "fault", "Traceback", "KeyError", "one", "two",
    ]  # fmt: skip


def test_lines_before_the_first_time_come_first(tmp_path):
    (tmp_path / "a.log").write_text(f"OpenBLAS warning\n{at(1)} INFO a one\n")
    (tmp_path / "b.log").write_text(f"{at(0)} INFO b zero\n")
    assert [line.split()[-1] for line in merged_lines(tmp_path)] == ["warning", "zero", "one"]


def test_bytes_that_are_no_text_do_not_stop_the_story(tmp_path):
    (tmp_path / "a.log").write_bytes(f"{at(1)} INFO a one\n".encode() + b"    \xff\xfe\n")
    assert len(list(merged_lines(tmp_path))) == 2
