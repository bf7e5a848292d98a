"""`replay [RUN]`: a recorded run, done again in this process."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amp_runtime.commands import node_kinds, takes_run

if TYPE_CHECKING:
    from amp_runtime.control.stages import StageResult
    from amp_runtime.nodes.node import Kinds
    from amp_runtime.output.run_folder import RunFolder
    from amp_runtime.prepare import Prepared
    from amp_runtime.processes.plan import Plan
    from amp_runtime.trace.replay import Difference, RecordedStage, Replay

arguments = takes_run

TOLERANCE: Mapping[str, float] = {"float64": 1e-8, "float32": 1e-4}
"""How far a metric or a parameter array may be, relatively, on another machine than the run's."""
_NO_METRICS = {
    "split", "epoch", "seconds", "examples", "examples_per_s", "staleness", "complete",
}  # fmt: skip
_Stages = list[tuple["RecordedStage", "StageResult"]]


def command(given: argparse.Namespace) -> None:
    """Replay RUN, trained with runtime.record=true, in one process; compare its numbers."""
    from amp_runtime.errors import UsageError
    from amp_runtime.output.recorded_delays import with_recorded_delays
    from amp_runtime.output.run_folder import RunFolder
    from amp_runtime.prepare import prepare_file
    from amp_runtime.processes.blas import blas_threads

    started = time.monotonic()
    run = RunFolder.find(given.run)
    if not run.trace.is_dir():
        raise UsageError(
            f"run {run.path} was not recorded", fix="train with runtime.record=true first"
        )
    kinds = node_kinds()
    prepared = with_recorded_delays(prepare_file(run.config, [], kinds))
    run.check_vocabularies(prepared.train.about.vocabularies)
    stages: _Stages = []
    plan = run.read_plan()
    replay = _replay(run, plan, prepared, kinds, lambda *pair: stages.append(pair))
    print(f"{run.path}: {len(replay.players)} workers, replayed in this process", flush=True)
    # As the workers: sums are then to the bit those of the run, and no thread waits for another.
    with blas_threads(min(len(place.cores) for place in plan.placement.workers)):
        differences = replay.run()
    worst = _show(stages, differences)
    print(f"{replay.n_events} events; {time.monotonic() - started:.1f} s in all")
    _judge(worst, TOLERANCE[prepared.config.dtype], str(run.path))


def _replay(run: RunFolder, plan: Plan, prepared: Prepared, kinds: Kinds, on_stage: Any) -> Replay:
    """Return the replay of a run whose model is still what it was.

    Raises:
        TraceError: a trace is not there, or another's; or the model has changed.
    """
    from amp_runtime.errors import TraceError
    from amp_runtime.trace.file import TraceReader
    from amp_runtime.trace.replay import Replay

    was, now = (json.dumps(w.to_plain(), sort_keys=True) for w in (plan.wiring, prepared.wiring))
    if was != now:
        raise TraceError(
            "its config builds another graph now than when the run was recorded",
            where=str(run.config),
            fix="replay with the model, data source and version of amp_runtime that the run had",
        )
    traces = {}
    for worker, place in enumerate(plan.placement.workers):
        path = run.trace / place.name
        traces[worker + 1] = (place.name, str(path), iter(TraceReader(path, plan.run, place.name)))
    return Replay(
        prepared.wiring,
        kinds,
        prepared.train,
        prepared.valid,
        prepared.settings,
        plan.placement.peer_of(),
        traces,
        _recorded_stages(run),
        on_stage,
    )


def _recorded_stages(run: RunFolder) -> list[RecordedStage]:
    from amp_runtime.control.stages import Split
    from amp_runtime.trace.replay import RecordedStage

    return [
        RecordedStage(
            Split(line["split"]),
            line["epoch"],
            line["examples"],
            {name: value for name, value in line.items() if name not in _NO_METRICS},
        )
        for line in run.read_stages()
    ]


def _show(stages: _Stages, differences: list[Difference]) -> tuple[str, float, bool]:
    """Print what was compared; return what differs most, how far, and whether all is equal."""
    from amp_runtime.output.table import text_table
    from amp_runtime.trace.replay import relative

    rows, found = [], [("nothing", 0.0, True)]
    for recorded, replayed in stages:
        stage = f"epoch {recorded.epoch} {recorded.split.value}"
        for metric, before in recorded.metrics.items():
            now = replayed.metrics.get(metric, float("nan"))
            was = float("nan") if before is None else before
            gap = relative(was, now) if before is not None or now - now == 0 else 0.0
            found.append((f"{metric} of {stage}", gap, gap == 0.0))
            rows.append((stage, metric, f"{was:.10g}", f"{now:.10g}", f"{gap:.1e}"))
    if rows:
        print(
            *text_table(("stage", "metric", "recorded", "replayed", "difference"), rows, 2),
            sep="\n",
        )
    if differences:
        told = [(d.name, f"{d.relative:.1e}", "yes" if d.equal else "no") for d in differences]
        print("", *text_table(("parameter", "difference", "to the bit"), told), "", sep="\n")
    found += [(d.name, d.relative, d.equal) for d in differences]
    name, gap, _ = max(found, key=lambda entry: entry[1])
    return name, gap, all(equal for _, _, equal in found)


def _judge(worst: tuple[str, float, bool], tolerance: float, where: str) -> None:
    """Say whether the replay agrees.

    Raises:
        ReplayError: it does not.
    """
    from amp_runtime.errors import ReplayError

    name, gap, equal = worst
    if equal:
        print("metrics and parameters are those of the run, to the bit")
    elif gap <= tolerance:
        print(f"metrics and parameters are those of the run: at most {gap:.1e} apart ({name})")
    else:
        raise ReplayError(
            f"{name} differs by {gap:.1e}, more than {tolerance:g}",
            where=where,
            fix="replay with the code, the data and on the machine that the run had; if they "
            "are, a node kind computes with more than its rows, parameters and state",
        )
