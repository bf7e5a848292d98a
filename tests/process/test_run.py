"""A healthy run: one pinned process a node, and a folder that tells what happened."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml
from runs import FOR_EVER, LIST_REDUCTION, PACKED, title
from safetensors.numpy import load_file

from amp_runtime.config.schema import load_config
from amp_runtime.loops.controller_loop import ControllerLoop
from amp_runtime.processes.launch import usable_cores

pytestmark = pytest.mark.process
NODES = {"embedding", "loop", "joined", "linear-1", "step", "more", "linear-2", "loss"}
PARAMETERS = {
    "embedding.table": (14, 8),
    "linear-1.weight": (16, 8),
    "linear-1.bias": (8,),
    "linear-2.weight": (8, 10),
    "linear-2.bias": (10,),
}
LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d INFO (?P<node>[\w-]+) (?P<event>[\w-]+)"
    r"(?P<values>( \w+=('[^']*'|\S+))*)"
)


def test_each_node_is_a_process_with_its_name_on_one_allowed_core_and_deaf_to_the_net(runner):
    run = runner.start(runner.config(), f"training.max_epochs={FOR_EVER}")
    run.wait_training()
    pids = run.workers
    assert set(pids) == NODES
    assert {title(pid) for pid in pids.values()} == {f"amp small {node}" for node in NODES}
    cores = {node: os.sched_getaffinity(pid) for node, pid in pids.items()}
    assert all(len(mine) == 1 for mine in cores.values())
    assert set.union(*cores.values()) == set(usable_cores()[: len(NODES)])
    for node, pid in pids.items():
        process = psutil.Process(pid)
        assert process.net_connections("inet") == []
        assert process.num_threads() <= 3, node  # its own, and two of libzmq
        assert process.ppid() == run.process.pid
        assert os.getsid(pid) == pid
    run.signal(signal.SIGTERM)
    assert run.end().code == 143


SET = ("training.max_epochs=2", "seed=3", "verify=true", "nodes.linear-2.clip={norm: 0.0001}")


@pytest.fixture(scope="module")
def _once() -> dict:
    return {}


@pytest.fixture
def finished(runner, _once, tmp_path_factory):
    """One run of two epochs, and how it ended; made once."""
    if not _once:
        config = runner.config()
        ended = runner.run(config, *SET)
        kept = tmp_path_factory.mktemp("finished") / "run"
        shutil.copytree(runner.last.folder, kept)
        _once.update(ended=ended, folder=kept, config=config, name=runner.last.folder.name)
    return _once


def test_a_run_ends_with_status_0_and_says_what_came_of_it(finished):
    ended = finished["ended"]
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].startswith("small: 200 training and 50 validation examples, 8 nodes")
    for split, n in (("train", 200), ("valid", 50)):
        for epoch in (1, 2):
            assert re.search(rf"epoch {epoch}/2 {split} +{n} examples in .* loss \d", ended.out)
    assert re.fullmatch(r"2 epochs done; \d+\.\d s in all; parameters in .*", lines[-1])


def test_more_nodes_than_cores_is_said_once_and_noted(finished):
    n_cores = len(usable_cores())
    if n_cores >= len(NODES):
        pytest.skip(f"{n_cores} cores for {len(NODES)} nodes")
    note = f"8 workers share {n_cores} core{'s' if n_cores > 1 else ''}"
    assert finished["ended"].out.count(note) == 1
    assert json.loads((finished["folder"] / "manifest.json").read_text())["notes"] == [note]


def test_each_log_tells_its_nodes_story(finished):
    for node in NODES:
        lines = (finished["folder"] / "logs" / f"{node}.0.log").read_text().splitlines()
        told = [LINE.fullmatch(line) for line in lines]
        assert all(told), lines
        assert {m["node"] for m in told} == {node}
        events = [m["event"] for m in told]
        assert events == ["started", "linked", *["barrier"] * 4, "checkpoint", "stop", "stopped"]
        barriers = [dict(pair.split("=") for pair in m["values"].split()) for m in told[2:6]]
        assert [int(b["number"]) for b in barriers] == [1, 2, 3, 4]
        rows = [int(b["rows_forward"]) for b in barriers]
        assert rows == sorted(rows)
        assert rows[0] > 0
        assert "reason='the run is over'" in lines[-2]


def test_a_node_that_clips_logs_how_many_of_its_updates_were(finished):
    def last_barrier(node: str) -> dict[str, str]:
        lines = (finished["folder"] / "logs" / f"{node}.0.log").read_text().splitlines()
        *_, line = (line for line in lines if " barrier " in line)
        return dict(pair.split("=") for pair in line.split() if "=" in pair)

    clipping, other = last_barrier("linear-2"), last_barrier("linear-1")
    assert clipping["clipped"] == clipping["updates"] != "0"
    assert "clipped" not in other
    assert 0 < float(other["lr"]) <= 0.1  # compensation may shorten it


def test_a_worker_that_is_ready_holds_at_most_40_mb(finished):
    logs = (finished["folder"] / "logs").glob("*.log")
    said = {log.name: re.search(r" started .* rss_mb=(\S+)", log.read_text()) for log in logs}
    held = {name: float(match[1]) for name, match in said.items()}
    assert max(held.values()) < 40, held


def test_the_folder_holds_everything(finished):
    folder = finished["folder"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoints",
        "config.yaml", "logs", "manifest.json", "metrics.jsonl", "parameters.safetensors",
        "plan.json", "report.txt", "vocabularies.json",
    ]  # fmt: skip
    assert {path.name for path in (folder / "logs").iterdir()} == {f"{n}.0.log" for n in NODES}
    assert re.fullmatch(r"small-\d{8}-\d{6}", finished["name"])


def test_the_config_in_the_folder_loads_as_the_one_that_ran(finished):
    runs = load_config(finished["folder"] / "config.yaml").runtime.runs
    settings = [*SET, f"runtime.runs={runs}"]
    assert load_config(finished["folder"] / "config.yaml") == load_config(
        finished["config"], settings
    )


def test_the_manifest_says_what_ran_where_and_how_it_ended(finished):
    manifest = json.loads((finished["folder"] / "manifest.json").read_text())
    assert manifest["overrides"][1:] == list(SET)
    assert manifest["cores"] == usable_cores()
    assert manifest["versions"]["numpy"] == np.__version__
    assert (manifest["why"], manifest["exit_code"]) == ("2 epochs done", 0)
    assert manifest["started"] <= manifest["ended"]
    assert {"commit", "host", "python", "blas"} <= manifest.keys()


def test_metrics_have_one_line_a_stage_with_the_documented_keys(finished):
    lines = (finished["folder"] / "metrics.jsonl").read_text().splitlines()
    stages = [json.loads(line) for line in lines]
    assert [(s["split"], s["epoch"]) for s in stages] == [
        ("train", 1), ("valid", 1), ("train", 2), ("valid", 2),
    ]  # fmt: skip
    for stage in stages:
        keys = {"split", "epoch", "seconds", "loss", "accuracy", "examples_per_s"}
        assert keys <= stage.keys()
        assert 0 < stage["loss"] < 5
        assert 0 <= stage["accuracy"] <= 1
        assert stage["examples_per_s"] > 0
        assert stage["complete"]


def test_the_parameters_are_there_by_node_name_and_have_moved(finished):
    arrays = load_file(finished["folder"] / "parameters.safetensors")
    assert {name: array.shape for name, array in arrays.items()} == PARAMETERS
    assert {array.dtype.name for array in arrays.values()} == {"float32"}
    assert all(np.isfinite(array).all() and array.any() for array in arrays.values())


def test_the_report_is_the_table_that_was_printed_and_names_every_node(finished):
    report = (finished["folder"] / "report.txt").read_text()
    assert report in finished["ended"].out
    assert {line.split()[0] for line in report.splitlines()[2 : 2 + len(NODES)]} == NODES


# --------------------------------------------------------------------------- small and odd


def test_row_147_a_run_that_nothing_happened_to_says_so(finished):
    told = (
        r"instances: (\d+) injected = \1 retired \+ 0 lost; left out: 0; workers started again: 0; "
    )
    assert re.search(told + "frames dropped: 0\n", finished["ended"].out)


def test_on_one_core_all_workers_share_it_and_the_run_says_so_once(runner):
    core = usable_cores()[-1]
    run = runner.start(
        runner.config(), f"training.max_epochs={FOR_EVER}", before=("taskset", "-c", str(core))
    )
    run.wait_training()
    assert all(os.sched_getaffinity(pid) == {core} for pid in run.workers.values())
    run.signal(signal.SIGTERM)
    ended = run.end()
    assert ended.code == 143
    assert ended.out.count("8 workers share 1 core\n") == 1
    assert run.json("manifest.json")["notes"] == ["8 workers share 1 core"]


def test_row_132_a_run_that_diverges_says_so_once_by_node_and_ends_soon(runner):
    ended = runner.run(
        runner.config(), "training.max_epochs=9", "training.optimizer={name: sgd, lr: 1000000.0}"
    )
    assert ended.code == 70
    assert ended.last_line.startswith("AMP-E412: node '")
    said = (
        r"training has diverged: the gradients of 11 of the last \d+ updates were not finite, the "
    )
    assert re.search(said + r"first that of update \d+ of instances \d+ to \d+", ended.last_line)
    said = (
        r"^warning: epoch 1: the training loss of node 'loss' is (nan|inf), first the loss of inst"
    )
    assert len(re.findall(said, ended.out, re.MULTILINE)) == 1
    (line,) = [line for line in runner.last.log("loss").splitlines() if " WARNING " in line]
    assert re.search(r" WARNING loss loss_not_finite epoch=1 train_loss_sum=(nan|inf) fi", line)
    for node in ("embedding", "linear-1", "linear-2"):
        said = rf"^warning: epoch 1: node '{node}' has not applied update \d+ of instances \d+"
        assert len(re.findall(said, ended.out, re.MULTILINE)) == 1
        assert runner.last.log(node).count(" update_not_applied first='update ") == 1
    assert "generation" not in ended.out  # the same would come of another try


def test_two_runs_at_once_do_not_know_of_each_other(runner):
    config = runner.config()
    alone, other = (runner.start(config, "training.max_epochs=2", PACKED) for _ in range(2))
    assert [alone.end().code, other.end().code] == [0, 0]
    assert len(alone.stages()) == len(other.stages()) == 4


def test_row_146_runs_one_after_the_other_in_one_process_leave_nothing(runner, verb):
    words = "run", runner.config(), f"runtime.runs={runner.home}/runs", PACKED
    for n_epochs in (1, 2):
        ended = verb(runner.home, *words, f"training.max_epochs={n_epochs}")
        assert (ended.code, ended.err) == (0, "")
        assert runner.processes() == []
    assert len(list((runner.home / "runs").iterdir())) == 2


@pytest.mark.parametrize("error", [RuntimeError("theirs"), SystemExit(0)])
def test_row_146_a_run_that_the_code_around_it_ends_leaves_nothing(
    runner, verb, monkeypatch, error
):
    def fail(*_):
        assert len(runner.processes()) > 1  # two workers at least
        raise error

    monkeypatch.setattr(ControllerLoop, "_check_stop_asked", fail)
    ended = verb(runner.home, "run", runner.config(), f"runtime.runs={runner.home}/runs", PACKED)
    assert ended.code == 70
    assert ended.err.splitlines()[-1].startswith("AMP-E")
    assert runner.processes() == []


def test_two_runs_in_one_second_have_two_folders(runner):
    config = runner.config()
    settings = ("training.max_epochs=1", f"runtime.runs={runner.home}/both", PACKED)
    for run in [runner.start(config, *settings) for _ in range(2)]:
        assert run.end().code == 0
    assert len(list((runner.home / "both").iterdir())) == 2


@pytest.mark.parametrize(
    ("sizes", "splits"),
    [
        ({"train": 30, "valid": 0}, ["train", "train"]),
        ({"train": 1, "valid": 1}, ["train", "valid", "train", "valid"]),
        ({"train": 7, "valid": 3, "batch": 100}, ["train", "valid", "train", "valid"]),
    ],
)
def test_small_data_sets_train(runner, sizes, splits):
    config = runner.config(data={"source": "list_reduction", "batch": 1, **sizes})
    settings = ["training.max_epochs=2", "training.max_active_keys=64", "verify=true", PACKED]
    ended = runner.run(config, *settings)
    assert ended.code == 0
    stages = runner.last.stages()
    assert [stage["split"] for stage in stages] == splits
    assert [stage["examples"] for stage in stages] == [sizes[split] for split in splits]
    assert all(stage["complete"] for stage in stages)


def test_a_target_without_validation_data_is_that_of_training(runner):
    config = runner.config(
        data={**LIST_REDUCTION["data"], "valid": 0},
        training={
            "optimizer": {"name": "sgd", "lr": 0.1},
            "target": {"metric": "loss", "at_most": 100.0},
        },
    )
    ended = runner.run(config, PACKED)
    assert ended.code == 0
    assert "target reached: loss" in ended.out
    assert len(runner.last.stages()) == 1


def test_a_run_started_from_its_own_folder_config_trains_the_same(runner):
    settings = ("training.max_epochs=1", "training.schedule=synchronous", PACKED)
    assert runner.run(runner.config(), *settings).code == 0
    first = runner.last.folder
    again = Path(shutil.copy(first / "config.yaml", runner.home / "again.yaml"))
    assert yaml.safe_load(again.read_text())["training"]["max_epochs"] == 1
    assert runner.run(again).code == 0
    ours = load_file(first / "parameters.safetensors")
    theirs = load_file(runner.last.folder / "parameters.safetensors")
    for name, array in ours.items():
        np.testing.assert_allclose(theirs[name], array, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("training.max_examples=250", "max_examples reached: 250 examples"),
        ("training.max_minutes=0.01", "max_minutes reached: 0.01 minutes"),
    ],
)
def test_a_limit_ends_a_run_well_with_validation_and_parameters(runner, setting, why):
    ended = runner.run(runner.config(), f"training.max_epochs={FOR_EVER}", setting, PACKED)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1].startswith(f"{why}; ")
    stages = runner.last.stages()
    assert stages[-1]["split"] == "valid"
    assert stages[-1]["complete"]
    assert (runner.last.folder / "parameters.safetensors").exists()
    assert runner.last.json("manifest.json")["why"] == why


@pytest.mark.parametrize("through", ["memory", "sockets", "sockets, as there is no memory"])
def test_rows_pass_through_memory_or_else_through_sockets(runner, through):
    settings = ["runtime.shared_memory=false"] if through == "sockets" else []
    # A file may have 8 MB: enough for all but memory that is shared.
    limit = ("bash", "-c", 'ulimit -f 8192; exec "$@"', "bash") if "no memory" in through else ()
    run = runner.start(runner.config(), f"training.max_epochs={FOR_EVER}", *settings, before=limit)
    run.wait_training()
    for pid in run.workers.values():
        mapped = "memfd:amp-rows" in Path(f"/proc/{pid}/maps").read_text()
        assert mapped == (through == "memory")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert ended.code == 130, ended.err
    warned = "warning: no memory to share with workers ([Errno 27] File too large)" in ended.out
    assert warned == bool(limit)
