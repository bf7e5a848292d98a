"""Signals to the controller, closed streams and limits: the run ends as documented."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import FOR_EVER, PACKED, THREE_WORKERS, Run, Runner, environment, wait_until
from safetensors.numpy import load_file

pytestmark = pytest.mark.fault
LONG = f"training.max_epochs={FOR_EVER}"


def training(runner: Runner, *settings: str, **how) -> Run:
    run = runner.start(runner.config(), LONG, *settings, **how)
    run.wait_training()
    return run


def assert_stopped_well(run: Run, code: int, killed: str = "") -> None:
    """Assert that the run drained, printed the table, and wrote everything.

    Args:
        killed: a worker that was started a second time.
    """
    ended = run.end()
    assert ended.code == code
    name = "SIGINT" if code == 130 else "SIG(TERM|HUP)"
    assert re.match(rf"AMP-E90[12]: .*stopped by {name}$", ended.last_line), ended.err
    assert ended.err.count("\n") == 1
    assert "finishing what is in flight; once more ends at once" in ended.out
    assert re.search(r"^node +(worker +)?core +rows", ended.out, re.MULTILINE)
    arrays = load_file(run.folder / "parameters.safetensors")
    assert "linear-1.weight" in arrays
    assert (run.folder / "report.txt").read_text() in ended.out
    assert run.json("manifest.json")["exit_code"] == code
    assert all(stage["complete"] for stage in run.stages()[:-1])
    for name in run.workers:
        assert " stopped cpu_s=" in run.log(name, int(name == killed))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_one_signal_drains_prints_the_table_and_writes_the_parameters(runner, number, code):
    run = training(runner, PACKED)
    run.signal(number)
    assert_stopped_well(run, code)


def test_ctrl_c_reaches_the_whole_process_group_and_counts_once(runner):
    run = training(runner, start_new_session=True)
    os.killpg(run.process.pid, signal.SIGINT)
    assert_stopped_well(run, 130)


def test_a_second_ctrl_c_ends_at_once(runner):
    shutil.copy(Path(__file__).with_name("user_nodes.py"), runner.home)
    config = runner.config(
        model={"builder": "user_nodes:build", "kind": "user_nodes:Hangs"},
        data={"source": "user_nodes:source", "batch": 10},
    )
    run = runner.start(config, "runtime.stop_timeout_s=60")
    wait_until((runner.home / "run0" / "hanging").exists, "a node that hangs")
    run.signal(signal.SIGINT)
    run.wait_for("SIGINT: finishing")
    run.signal(signal.SIGINT)
    ended = run.end(3.0)
    assert ended.code == 130
    assert ended.last_line.endswith("stopped by SIGINT: twice: ended at once")
    assert run.json("manifest.json")["exit_code"] == 130


def test_ctrl_c_while_workers_start_ends_the_run_in_order(runner):
    run = runner.start(runner.config(), LONG)
    wait_until(lambda: list(run.folder.glob("logs/*.log")), "a worker started")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert ended.code == 130
    assert ended.last_line.endswith("stopped by SIGINT")
    assert ended.err.count("\n") == 1


def test_ctrl_c_as_soon_as_there_is_a_run_folder_is_told_there(runner):
    run = runner.start(runner.config(), LONG)
    run.wait_for("run folder")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert ended.code == 130
    assert "stopped by SIGINT" in ended.last_line  # before a worker ran, or while they start
    assert ended.err.count("\n") == 1
    assert run.json("manifest.json")["exit_code"] == 130


def test_row_142_a_signal_while_all_go_back_ends_the_run_in_order(runner):
    run = training(runner)
    run.kill("linear-1")
    run.wait_for("generation 1: all go back")
    run.signal(signal.SIGTERM)
    assert_stopped_well(run, 143, killed="linear-1")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_a_signal_while_data_is_read_ends_the_run_at_once(runner, number, code):
    shutil.copy(Path(__file__).with_name("user_nodes.py"), runner.home)
    run = runner.start(runner.config(data={"source": "user_nodes:source_that_waits"}))
    wait_until((runner.home / "run0" / "waiting").exists, "the data source called")
    run.signal(number)
    ended = run.end(3.0)
    assert ended.code == code
    assert ended.err.count("\n") == 1


# ------------------------------------------------------------------------------- streams


def test_a_reader_that_has_seen_enough_does_not_end_the_run(runner):
    run = runner.start(runner.config(), "training.max_epochs=3", PACKED, stdout=subprocess.PIPE)
    assert run.process.stdout.readline()
    run.process.stdout.close()
    ended = run.end()
    assert (ended.code, ended.err) == (0, "")
    assert len(run.stages()) == 6
    assert (run.folder / "parameters.safetensors").is_file()


def test_a_full_disk_behind_stdout_does_not_end_the_run(runner):
    with open("/dev/full", "w") as full:
        run = runner.start(runner.config(), "training.max_epochs=1", PACKED, stdout=full)
    assert run.end().code == 0
    assert (run.folder / "parameters.safetensors").is_file()


def test_a_run_started_with_its_streams_closed_trains(runner):
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "-")
    run = runner.start(runner.config(), "training.max_epochs=1", PACKED, before=closed)
    assert run.end().code == 0
    assert (run.folder / "parameters.safetensors").is_file()


@pytest.mark.parametrize("verb", ["report", "logs"])
def test_what_nobody_reads_is_no_error(runner, verb):
    """Of a report that fits into a buffer only the flush at the exit fails."""
    run = runner.start(runner.config(), "training.max_epochs=1", THREE_WORKERS)
    assert run.end().code == 0
    with (run.folder / "logs" / "loss.0.log").open("a") as log:  # more than a pipe holds
        log.write("2026-01-01T00:00:00.000+00:00 INFO loss filled\n" * 5000)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", verb, str(run.folder)],
        stdout=write,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


# --------------------------------------------------------------------------------- start


def limited(limit: int, value: int):
    return lambda: resource.setrlimit(limit, (value, value))


def test_too_few_file_descriptors_are_told_before_anything_is_started(runner):
    run = runner.start(runner.config(), preexec_fn=limited(resource.RLIMIT_NOFILE, 32))
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E603: ")
    assert re.search(r"8 workers need \d+ file descriptors, and the limit is 32", ended.last_line)
    assert list((run.folder / "logs").iterdir()) == []


def test_a_low_soft_limit_on_file_descriptors_is_raised(runner):
    def soft_32():
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 1024))

    assert runner.run(runner.config(), "training.max_epochs=1", preexec_fn=soft_32).code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be a user without processes")
def test_too_few_processes_end_the_start_and_those_already_started(runner):
    """RLIMIT_NPROC does not bind root: the run is that of another user, who has none."""
    user = 54321

    def as_user():
        resource.setrlimit(resource.RLIMIT_NPROC, (8, 8))
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)

    for path in (os.environ["XDG_RUNTIME_DIR"], os.environ["TMPDIR"]):
        os.chown(path, user, user)
    try:
        subprocess.run([sys.executable, "-c", "import zmq"], preexec_fn=as_user, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"another user cannot run this Python: {error}")
    runs = runner.home / "of-user"
    runs.mkdir()
    for path in (runs, *runner.home.parents):
        if path.stat().st_mode & 0o005 != 0o005:
            pytest.skip(f"another user cannot enter {path}")
    os.chown(runs, user, user)
    ended = runner.run(runner.config(), f"runtime.runs={runs}", preexec_fn=as_user)
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E603: ")


WRONG_INTERPRETER = """
import sys
from amp_runtime.__main__ import main
program, sys.executable = sys.executable, "/nowhere/python"
sys.exit(main(sys.argv[1:]))
"""


def test_a_wrong_interpreter_is_named(runner):
    run = runner.start(runner.config(), program=("-c", WRONG_INTERPRETER))
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E603: ")
    assert "/nowhere/python" in ended.last_line
    assert "only 0 of 8 workers could be started" in ended.last_line


REFUSES_THE_FOURTH = """
import errno, subprocess, sys
from amp_runtime.__main__ import main
made, popen = [], subprocess.Popen
def refuse(command, **options):
    if "workers" in command:
        made.append(command)
        if len(made) == 4:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    return popen(command, **options)
