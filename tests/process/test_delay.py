"""Injected delay in real processes: the numbers of the reference, and delays of a recorded run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import Ended, Runner, environment
from safetensors.numpy import load_file

from amp_runtime.errors import AmpError
from amp_runtime.output.recorded_delays import with_recorded_delays
from amp_runtime.prepare import Prepared, prepare_file
from amp_runtime.reference import Reference
from workers.registry import Registry

pytestmark = pytest.mark.process

SYNCHRONOUS = (
    "training.schedule=synchronous", "training.compensation=none", "training.max_epochs=2",
    "dtype=float64",
)  # fmt: skip


def prepared(config: Path, *overrides: str) -> Prepared:
    return with_recorded_delays(prepare_file(config, overrides, Registry()))


def reference(given: Prepared) -> tuple[dict[str, Any], Any]:
    """Return what one process makes of it: parameters, and the nodes' reports."""
    run = Reference(given.wiring, Registry(), given.train, given.valid, given.settings)
    finished = run.run()
    found = {f"{node}.{n}": a for node, arrays in finished.parameters.items() for n, a in
             arrays.items()}  # fmt: skip
    return found, finished.reports[1].nodes


def assert_close(folder: Path, wanted: dict[str, Any]) -> None:
    found = load_file(folder / "parameters.safetensors")
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        assert np.abs(array - wanted[name]).max() <= 1e-8 * np.abs(wanted[name]).max(), name


def command(runner: Runner, *words: str) -> Ended:
    done = subprocess.run(
        [sys.executable, "-m", "amp_runtime", *words],
        cwd=runner.home, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr, 0.0)


@pytest.mark.parametrize("placement", ["process_per_node", "packed"])
def test_a_delayed_synchronous_run_has_the_numbers_of_the_reference(runner, placement):
    delays = ("training.delay={name: random, low: 1, high: 4}", "nodes.linear-1.delay=3")
    more = (*SYNCHRONOUS, *delays, f"runtime.placement={placement}")
    config = runner.config()
    ended = runner.run(config, *more, timeout_s=120)
    assert ended.code == 0, ended.err
    wanted, reports = reference(prepared(config, *more))
    assert_close(runner.last.folder, wanted)
    assert "delay: these nodes compute with weights of past updates" in ended.out
    assert len(reports["linear-1"].staleness) == 4
    row = next(line for line in ended.out.splitlines() if line.startswith("linear-1 "))
    assert row.split()[-2] == "3"  # p95
    size = sum(a.nbytes for name, a in wanted.items() if name.startswith("linear-1."))
    logs = "".join(path.read_text() for path in (runner.last.folder / "logs").glob("*.log"))
    assert f"delay_bytes={3 * size}" in logs


def test_a_recorded_run_lends_its_delays_and_runs_that_cannot_are_refused_by_name(runner):
    config = runner.config()
    keys = ("training.max_active_keys=8", "training.max_epochs=2")
    assert runner.run(config, "runtime.record=true", *keys, timeout_s=120).code == 0
    recorded = runner.last.folder
    trace = f"training.delay={{name: trace, run: {recorded}}}"
    ended = runner.run(config, *SYNCHRONOUS, trace, "runtime.record=true", timeout_s=120)
    assert ended.code == 0, ended.err
    again = runner.last.folder
    given = prepared(config, *SYNCHRONOUS, trace)
    wanted, reports = reference(given)
    assert_close(again, wanted)
    windows = {
        n.name: n.training["delay"]["windows"] for n in given.wiring.nodes if n.parameterised
    }
    for name, some in windows.items():
        most = max(max(values) for _, values, _ in some)
        assert 0 < len(reports[name].staleness) <= most + 1, name
    # What was delayed by a trace is done again by its own, and judged without.
    for verb in ("replay", "evaluate"):
        done = command(runner, verb, str(again))
        assert done.code == 0, done.err

    def refused(run: Any, said: str, *more: str) -> None:
        key = f"nodes.linear-1.delay={{name: trace, run: {run}}}"
        with pytest.raises(AmpError, match=rf"nodes.linear-1.delay.run.*{said}") as raised:
            prepared(config, key, *more)
        assert raised.value.exit_code == 78

    refused("nowhere", "no run 'nowhere'")
    refused("last", "another run each time")
    refused(recorded, "another graph: options of node 'embedding' was", "model.embedding=9")
    (recorded / "trace" / "linear-1").rename(recorded / "linear-1")
    refused(recorded, "cannot be read: No such file")
    (recorded / "trace").rename(recorded / "moved")
    refused(recorded, "was not recorded; train it with runtime.record=true")
