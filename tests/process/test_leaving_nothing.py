"""The fixture that asserts that nothing is left sees each kind of thing that may be left."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from runs import is_running, leaving_nothing, wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def private(tmp_path: Path) -> Path:
    (tmp_path / "TMPDIR").mkdir()
    return tmp_path


def test_a_process_is_seen_though_its_parent_is_gone_and_does_not_stay(private):
    command = ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"]
    environment = os.environ | {"AMP_TEST": "seen"}
    left = r"'processes': \['\d+ sleep 1000'\]"
    with pytest.raises(AssertionError, match=left), leaving_nothing(private, "seen"):
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
    wait_until(lambda: not is_running(int(done.stdout)), "killed")


def test_a_child_that_was_not_waited_for_is_seen(private):
    with pytest.raises(AssertionError, match="'children'"), leaving_nothing(private, "seen"):
        child = subprocess.Popen(["true"])
    child.wait()


def test_a_file_in_the_temp_dir_is_seen(private):
    with pytest.raises(AssertionError, match="TMPDIR/amp-x"), leaving_nothing(private, "seen"):
        (private / "TMPDIR" / "amp-x").mkdir()


def test_an_fd_is_seen(private):
    with pytest.raises(AssertionError, match=r"'fds': .*null"), leaving_nothing(private, "seen"):
        fd = os.open(os.devnull, os.O_RDONLY)
    os.close(fd)


def test_a_thread_is_seen(private):
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    with pytest.raises(AssertionError, match="'threads'"), leaving_nothing(private, "seen"):
        thread.start()
    stop.set()
    thread.join()


def test_shared_memory_is_seen(private):
    file = Path("/dev/shm") / f"amp-test-{os.getpid()}"
    with pytest.raises(AssertionError, match=file.name), leaving_nothing(private, "seen"):
        file.touch()
    file.unlink()


def test_nothing_left_is_no_error(private):
    with leaving_nothing(private, "seen"):
        subprocess.run(["true"], check=True)
