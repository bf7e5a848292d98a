"""A run with timers in its workers: each worker tells where its time went."""

from __future__ import annotations

import pytest
from runs import PACKED

from benchmarks.profile_run import parts_of, profile
from benchmarks.timers import COMPUTE

pytestmark = pytest.mark.process


def test_each_worker_tells_where_its_time_went(runner):
    config = runner.config(
        training={"update_every": 20, "max_epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}}
    )
    workers = profile(str(config), [PACKED])
    nodes = [node for worker in workers for node in worker["nodes"]]
    assert {"embedding", "linear-1", "loss"} < set(nodes)
    assert len(set(nodes)) == len(nodes)
    for worker in workers:
        parts = parts_of(worker)
        # What must have happened took time; all is no more than what the process took.
        for part in ("compute", "host", "socket", "serialise", "deserialise", "poll", "loop"):
            assert parts[part] > 0, part
        thread_s = sum(worker["cpu_s"].values())
        assert 0 < thread_s <= worker["process_cpu_s"] + 0.01
        assert worker["waited_s"] <= worker["wall_s"]
        for node, counts in worker["nodes"].items():
            assert counts["batches"] > 0
            assert worker["calls"][f"{COMPUTE[0]} {node}"] > 0
