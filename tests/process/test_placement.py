"""Several nodes in one worker: its name, cores and threads, its log and table; and training."""

from __future__ import annotations

import os
import re
import signal

import pytest
import yaml
from runs import FOR_EVER, title

from amp_runtime.processes.launch import usable_cores

pytestmark = pytest.mark.process
NODES = ["embedding", "loop", "joined", "linear-1", "step", "more", "linear-2", "loss"]
CORES = usable_cores()


def groups(*hosts: dict) -> str:
    """Return the override that makes these groups."""
    return f"runtime.placement={yaml.safe_dump({'host': list(hosts)}, default_flow_style=True)}"


def test_packed_is_a_worker_for_each_core_and_its_run_tells_of_each_node(runner):
    settings = ("training.max_epochs=2", "verify=true", "runtime.placement=packed")
    ended = runner.run(runner.config(), *settings)
    assert (ended.code, ended.err) == (0, "")
    n = min(len(CORES), len(NODES))
    assert f"8 nodes in {n} worker{'s' if n > 1 else ''}, on cores " in ended.out.splitlines()[0]
    assert "workers share" not in ended.out
    plan = runner.last.json("plan.json")["workers"]
    assert sorted(tuple(worker["cores"]) for worker in plan) == [(core,) for core in CORES[:n]]
    assert sorted(node for worker in plan for node in worker["nodes"]) == list(range(len(NODES)))
    for worker in plan:
        names = [NODES[node] for node in worker["nodes"]]
        if len(names) > 1:
            assert re.search(
                rf"^{worker['name']} on core \d+: {', '.join(names)}; \d+% of the work",
                ended.out,
                re.M,
            )
        log = runner.last.log(worker["name"])
        for name in names:
            assert len(re.findall(rf" INFO {name} barrier number=\d ", log)) == 4
        assert f" INFO {worker['name']} stopped " in log
    table = (runner.last.folder / "report.txt").read_text().splitlines()
    assert table[0].split()[:3] == ["node", "worker", "core"]
    rows = [line.split()[:2] for line in table[2 : 2 + len(NODES)]]
    assert rows == [[NODES[node], w["name"]] for w in plan for node in w["nodes"]]


def test_a_group_has_its_name_in_ps_and_as_many_blas_threads_as_cores(runner):
    wide = {"nodes": ["linear-1", "step"], "cores": CORES[:2], "name": "wide"}
    narrow = {"nodes": ["embedding", "joined"], "cores": CORES[-1:]}
    run = runner.start(
        runner.config(), f"training.max_epochs={FOR_EVER}", groups(wide, narrow), "verify=true"
    )
    run.wait_training()
    pids = run.workers
    assert set(pids) == {"worker-1", "loop", "wide", "more", "linear-2", "loss"}
    assert title(pids["wide"]) == "amp small wide (linear-1,step)"
    assert title(pids["worker-1"]) == "amp small worker-1 (embedding,joined)"
    assert title(pids["loss"]) == "amp small loss"
    assert os.sched_getaffinity(pids["wide"]) == set(CORES[:2])
    assert os.sched_getaffinity(pids["worker-1"]) == set(CORES[-1:])
    assert f"blas_threads={len(CORES[:2])} " in run.log("wide")
    assert "blas_threads=1 " in run.log("worker-1")
    run.signal(signal.SIGTERM)
    assert run.end().code == 143


def test_groups_that_cannot_be_are_told_with_line_and_status_78_and_leave_no_folder(runner):
    placement = {"host": [{"nodes": ["linear-3"], "cores": [max(CORES) + 1]}]}
    path = runner.config(runtime={"placement": placement})
    ended = runner.run(path)
    assert (ended.code, ended.last_line[:8]) == (78, "AMP-E201")
    assert re.search(r"config\.yaml:\d+: .*: no node 'linear-3' in the model", ended.err)
    assert f"may not use core {max(CORES) + 1}; it may use" in ended.err
    assert not list(runner.home.glob("run0/runs/*"))


SOURCE = """
import numpy as np


def source(split, seed):
    generator = np.random.default_rng(split == "train")
    for _ in range(600 if split == "train" else 100):
        tokens = generator.integers(0, 10, generator.integers(1, 5))
        yield {"tokens": tokens, "label": tokens[-1] % 3}
"""


@pytest.mark.parametrize("placement", ["process_per_node", "packed", "{host: [{nodes: [%s]}]}"])
def test_asynchronous_training_reaches_the_same_target_wherever_nodes_are(runner, placement):
    (runner.home / "last_token.py").write_text(SOURCE)
    config = runner.config(
        model={"builder": "rnn", "hidden": 16, "embedding": 8, "vocabulary": 10, "classes": 3},
        data={"source": "last_token:source", "batch": 50},
        training={
            "optimizer": {"name": "adam", "lr": 0.02},
            "update_every": 50,
            "max_active_keys": 2,
            "max_epochs": 60,
            "target": {"metric": "accuracy", "at_least": 0.95},
        },
    )
    placement = placement.replace("%s", ", ".join(NODES))
    ended = runner.run(config, f"runtime.placement={placement}")
    assert ended.code == 0
    assert "target reached: accuracy" in ended.out
