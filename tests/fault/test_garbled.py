"""Frames that are no rows of this run, written to the sockets of one: it ends in one line, or
goes on as if they had not come."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest
import zmq
from runs import FOR_EVER, Run, Runner, wait_until
from wire_frames import as_bytes, edited

from amp_runtime.nodes.statistics import WorkerReport
from amp_runtime.wire.codec import Envelope, encode_record
from amp_runtime.wire.protocol import CONTROLLER, Status, Stop

pytestmark = pytest.mark.fault
LINEAR_1, LOSS = 4, 8
"""Peer numbers of two workers of the RNN."""


def training(runner: Runner) -> Run:
    once = ("runtime.recovery=none", f"training.max_epochs={FOR_EVER}")
    run = runner.start(runner.config(), *once)
    run.wait_training()
    return run


def write(run: Run, peer: int, lane: str, *messages: Sequence[bytes]) -> None:
    """Send multipart messages to a lane of a peer, as any process of this user can.

    Until all are sent, or the run has ended because of those that were.
    """
    (directory,) = Path(os.environ["XDG_RUNTIME_DIR"]).glob("amp-*")
    waiting = deque(messages)

    def done() -> bool:
        with contextlib.suppress(zmq.Again):  # not connected yet, or its reader is slow
            while waiting:
                socket.send_multipart(waiting[0], zmq.NOBLOCK)
                waiting.popleft()
        return not waiting or run.process.poll() is not None

    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.immediate = 1
        socket.linger = 10_000
        socket.connect(f"ipc://{directory}/{peer}.0.{lane}")
        wait_until(done, f"messages taken by peer {peer}")
        if run.process.poll() is not None:
            socket.linger = 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"worker": 3, "report": {}}, "record from worker 'linear-1': status.report lacks "),
        ({"worker": 3}, "record from worker 'linear-1': status.fields lacks 'report'"),
    ],
)
def test_a_record_of_other_contents_ends_the_run_and_names_sender_record_and_field(
    runner, fields, says
):
    run = training(runner)
    envelope = Envelope(run.json("plan.json")["run"], 0, LINEAR_1, 0, 0)
    frames = as_bytes(encode_record(envelope, Status(LINEAR_1 - 1, WorkerReport({}))))
    write(run, CONTROLLER, "c", edited(frames, fields=fields))
    ended = run.end()
    assert ended.code == 70
    assert ended.last_line.startswith(f"AMP-E501: a frame on the control lane: {says}")


def test_a_worker_that_speaks_for_another_ends_the_run(runner):
    run = training(runner)
    run_id = run.json("plan.json")["run"]
    forged = Status(LOSS - 1, WorkerReport({}))
    envelopes = [Envelope(run_id, 0, LINEAR_1, 0, n) for n in range(500)]
    # One of these numbers is the next of that worker; those before are duplicates.
    write(run, CONTROLLER, "c", *(encode_record(envelope, forged) for envelope in envelopes))
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E501: ")
    assert "from worker 'linear-1': status.worker is 7; it must be 3, the sender" in ended.last_line


def stop(run_id: str, sender: int, sequence: int = 0) -> list[bytes]:
    return encode_record(Envelope(run_id, 0, sender, 0, sequence), Stop("a forged reason"))


@pytest.mark.parametrize(
    ("peer", "lane", "says"),
    [
        (CONTROLLER, "c", "AMP-E501: a frame on the control lane: the header is no msgpack map"),
        (LOSS, "f", "AMP-E501: worker 'loss' "),
    ],
)
def test_a_frame_that_is_not_of_our_protocol_ends_the_run(runner, peer, lane, says):
    run = training(runner)
    write(run, peer, lane, [b"garbage", b"x" * 100])
    ended = run.end()
    assert ended.code == 70
    assert ended.last_line.startswith(says)
    lane_name = {"c": "control", "f": "forward"}[lane]
    assert f": a frame on the {lane_name} lane: the header is no" in ended.last_line


def test_frames_of_another_run_and_those_that_came_before_change_nothing(runner):
    run = training(runner)
    run_id = run.json("plan.json")["run"]
    write(run, LOSS, "c", stop("0" * 32, CONTROLLER))
    write(run, LOSS, "c", stop(run_id, CONTROLLER))  # number 0 was `link`, long ago
    stages = len(run.stages())
    run.wait_for(rf"(epoch .*\n[^$]*){{{stages + 4}}}")
    run.signal(signal.SIGINT)
    assert run.end().code == 130
    assert "forged" not in run.log("loss")


def test_a_worker_obeys_only_the_controller(runner):
    run = training(runner)
    write(run, LOSS, "c", stop(run.json("plan.json")["run"], LINEAR_1))
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E501: ")
    assert "AMP-E501: worker 'loss' (" in ended.last_line
    assert "from worker 'linear-1': record 'stop', which is the controller's" in ended.last_line
