"""`evaluate`: a finished run's numbers again, by real workers, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import PACKED, Ended, environment, wait_until
from safetensors.numpy import load_file, save_file

from amp_runtime.config.schema import load_config

pytestmark = pytest.mark.process
TIMEOUT_S = 90


@pytest.fixture(scope="module")
def _once() -> dict[str, Path]:
    return {}


@pytest.fixture
def run(runner, _once, tmp_path_factory, tmp_path) -> Path:
    """A copy of the folder of one finished run in float64, made once."""
    if not _once:
        settings = "training.max_epochs=2", "dtype=float64", PACKED
        assert runner.run(runner.config(), *settings).code == 0
        _once["run"] = tmp_path_factory.mktemp("finished") / "run"
        shutil.copytree(runner.last.folder, _once["run"])
    return Path(shutil.copytree(_once["run"], tmp_path / "copy"))


def evaluate(run: Path, *words: str) -> Ended:
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", "evaluate", str(run), *words],
        cwd=run.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr, 0.0)


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def numbers(line: dict) -> list[float]:
    return [line["loss"], line["accuracy"]]


def test_the_last_validation_comes_out_again_and_is_written(run):
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    ended = evaluate(run)
    assert (ended.code, ended.err) == (0, "")
    last = lines(run / "metrics.jsonl")[-1]
    (line,) = lines(run / "evaluations.jsonl")
    assert (line["split"], line["examples"]) == ("valid", 50)
    assert numbers(line) == pytest.approx(numbers(last), rel=1e-12)
    assert "evaluate valid       50 examples in" in ended.out
    assert f"loss {last['loss']:.4f}  accuracy {last['accuracy']:.4f}" in ended.out
    assert {p: p.read_bytes() for p in before} == before  # the run itself stays as it was
    folder = run / line["folder"]
    assert {p.name for p in folder.iterdir()} == {
        "config.yaml", "logs", "manifest.json", "metrics.jsonl", "plan.json",
    }  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["why"], manifest["exit_code"]) == ("evaluated", 0)


def test_a_process_for_each_node_gives_the_same_numbers(run):
    ended = evaluate(run, "runtime.placement=process_per_node")
    assert (ended.code, ended.err) == (0, "")
    (line,) = lines(run / "evaluations.jsonl")
    last = lines(run / "metrics.jsonl")[-1]
    assert numbers(line) == pytest.approx(numbers(last), rel=1e-12)
    plan = json.loads((run / line["folder"] / "plan.json").read_text())
    assert len(plan["workers"]) > len(json.loads((run / "plan.json").read_text())["workers"])


def test_other_splits_and_other_data_are_added_as_lines(run):
    assert evaluate(run, "split=train").code == 0
    assert evaluate(run, "data.valid=7", "seed=8", "training.max_active_keys=2").code == 0
    train, other = lines(run / "evaluations.jsonl")
    assert (train["split"], train["examples"], train["overrides"]) == ("train", 200, [])
    assert (other["split"], other["examples"]) == ("valid", 7)
    assert other["overrides"] == ["data.valid=7", "seed=8", "training.max_active_keys=2"]
    assert train["folder"] != other["folder"]
    assert load_config(run / other["folder"] / "config.yaml").data.options["valid"] == 7


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["model.builder=mlp"], 78, "AMP-E"),
        (["split=test"], 64, "no split 'test'; split=valid or split=train"),
        (["data.valid=0"], 78, "no example in split valid"),
        (["training.max_epoch=1"], 78, "max_epoch"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(run, verb, words, code, message):
    ended = verb(run.parent, "evaluate", run, *words)
    assert ended.code == code
    assert re.search(message, ended.last_line), ended.err
    assert not (run / "evaluations").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.hidden=9", r"node 'linear-[12]' .*is given '\w+' as .* but has .*9"),
        ("dtype=float32", r"is given '\w+' as float64\[.*\], but has float32\["),
    ],
)
def test_parameters_that_do_not_fit_a_node_are_refused_by_its_worker(run, setting, message):
    ended = evaluate(run, setting)
    assert ended.code == 78
    assert re.search(message, ended.last_line), ended.err
    assert not (run / "evaluations.jsonl").exists()


def test_parameters_that_are_not_there_or_damaged_are_named(run, verb):
    file = run / "parameters.safetensors"
    whole = file.read_bytes()
    arrays = load_file(file)
    save_file({**arrays, "linear-3.weight": np.zeros(2)}, file)
    assert (
        "parameters for 'linear-3', which is no node" in verb(run.parent, "evaluate", run).last_line
    )
    file.write_bytes(whole[:-5])
    ended = verb(run.parent, "evaluate", run)
    assert ended.code == 78
    assert f"{file}: cannot be read: " in ended.last_line
    file.unlink()
    shutil.rmtree(run / "checkpoints")
    ended = verb(run.parent, "evaluate", run)
    assert ended.code == 64
    assert "has no parameters.safetensors; a run leaves its parameters when" in ended.last_line
    assert not (run / "evaluations").exists()


def test_ctrl_c_ends_an_evaluation_in_order(run):
    process = subprocess.Popen(
        [sys.executable, "-m", "amp_runtime", "evaluate", str(run), "data.valid=2000000"],
        cwd=run.parent,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(
        lambda: [p for p in run.glob("evaluations/*/logs/*.0.log") if " linked " in p.read_text()],
        "a worker that is linked",
    )
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "finishing what is in flight" in out
    assert err.splitlines()[-1].endswith("stopped by SIGINT")
    assert not (run / "evaluations.jsonl").exists()
    (manifest,) = run.glob("evaluations/*/manifest.json")
    assert json.loads(manifest.read_text())["exit_code"] == 130


def test_ids_that_stand_for_other_words_than_in_the_run_are_refused(run, verb):
    (run / "vocabularies.json").write_text('{"tokens": ["mean", "range"]}')
    ended = verb(run.parent, "evaluate", run)
    assert ended.code == 78
    assert "0 in field 'tokens' stands for '0', but 'mean' in the run" in ended.err