subprocess.Popen = refuse
sys.exit(main(sys.argv[1:]))
"""


def test_when_the_system_refuses_a_process_those_already_started_are_stopped(runner):
    run = runner.start(runner.config(), program=("-c", REFUSES_THE_FOURTH))
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E603: ")
    assert "only 3 of 8 workers could be started" in ended.last_line
    assert "ulimit -u" in ended.last_line


NOT_A_PYTHON = """
import sys
from amp_runtime.processes import guard, launch
from amp_runtime.__main__ import main
launch.sys = type("sys", (), {"executable": "/bin/false"})
sys.exit(main(sys.argv[1:]))
"""


def test_an_interpreter_that_cannot_run_workers_is_a_failed_start(runner):
    run = runner.start(runner.config(), program=("-c", NOT_A_PYTHON))
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E603: ")
    assert "ended before it was ready, exit status 1" in ended.last_line


UNFORESEEN = """
import sys
from amp_runtime.control import controller
from amp_runtime.__main__ import main
def on_answers(self, message, now):
    raise OverflowError("a bug of ours")
controller.Controller.on_answers = on_answers
sys.exit(main(sys.argv[1:]))
"""


def test_a_bug_in_the_controller_ends_in_one_line_with_a_traceback_before_it(runner):
    run = runner.start(runner.config(), PACKED, program=("-c", UNFORESEEN))
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E001: ")
    assert "OverflowError: a bug of ours (<string>:6)" in ended.last_line
    assert ended.err.startswith("Traceback (most recent call last):")
    assert run.json("manifest.json")["why"] == ended.last_line


# ---------------------------------------------------------------------- the command line


@pytest.mark.parametrize("arguments", [["run"], ["rnu", "x"], ["run", "--fast"], ["report", "no"]])
def test_a_wrong_command_line_is_status_64_and_says_what_to_do(runner, arguments):
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", *arguments],
        capture_output=True,
        text=True,
        cwd=runner.home,
        env=environment(),
        check=False,
    )
    assert done.returncode == 64
    assert re.fullmatch(r"AMP-E101: .*; .+\n", done.stderr)
