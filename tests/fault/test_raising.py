"""User code that raises, crashes, leaves, hangs or swallows rows: the run says which and where."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
from runs import FOR_EVER, Ended, Run, Runner, wait_until

pytestmark = pytest.mark.fault
USER = Path(__file__).with_name("user_nodes.py")
OTHERS = "runtime.placement={host: [{nodes: [before, after, loss]}]}"
"""Who is to blame has a worker of its own, and the others have one."""


@pytest.fixture(autouse=True)
def _user_module(runner: Runner) -> None:
    shutil.copy(USER, runner.home)


def start(runner: Runner, *settings: str, model: dict | None = None, **sections) -> Run:
    config = runner.config(
        model={"builder": "user_nodes:build", **(model or {})},
        data={"source": "user_nodes:source", "batch": 10},
        **sections,
    )
    # What a first failure says; what follows on it: test_recovery.py.
    once = ("runtime.recovery=none", f"training.max_epochs={FOR_EVER}")
    return runner.start(config, *once, OTHERS, *settings)


def line_of(text: str) -> str:
    """Return `user_nodes.py:N` of the line that holds `text`."""
    lines = USER.read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, start=1) if text in line]
    return f"user_nodes.py:{number}"


def assert_blames(run: Run, ended: Ended, *texts: str) -> None:
    pid = run.workers["suspect"]
    for text in (
        rf"worker 'suspect' \(core \d+, pid {pid}, incarnation 0\)",
        rf"see {run.folder}/logs/suspect\.0\.log$",
        *texts,
    ):
        assert re.search(text, ended.last_line), (text, ended.last_line)


@pytest.mark.parametrize(
    ("kind", "what", "line"),
    [
        ("RaisesInForward", "ValueError: the forward failed", 'ValueError("the'),
        ("RaisesInBackward", "ZeroDivisionError: the backward failed", "the backward failed"),
        ("RaisesInAccumulate", "ArithmeticError: the update failed", "the update failed"),
        ("RaisesInALibrary", "JSONDecodeError: Expecting property name", 'json.loads("{")'),
    ],
)
def test_an_exception_in_a_node_names_node_exception_file_and_line(runner, kind, what, line):
    run = start(runner, model={"kind": f"user_nodes:{kind}"})
    ended = run.end()
    assert ended.code == 70
    assert ended.last_line.startswith("AMP-E602: node 'suspect' in worker 'suspect' ")
    assert_blames(run, ended, what, re.escape(str(runner.home / line_of(line))))
    log = run.log("suspect")
    assert " ERROR suspect fault " in log
    assert "    Traceback (most recent call last):" in log
    assert what.split(":")[0] in log


def test_an_exception_in_a_function_on_states_names_function_node_file_and_line(runner):
    run = start(runner, model={"update": "state_function_that_raises"})
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E411: ")
    assert_blames(
        run,
        ended,
        "user_nodes:state_function_that_raises raised LookupError: no such step",
        re.escape(line_of("no such step")),
    )
    assert "LookupError: no such step" in run.log("suspect")


def test_a_segmentation_fault_is_named_and_its_stack_is_in_the_log(runner):
    run = start(runner, model={"kind": "user_nodes:Segfaults"})
    ended = run.end()
    assert ended.code == 70
    assert_blames(
        run, ended, r"signal 11 \(SIGSEGV\); its last words: Fatal Python error: Segmentation fault"
    )
    assert re.search(r'user_nodes\.py", line \d+ in misbehave', run.log("suspect"))


@pytest.mark.parametrize("kind", ["ExitsUnasked", "LeavesPolitely"])
def test_a_worker_that_exits_unasked_is_a_failure_though_its_status_is_0(runner, kind):
    run = start(runner, model={"kind": f"user_nodes:{kind}"})
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E601: ")
    assert_blames(run, ended, "ended unasked, exit status 0;")


def test_row_26_a_row_that_goes_round_for_ever_is_named_with_the_nodes_of_its_loop(runner):
    config = runner.config(
        model={"builder": "user_nodes:build_loop"},
        data={"source": "user_nodes:source_with_one_that_goes_round", "batch": 1},
    )
    ended = runner.start(config, "runtime.stall_timeout_s=6", "training.max_epochs=1").end(60.0)
    assert ended.code == 70
    assert re.search(
        r"^AMP-E\d+: .*no instance has retired for 6 s; 1 are in flight, the oldest \[\d+\]; rows "
        r"still go from node to node, at 'round', 'turned', 'ways'; a loop of the model must end",
        ended.last_line,
    ), ended.last_line


@pytest.mark.parametrize("kind", ["Swallows", "Forgets"])
def test_a_node_that_swallows_rows_is_named_when_the_run_stalls(runner, kind):
    run = start(runner, "runtime.stall_timeout_s=2", model={"kind": f"user_nodes:{kind}"})
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E604: ")
    assert "no instance has retired for 2 s" in ended.last_line
    assert re.search(r"; 'suspect' took \d+ rows and neither answered nor passed", ended.last_line)
    assert "'after'" not in ended.last_line


def test_a_node_that_hangs_is_named_when_the_run_stalls(runner):
    run = start(runner, "runtime.stall_timeout_s=2", model={"kind": "user_nodes:Hangs"})
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E604: ")
    assert re.search(r"; 'suspect' has not worked on \d+ rows that were sent", ended.last_line)


def test_ctrl_c_ends_a_run_with_a_node_that_hangs_and_says_what_is_lost(runner):
    run = start(runner, "runtime.stop_timeout_s=1", model={"kind": "user_nodes:Hangs"})
    wait_until((runner.home / "run0" / "hanging").exists, "a node that hangs")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert ended.code == 130
    assert "after 1 s rows are still in flight, so there are no parameters" in ended.last_line


@pytest.mark.parametrize(
    ("kind", "receiver", "said"),
    [
        ("SendsNarrowRows", "after", r"port 'x': array 'x' is float32\[rows, 2\]; declared: f"),
        ("AnswersWithFloat64", "before", r"port 'y': array 'x' is float64\[rows, 4\]; decl"),
    ],
)
def test_who_sent_rows_that_do_not_fit_is_named(runner, kind, receiver, said):
    each = "runtime.placement=process_per_node"
    ended = start(runner, each, model={"kind": f"user_nodes:{kind}"}).end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E404: ")
    assert re.search(
        rf"in worker '{receiver}' .*: rows from worker 'suspect': node '{receiver}', {said}",
        ended.last_line,
    )


def test_an_answer_given_twice_is_refused_and_the_rule_is_told(runner):
    run = start(runner, model={"kind": "user_nodes:AnswersTwice"})
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (70, "AMP-E402: ")
    assert "node 'before': an answer to slot" in ended.last_line
    assert "a node kind behind it must answer every row" in ended.last_line


# ------------------------------------------------------------------------------ starting


def assert_never_trained(run: Run) -> None:
    assert not (run.folder / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("RaisesWhenMade", "RuntimeError: no licence found"),
        ("ExitsWhenMade", "ended before it was ready, exit status 3"),
    ],
)
def test_a_node_that_cannot_be_made_ends_the_run_before_training(runner, kind, said):
    run = start(runner, model={"kind": f"user_nodes:{kind}"})
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E603: ")
    assert said in ended.last_line
    assert re.search(r"worker 'suspect' \(core \d+, pid \d+, incarnation 0\)", ended.last_line)
    assert ended.last_line.endswith(f"see {run.folder}/logs/suspect.0.log")
    if kind == "RaisesWhenMade":
        assert line_of("no licence found") in ended.last_line
        assert "Traceback" in run.log("suspect")
    assert_never_trained(run)


def test_a_kind_whose_import_fails_is_told_before_anything_is_started(runner):
    (runner.home / "broken.py").write_text("raise RuntimeError('no driver')\n")
    run = start(runner, model={"kind": "broken:Kind"})
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E230: ")
    assert "importing broken raised RuntimeError: no driver" in ended.last_line
    assert not list(runner.home.glob("run0/runs/*"))


def test_a_kind_whose_import_fails_in_its_worker_alone_is_told_before_training(runner):
    (runner.home / "broken.py").write_text(
        "import sys\nfrom workers.relu import Relu\n\n\nclass Kind(Relu):\n    pass\n\n\n"
        "if '--worker' in sys.argv:\n    raise RuntimeError('no driver')\n"
    )
    run = start(runner, model={"kind": "broken:Kind"})
    ended = run.end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E230: ")
    assert "importing broken raised RuntimeError: no driver" in ended.last_line
    assert "broken.py:10" in ended.last_line
    assert_never_trained(run)


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        (["model.kind=user_nodes:NotANode"], "AMP-E211", "does not derive from"),
        (["model.kind=user_nodes:Nothing"], "AMP-E230", "has no 'Nothing'"),
        (["data.source=user_nodes:source_that_raises"], "AMP-E301", "KeyError: 'column 7'"),
        (["training.max_epochs=0"], "AMP-E201", "max_epochs"),
    ],
)
def test_a_config_that_cannot_be_is_told_with_status_78_and_leaves_no_folder(
    runner, settings, code, said
):
    ended = start(runner, *settings).end()
    assert (ended.code, ended.last_line[:8]) == (78, code)
    assert said in ended.last_line
    assert not list(runner.home.glob("run0/runs/*"))


def test_a_data_source_that_exits_is_a_failure_though_its_status_is_0(runner):
    ended = start(runner, "data.source=user_nodes:source_that_exits").end()
    assert (ended.code, ended.last_line[:10]) == (78, "AMP-E301: ")
    assert f"raised SystemExit: 0 ({runner.home / USER.name}:" in ended.last_line


# ------------------------------------------------------------------------------- stopping


def test_a_worker_that_does_not_stop_is_named_and_killed_after_stop_timeout(runner):
    run = start(
        runner,
        "training.max_epochs=1",
        "runtime.stop_timeout_s=1",
        model={"kind": "user_nodes:EndsLate"},
    )
    ended = run.end()
    assert (ended.code, ended.err) == (0, "")
    pid = run.workers["suspect"]
    assert re.search(
        rf"worker 'suspect' .*pid {pid}.* not stopped in 1 s, and is killed", ended.out
    )
    assert (run.folder / "parameters.safetensors").is_file()


def test_a_worker_that_fails_while_it_stops_is_named(runner):
    run = start(runner, "training.max_epochs=1", model={"kind": "user_nodes:CrashesAtTheEnd"})
    ended = run.end()
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"worker 'suspect' .* did not stop well: exit status 9", ended.out)
