"""Runs that are over, or still going, from what they left in their folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from amp_runtime.errors import UsageError
from amp_runtime.output.logs import merged_lines
from amp_runtime.output.run_folder import RunFolder
from amp_runtime.output.table import text_table

NO_METRICS = {"split", "epoch", "seconds", "examples", "examples_per_s", "staleness", "complete"}
MOST_LOG_LINES = 20


def runs_table(base: str) -> str:
    """Return a table of the run folders in `base`, the newest last.

    Raises:
        UsageError: there is none.
    """
    manifests = list(Path(base).glob("*/manifest.json"))
    if not manifests:
        raise UsageError(f"no run in {base}/", fix="make run starts one")
    rows = sorted(_run_row(RunFolder(path.parent)) for path in manifests)
    headers = ("started", "run", "how it ended", "epochs", "best", "seconds")
    return "\n".join(text_table(headers, rows, 3))


def run_report(folder: RunFolder) -> str:
    """Return the stages, the closing table, evaluations, and how a run ended."""
    manifest = _read_manifest(folder)
    parts = ["\n".join([f"run {folder.path}", *manifest.get("notes", ())])]
    if stages := _lines(folder.metrics):
        metrics = _metric_names(stages)
        headers = ("epoch", "split", "examples", "seconds", "examples/s", *metrics, "staleness", "")
        rows = [_stage_row(stage, metrics) for stage in stages]
        parts.append("\n".join(text_table(headers, rows, 2)))
    if folder.report.exists():
        parts.append(folder.report.read_text().rstrip())
    for line in _lines(folder.evaluations):
        metrics = [f"{n} {_number(v)}" for n, v in line.items() if isinstance(v, float)]
        settings = " ".join(line.get("overrides", ()))
        parts.append(f"evaluated on {line.get('split')} {settings}: {'  '.join(metrics)}")
    if wrong := [line for line in merged_lines(folder.logs) if " ERROR " in line[:64]]:
        parts.append("\n".join(["from the logs:", *wrong[:MOST_LOG_LINES]]))
    status = manifest.get("exit_code")
    parts.append(f"{_ending(manifest)}{f' (exit status {status})' if status else ''}")
    return "\n\n".join(parts)


def _run_row(folder: RunFolder) -> tuple[str, ...]:
    manifest, stages = _read_manifest(folder), _lines(folder.metrics)
    trained = [stage["epoch"] for stage in stages if stage.get("split") == "train"]
    why = _ending(manifest)
    return (
        manifest.get("started", "")[:19].replace("T", " "),
        folder.path.name,
        why if len(why) <= 60 else f"{why[:57]}...",
        str(max(trained, default=0)),
        _best(stages),
        _seconds(manifest, stages),
    )


def _ending(manifest: Mapping[str, Any]) -> str:
    return str(manifest.get("why", "no end is recorded: it still runs, or was killed"))


def _best(stages: Sequence[Mapping[str, Any]]) -> str:
    """Return the best value of one metric: highest of accuracy and the like, lowest loss."""
    validated = [stage for stage in stages if stage.get("split") == "valid"] or list(stages)
    names = _metric_names(validated)
    name = next((n for n in names if "loss" not in n), next(iter(names), ""))
    values = [stage[name] for stage in validated if isinstance(stage.get(name), float | int)]
    if not values:
        return "-"
    return f"{name} {(min if 'loss' in name else max)(values):.4f}"


def _seconds(manifest: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> str:
    try:
        started, ended = (datetime.fromisoformat(manifest[key]) for key in ("started", "ended"))
    except (KeyError, ValueError):
        return f"{sum(stage.get('seconds', 0) for stage in stages):.0f}"
    return f"{(ended - started).total_seconds():.0f}"


def _stage_row(stage: Mapping[str, Any], metrics: Sequence[str]) -> tuple[str, ...]:
    staleness = stage.get("staleness")
    return (
        str(stage.get("epoch", "")),
        str(stage.get("split", "")),
        str(stage.get("examples", "")),
        f"{stage.get('seconds', 0):.1f}",
        f"{stage.get('examples_per_s', 0):.0f}",
        *(_number(stage.get(name)) for name in metrics),
        "-" if staleness is None else f"{staleness:.2f}",
        "" if stage.get("complete", True) else "stopped early",
    )


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float | int) else "not finite"


def _metric_names(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(n for stage in stages for n in stage if n not in NO_METRICS))


def _read_manifest(folder: RunFolder) -> dict[str, Any]:
    """Return the manifest, {} where it cannot be read: a list of runs shows it all the same."""
    try:
        found = json.loads((folder.path / "manifest.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines; a last line that is being written is left."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return [item for item in found if isinstance(item, dict)]
