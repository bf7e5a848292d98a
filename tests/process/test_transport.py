"""Real sockets: nothing lost, no deadlock, private, and nothing left behind."""

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from amp_runtime.errors import StallError, StartError, WireError
from amp_runtime.sockets.transport import Endpoint, Lane, SocketDirectory

pytestmark = pytest.mark.process
DEADLINE_S = 20.0
PROGRAM = Path(__file__).with_name("echo_peer.py")
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def directory() -> Iterator[SocketDirectory]:
    made = SocketDirectory.create(n_peers=4)
    yield made
    assert made.remove()
    assert not Path(made.path).exists()


def receive(endpoint: Endpoint, lane: Lane, count: int) -> list[list[bytes]]:
    """Return the next `count` messages on `lane`."""
    got: list[list[bytes]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(got) < count:
        assert time.monotonic() < deadline, f"only {len(got)} of {count} messages on {lane.name}"
        endpoint.poll(0.5)
        while len(got) < count and (frames := endpoint.receive(lane)) is not None:
            got.append(frames)
    return got


def until(endpoint: Endpoint, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        endpoint.poll(0.05)


@contextmanager
def echo_peer(directory: SocketDirectory, answers: int, hwm: int) -> Iterator[subprocess.Popen]:
    """Run peer 1 as a process: it answers each forward message `answers` times."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), directory.path, str(answers), str(hwm)],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "bound\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_no_first_message_is_lost_when_it_is_sent_before_the_connection_is_up(directory):
    with Endpoint(directory, 0) as controller, Endpoint(directory, 1) as worker:
        for lane in Lane:
            controller.connect(1, lanes=[lane])
            for i in range(50):  # at once: the connection cannot be up yet
                controller.send(1, lane, [lane.name.encode(), b"%d" % i])
        until(controller, lambda: controller.flush() == 0)
        for lane in Lane:
            expected = [[lane.name.encode(), b"%d" % i] for i in range(50)]
            assert receive(worker, lane, 50) == expected
            assert worker.receive(lane) is None


def test_no_first_message_is_lost_when_the_receiver_binds_later(directory):
    with Endpoint(directory, 0) as controller:
        controller.connect(1, incarnation=3)
        controller.send(1, Lane.FORWARD, [b"early"])
        assert not controller.linked()
        assert controller.outbox_messages == 1
        with Endpoint(directory, 1, incarnation=3) as worker:
            controller.wait_linked(DEADLINE_S)
            until(controller, lambda: controller.flush() == 0)
            assert receive(worker, Lane.FORWARD, 1) == [[b"early"]]


def test_no_first_message_is_lost_across_processes(directory):
    with Endpoint(directory, 0) as controller, echo_peer(directory, answers=1, hwm=1000):
        controller.connect(1)
        for i in range(2000):
            controller.send(1, Lane.FORWARD, [b"%d" % i])
        answers = receive(controller, Lane.BACKWARD, 2000)
        assert answers == [[b"%d" % i, b"0"] for i in range(2000)]
        assert controller.messages_sent == controller.messages_received == 2000


def test_fan_out_with_answers_does_not_deadlock_at_a_small_high_water_mark(directory):
    # Blocking sends stick here for good: both sides wait for the other to read.
    block = np.zeros(16_384, np.float32)
    with (
        Endpoint(directory, 0, high_water_mark=2) as controller,
        echo_peer(directory, answers=4, hwm=2),
    ):
        controller.connect(1)
        for i in range(500):
            controller.send(1, Lane.FORWARD, [b"%d" % i, block])
        answers = receive(controller, Lane.BACKWARD, 2000)
        assert [(int(f[0]), int(f[-1])) for f in answers] == [
            (i, copy) for i in range(500) for copy in range(4)
        ]
        assert controller.peak_outbox_messages > 400
        assert controller.outbox_messages == 0


def test_arrays_arrive_to_the_byte_and_are_counted(directory):
    x = np.arange(6, dtype=np.float64).reshape(2, 3)
    with Endpoint(directory, 0) as controller, Endpoint(directory, 1) as worker:
        controller.connect(1)
        controller.wait_linked(DEADLINE_S)
        controller.send(1, Lane.FORWARD, [b"head", x, np.zeros((0, 4), np.float32)])
        ((head, data, empty),) = receive(worker, Lane.FORWARD, 1)
        assert (head, data, empty) == (b"head", x.tobytes(), b"")
        assert controller.bytes_sent == worker.bytes_received == 4 + 48


def test_poll_reports_control_before_answers_before_forward_rows(directory):
    with Endpoint(directory, 0) as controller, Endpoint(directory, 1) as worker:
        controller.connect(1)
        controller.wait_linked(DEADLINE_S)
        for lane in (Lane.FORWARD, Lane.BACKWARD, Lane.CONTROL):
            controller.send(1, lane, [b"x"])
        until(worker, lambda: len(worker.poll(0).lanes) == 3)
        assert worker.poll(0).lanes == (Lane.CONTROL, Lane.BACKWARD, Lane.FORWARD)


def test_poll_reports_readable_fds_and_forgets_those_not_given_again(directory):
    read, write = os.pipe()
    with Endpoint(directory, 0) as endpoint:
        assert endpoint.poll(0, (read,)).fds == ()
        os.write(write, b"x")
        assert endpoint.poll(5.0, (read,)) == ((), (read,))
        assert endpoint.poll(0) == ((), ())
    os.close(read)
    os.close(write)


def test_poll_without_events_waits_its_time_and_no_longer(directory):
    with Endpoint(directory, 0) as endpoint:
        begin = time.monotonic()
        assert endpoint.poll(0.05) == ((), ())
        assert 0.045 < time.monotonic() - begin < 5.0


def test_a_frame_over_the_limit_is_refused_by_the_sender_and_the_next_arrives(directory):
    with (
        Endpoint(directory, 0, max_frame_bytes=1000) as controller,
        Endpoint(directory, 1, max_frame_bytes=1000) as worker,
    ):
        controller.connect(1)
        controller.wait_linked(DEADLINE_S)
        with pytest.raises(WireError, match=r"peer 0 to 1, forward: a frame of 1001 bytes.*1000"):
            controller.send(1, Lane.FORWARD, [b"head", b"x" * 1001])
        controller.send(1, Lane.FORWARD, [b"head", b"x" * 1000])
        assert receive(worker, Lane.FORWARD, 1) == [[b"head", b"x" * 1000]]
        assert controller.messages_sent == 1


def test_a_new_incarnation_gets_nothing_of_the_old_one(directory):
    with Endpoint(directory, 0) as controller:
        controller.connect(1, incarnation=0)
        controller.send(1, Lane.FORWARD, [b"for the dead"])
        controller.connect(1, incarnation=1)
        assert controller.outbox_messages == 0
        controller.send(1, Lane.FORWARD, [b"for the living"])
        with Endpoint(directory, 1, incarnation=1) as worker:
            until(controller, lambda: controller.flush() == 0)
            assert receive(worker, Lane.FORWARD, 1) == [[b"for the living"]]
            assert worker.receive(Lane.FORWARD) is None


def test_a_peer_that_never_comes_is_named_when_the_wait_ends(directory):
    with Endpoint(directory, 2) as endpoint:
        endpoint.connect(7, lanes=[Lane.FORWARD])
        with pytest.raises(StallError, match=r"peer 2: no connection to peer 7 \(forward\)"):
            endpoint.wait_linked(0.05)
        assert endpoint.unlinked() == [(7, Lane.FORWARD)]


def test_disconnect_drops_what_waits_for_a_peer(directory):
    with Endpoint(directory, 0) as endpoint:
        endpoint.connect(1)
        endpoint.send(1, Lane.FORWARD, [b"x"])
        endpoint.disconnect(1)
        assert endpoint.outbox_messages == 0
        assert endpoint.linked()
        with pytest.raises(KeyError):
            endpoint.send(1, Lane.FORWARD, [b"x"])


def test_close_leaves_no_file_descriptor_thread_or_socket_file(directory):
    fds, threads = set(os.listdir("/proc/self/fd")), set(os.listdir("/proc/self/task"))
    endpoint = Endpoint(directory, 0)
    endpoint.connect(1)
    endpoint.send(1, Lane.CONTROL, [b"never read"])
    endpoint.send(1, Lane.FORWARD, [b"never read"])
    assert len(list(Path(directory.path).iterdir())) == 1 + len(Lane)
    begin = time.monotonic()
    endpoint.close()
    endpoint.close()
    assert time.monotonic() - begin < 3.0
    assert [p.name for p in Path(directory.path).iterdir()] == ["owner"]
    assert set(os.listdir("/proc/self/fd")) == fds
    assert set(os.listdir("/proc/self/task")) == threads
    assert threading.active_count() == 1


# ------------------------------------------------------------------ the socket directory


def test_directory_and_sockets_are_for_this_user_only(directory, tmp_path):
    umask = os.umask(0o000)
    try:
        with Endpoint(directory, 0):
            assert stat.S_IMODE(os.lstat(directory.path).st_mode) == 0o700
            for lane in Lane:
                mode = os.lstat(directory.file(0, 0, lane)).st_mode
                assert stat.S_ISSOCK(mode)
                assert stat.S_IMODE(mode) == 0o600
        assert os.umask(0o000) == 0o000
    finally:
        os.umask(umask)


def test_a_path_too_long_is_refused_before_anything_is_made(tmp_path):
    base = tmp_path / ("d" * 100)
    base.mkdir()
    with pytest.raises(StartError, match=r"is \d+ bytes long; the limit is 107"):
        SocketDirectory.create(4, base=base)
    assert list(base.iterdir()) == []


def test_the_longest_path_allowed_binds(tmp_path):
    base = tmp_path
    room = 107 - len(os.fsencode(f"{base}/") + b"/amp-xxxxxxxx/4.9999.f")
    base = base / ("d" * room)
    base.mkdir()
    made = SocketDirectory.create(4, base=base)
    with Endpoint(made, 4, incarnation=9999):
        assert len(os.fsencode(made.file(4, 9999, Lane.FORWARD))) == 107
    with pytest.raises(StartError, match="108 bytes long"):
        made.file(40, 9999, Lane.FORWARD)
    assert made.remove()


def test_a_base_that_others_can_replace_is_refused(tmp_path):
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    with pytest.raises(StartError, match="drwxrwxrwx"):
        SocketDirectory.create(4, base=loose)
    loose.chmod(0o1777)
    assert SocketDirectory.create(4, base=loose).remove()
    link = tmp_path / "link"
    link.symlink_to(loose)
    with pytest.raises(StartError, match="symlink"):
        SocketDirectory.create(4, base=link)
    with pytest.raises(StartError, match="No such file"):
        SocketDirectory.create(4, base=tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
def test_a_base_of_another_user_is_refused(tmp_path):
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(StartError, match="belongs to user 12345"):
        SocketDirectory.create(4, base=tmp_path)


def test_the_base_is_the_runtime_dir_when_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert SocketDirectory.base() == tmp_path
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert SocketDirectory.base() != tmp_path


def test_a_directory_that_is_not_private_is_not_joined(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(StartError, match=r"drwxr-xr-x.*drwx------"):
        SocketDirectory.open(tmp_path)
    link = tmp_path / "amp-link"
    link.symlink_to(tmp_path)
    tmp_path.chmod(0o700)
    with pytest.raises(StartError, match="lrwxrwxrwx"):
        SocketDirectory.open(link)
    assert SocketDirectory.open(tmp_path).path == str(tmp_path)
