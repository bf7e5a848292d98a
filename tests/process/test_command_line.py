"""The command line as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from runs import environment

pytestmark = pytest.mark.process
HEAVY = {"numpy", "pydantic", "yaml", "zmq"}


def test_help_names_every_verb_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from amp_runtime.__main__ import VERBS, main\n"
        "assert main(['--help']) == 0\n"
        f"print(list(VERBS), sorted({HEAVY} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    verbs, loaded = done.stderr.split("] ")
    assert loaded == "[]\n"
    for verb in verbs.strip("[").replace("'", "").split(", "):
        assert f"\n    {verb} " in done.stdout


def test_a_verb_without_workers_answers_as_a_user_calls_it(runner):
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", "check", str(runner.config()), "seed=3"],
        capture_output=True,
        text=True,
        cwd=runner.home,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nseed: 3\n" in done.stdout


def test_check_shows_what_would_run_and_runs_nothing(runner, verb):
    done = verb(runner.home, "check", runner.config(), "seed=3")
    assert (done.code, done.err) == (0, "")
    assert "\nseed: 3\n" in done.out
    for node in ("embedding", "loop", "linear-1", "loss"):
        assert f"\n{node} " in done.out
    assert sorted(path.name for path in runner.home.iterdir()) == ["config.yaml"]


def test_check_of_a_wrong_config_is_status_78_with_all_that_is_wrong(runner, verb):
    wrong = ("seed=-1", "model.hiden=3", "data.batc=2")
    done = verb(runner.home, "check", runner.config(), *wrong)
    assert (done.code, done.out) == (78, "")
    *problems, last = done.err.splitlines()
    assert problems[0] == "3 problems in the configuration:"
    assert [p.split(": ")[1] for p in problems[1:]] == ["seed", "data.batc", "model.hiden"]
    assert last.startswith("AMP-E201: override 'seed=-1': seed: must be a whole number")


@pytest.mark.parametrize(("option", "begins"), [([], "flowchart LR"), (["--dot"], "digraph ")])
def test_graph_draws(runner, verb, option, begins):
    done = verb(runner.home, "graph", runner.config(), *option)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(begins)


def test_kinds_schema_and_runs_answer(runner, verb):
    assert "linear" in verb(runner.home, "kinds").out
    assert "learning rate" in verb(runner.home, "kinds", "adam").out
    (runner.home / "beside").mkdir()
    (runner.home / "beside" / "own.py").write_text("from workers.relu import Relu as Own\n")
    assert "x" in verb(runner.home, "kinds", "own:Own", "beside/any.yaml").out
    assert json.loads(verb(runner.home, "schema").out)["title"] == "Config"
    done = verb(runner.home, "runs")
    assert (done.code, done.err[:9]) == (64, "AMP-E101:")
