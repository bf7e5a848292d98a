"""Runs in which something is slow or crowded, and nothing has failed."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from runs import Run, Runner

from amp_runtime.checkpoint.store import verify

pytestmark = pytest.mark.fault
USER = Path(__file__).with_name("user_nodes.py")
TOGETHER = "runtime.placement={host: [{nodes: [before, after, loss]}]}"
"""And `suspect` has a worker of its own."""


def start(runner: Runner, *settings: str, builder: str = "build", **sections) -> Run:
    shutil.copy(USER, runner.home)
    data = {"source": "user_nodes:source", "batch": 10, **sections.pop("data", {})}
    model = {"builder": f"user_nodes:{builder}", **sections.pop("model", {})}
    return runner.start(runner.config(model=model, data=data, **sections), *settings)


def test_row_21_a_call_that_holds_the_interpreter_is_waited_for_and_not_for_ever(runner):
    model = {"kind": "user_nodes:HoldsTheInterpreter"}
    limits = ("runtime.hang_timeout_s=3", "training.max_epochs=2")
    run = start(runner, TOGETHER, *limits, model=model)
    ended = run.end(60.0)
    assert (ended.code, ended.err) == (0, "")
    assert (run.home / "held").exists()
    (told,) = re.findall(r"^warning: worker 'suspect' .*$", ended.out, re.MULTILINE)
    (line,) = [n for n, text in enumerate(USER.read_text().splitlines(), 1) if ").sleep(" in text]
    assert re.search(rf'no word for \d s: it hangs, at File ".*", line {line} in misb', told)
    assert "generation 2" not in ended.out
    assert all(stage["complete"] for stage in run.stages())


def test_row_26b_fan_out_without_a_limit_at_a_small_high_water_mark_comes_to_its_end(runner):
    crowded = ("training.max_active_keys=1000000", "training.max_active_rows=1000000")
    ways = ", ".join(f"way-{n}" for n in range(4))
    two = f"[first, first-bcast]}}, {{nodes: [{ways}, joined, last, after, loss]"
    run = start(
        runner,
        *crowded,
        f"runtime.placement={{host: [{{nodes: {two}}}]}}",
        "training.max_epochs=1",
        builder="build_fan_out",
        data={"train": 2000, "batch": 1},
    )
    ended = run.end(60.0)
    assert (ended.code, ended.err) == (0, "")
    assert [stage["complete"] for stage in run.stages()] == [True, True]
    assert len(run.workers) == 2
    # Libzmq had no room, so messages waited, and nobody did.
    peaks = [int(*re.findall(r" stopped .* outbox_peak=(\d+)", run.log(n))) for n in run.workers]
    assert max(peaks) > 0


def test_row_58_a_slow_disk_is_waited_for_and_not_more_often_than_it_must(runner):
    every = ("checkpoint.every={epochs: 1}", "checkpoint.keep_last=9", "training.max_epochs=2")
    run = start(
        runner,
        "runtime.placement={host: [{nodes: [before, suspect, after, loss]}]}",
        *every,
        builder="build_on_a_slow_disk",
    )
    ended = run.end(60.0)
    assert (ended.code, ended.err) == (0, "")
    assert "generation" not in ended.out
    assert [stage["complete"] for stage in run.stages()] == [True] * 4
    whole, faults = verify(run.folder / "checkpoints")
    assert (len(whole), faults) == (2, [])
    waited = [Path(line) for line in (run.home / "waits").read_text().splitlines()]
    waits = Counter(path.name.split(".tmp-")[0] for path in waited if "checkpoints" in path.parts)
    shards = (
        f"{name}.safetensors" for name in ("before", "suspect", "after", "loss", "_controller")
    )
    once = [*shards, "MANIFEST.json", "checkpoint-000001", "checkpoint-000002", "LATEST"]
    expected = {**dict.fromkeys(once, 2), "checkpoint-000001": 1, "checkpoint-000002": 1}
    # Whenever a name was made in it.
    assert waits == {**expected, "checkpoints": 4}
