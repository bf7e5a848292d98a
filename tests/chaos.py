"""Workers killed at random, again and again, while whole numbers are counted (`make chaos`).

    python tests/chaos.py [--kills 200] [--seed 0]

At the end each node must have counted every example once an epoch: an instance acts through
exactly one lineage, whatever was killed when. Some kills hit while a kill before is recovered
from, or while workers are just starting; for the others it is told how long it took until a node
was given rows again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from counting import FIRST_ROWS
from runs import FOR_EVER, Run, Runner, is_running, wait_until
from safetensors.numpy import load_file

EXAMPLES = 200
GOING_BACK = re.compile(r"all go back to [^\n]*\n?$")
"""The last that a run has said, until training goes on."""
MOST_PAUSE_S = 1.0


def alive(run: Run) -> list[str]:
    """Return the workers that have started and still run.

    Raises:
        AssertionError: the run has ended.
    """
    assert run.process.poll() is None, run.err
    return sorted(name for name, pid in run.workers.items() if is_running(pid))


def wait_going_on(run: Run, seed: int) -> None:
    wait_until(lambda: not GOING_BACK.search(run.out), f"seed {seed}: training goes on", 60.0)


def wait_rows(run: Run, seed: int, killed: float) -> float:
    """Wait until training goes on; return when the first rows were worked on."""
    wait_going_on(run, seed)
    found: float = wait_until(lambda: first_rows(run, killed), f"seed {seed}: rows", 60.0)
    return found


def first_rows(run: Run, killed: float) -> float:
    """Return when a node that was made after `killed` was first given rows; 0.0: none was yet."""
    lines = (run.home / FIRST_ROWS).read_text().splitlines()
    times = (map(float, line.split()) for line in lines)
    return min((first for made, first in times if made > killed), default=0.0)


def survive(runner: Runner, kills: int, seed: int) -> str:
    """Kill workers of a run, then let it end; assert that all has been counted once.

    Returns:
        What came of it, in a line.
    """
    drawn = random.Random(seed)
    shutil.copy(Path(__file__).with_name("counting.py"), runner.home)
    config = runner.config(
        model={"builder": "counting:build", "train": EXAMPLES, "timed": True},
        data={"source": "counting:examples", "train": EXAMPLES, "batch": 4},
        runtime={"max_restarts": 1_000_000, "quarantine_after": 1_000_000},
    )
    run = runner.start(config, f"training.max_epochs={FOR_EVER}", "dtype=float64")
    run.wait_training()
    took_s: list[float] = []
    for _ in range(kills):
        name = drawn.choice(wait_until(lambda: alive(run), f"seed {seed}: a worker to kill"))
        killed = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.workers[name], signal.SIGKILL)
        if drawn.random() < 0.6:  # else the next is killed while all go back
            took_s.append(wait_rows(run, seed, killed) - killed)
            time.sleep(drawn.random() * MOST_PAUSE_S)
    wait_going_on(run, seed)
    n_epochs = run.out.count(" train ")
    wait_until(lambda: run.out.count(" train ") > n_epochs + 1, f"seed {seed}: two epochs", 60.0)
    run.signal(signal.SIGINT)
    ended = run.end(60.0)
    assert ended.code == 130, f"seed {seed}: {ended.err}"
    trained = sum(stage["examples"] for stage in run.stages() if stage["split"] == "train")
    counted = load_file(run.folder / "parameters.safetensors")
    for name, counts in counted.items():
        # Of the epoch that was cut short, some examples are counted and some are not.
        said = f"seed {seed}: {name} counted {counts.tolist()}, {trained} examples trained on"
        assert counts.max() - counts.min() <= 1, said
        assert counts.sum() == trained, said
    seen = len(re.findall(r"^warning: worker .* ended ", run.out, re.MULTILINE))
    said = f"seed {seed}: {seen} of {kills} kills seen, {trained} examples counted once each"
    if not took_s:
        return said
    return (
        f"{said}; from a kill to the first rows worked on: median {median(took_s):.2f} s, "
        f"{min(took_s):.2f} to {max(took_s):.2f} s, of {len(took_s)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        runner = Runner(Path(home), "chaos")
        try:
            sys.stdout.write(survive(runner, given.kills, given.seed) + "\n")
        finally:
            for run in runner.started:
                if run.process.poll() is None:
                    run.process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
