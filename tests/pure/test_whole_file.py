"""A file is there whole or not at all; what is no file is written to as it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from amp_runtime.errors import OutputError
from amp_runtime.output import whole_file
from amp_runtime.output.whole_file import WholeFile


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_kept_and_what_was_there_stays_until_then(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("before")
    file = WholeFile(path, fix="")
    file.stream.write("after")
    file.stream.flush()
    assert path.read_text() == "before"
    file.keep()
    file.discard()
    assert path.read_text() == "after"
    assert names(tmp_path) == ["out.jsonl"]


def test_what_is_not_kept_leaves_nothing(tmp_path):
    file = WholeFile(tmp_path / "out.jsonl", fix="")
    file.stream.write("half")
    file.discard()
    assert names(tmp_path) == []


def test_two_processes_that_write_one_file_do_not_meet(tmp_path, monkeypatch):
    path = tmp_path / "out.jsonl"
    first = WholeFile(path, fix="")
    monkeypatch.setattr(whole_file.os, "getpid", lambda: 1)
    second = WholeFile(path, fix="")
    first.stream.write("first, of some length")
    second.stream.write("second")
    second.keep()
    assert path.read_text() == "second"
    first.keep()
    assert path.read_text() == "first, of some length"
    assert names(tmp_path) == ["out.jsonl"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "out.jsonl"
    link.symlink_to("elsewhere/real")
    file = WholeFile(link, fix="")
    file.stream.write("text")
    file.keep()
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "real").read_text() == "text"
    assert names(tmp_path / "elsewhere") == ["real"]


@pytest.mark.parametrize("keep", [True, False])
def test_a_pipe_is_written_to_and_stays_one(tmp_path, keep):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    file = WholeFile(pipe, fix="")
    file.stream.write("line\n")
    if keep:
        file.keep()
    file.discard()
    reader.join(timeout=10)
    assert found == ["line\n"]
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write: Is a directory; name another"):
        WholeFile(tmp_path, fix="name another")
