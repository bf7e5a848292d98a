"""`runs` and `report` tell from a folder what a run did, whatever is missing in it."""

from __future__ import annotations

import json

import pytest

from amp_runtime.errors import UsageError
from amp_runtime.output.past_runs import run_report, runs_table
from amp_runtime.output.run_folder import RunFolder

STAGES = [
    {"split": "train", "epoch": 1, "seconds": 2.0, "loss": 2.0, "accuracy": 0.25, "examples": 100,
     "examples_per_s": 50.0, "staleness": 0.5, "complete": True},
    {"split": "valid", "epoch": 1, "seconds": 1.0, "loss": 1.5, "accuracy": 0.5, "examples": 10,
     "examples_per_s": 10.0, "staleness": None, "complete": True},
    {"split": "train", "epoch": 2, "seconds": 1.0, "loss": None, "accuracy": 0.75, "examples": 60,
     "examples_per_s": 60.0, "staleness": 0.25, "complete": False},
]  # fmt: skip


def made(base, name, manifest, stages=(), report="", log=""):
    path = base / name
    (path / "logs").mkdir(parents=True)
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    (path / "manifest.json").write_text(text)
    if stages:
        (path / "metrics.jsonl").write_text("".join(json.dumps(s) + "\n" for s in stages))
    if report:
        (path / "report.txt").write_text(report)
    if log:
        (path / "logs" / "a.0.log").write_text(log)
    return RunFolder(path)


DONE = {
    "started": "2026-01-02T03:04:05+00:00",
    "ended": "2026-01-02T03:05:06+00:00",
    "why": "2 epochs done",
    "exit_code": 0,
}


def test_runs_are_listed_by_time_with_epochs_the_best_metric_and_seconds(tmp_path):
    made(tmp_path, "a-new", {**DONE, "started": "2026-01-02T03:05:00+00:00"}, STAGES[:1])
    made(tmp_path, "b-old", DONE, STAGES)
    cells = [line.split("  ") for line in runs_table(str(tmp_path)).splitlines()[2:]]
    assert [[c.strip() for c in row if c.strip()] for row in cells] == [
        ["2026-01-02 03:04:05", "b-old", "2 epochs done", "2", "accuracy 0.5000", "61"],
        ["2026-01-02 03:05:00", "a-new", "2 epochs done", "1", "accuracy 0.2500", "6"],
    ]


def test_the_lowest_loss_is_the_best_where_there_is_no_other_metric(tmp_path):
    losses = [{**STAGES[1], "loss": loss} for loss in (1.5, 0.5, 0.75)]
    made(tmp_path, "a", DONE, [{k: v for k, v in s.items() if k != "accuracy"} for s in losses])
    assert "loss 0.5000" in runs_table(str(tmp_path))


@pytest.mark.parametrize("manifest", ["{", "[]", "{}"])
def test_a_run_without_an_end_or_with_a_broken_manifest_is_listed_all_the_same(tmp_path, manifest):
    made(tmp_path, "broken", manifest, STAGES)
    row = runs_table(str(tmp_path)).splitlines()[2]
    assert "broken" in row
    assert "no end is recorded" in row
    assert row.endswith("  4")  # the seconds of its stages


def test_no_run_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no run in"):
        runs_table(str(tmp_path))


def test_a_report_has_the_stages_the_closing_table_and_what_went_wrong(tmp_path):
    log = (
        "2026-01-02T03:04:06.000+00:00 INFO a started\n"
        "2026-01-02T03:04:07.000+00:00 ERROR a raised what='ERROR of mine'\n"
        "    Traceback\n"
    )
    why = "AMP-E602: node 'a' raised"
    manifest = {**DONE, "why": why, "exit_code": 70, "notes": ["2 lines were left out"]}
    folder = made(tmp_path, "a", manifest, STAGES, "node  rows\n", log)
    told = run_report(folder)
    assert told.startswith(f"run {folder.path}\n2 lines were left out\n\n")
    rows = [line.split() for line in told.splitlines()]
    assert [
        "epoch",
        "split",
        "examples",
        "seconds",
        "examples/s",
        "loss",
        "accuracy",
        "staleness",
    ] in rows
    assert ["1", "train", "100", "2.0", "50", "2.0000", "0.2500", "0.50"] in rows
    assert ["1", "valid", "10", "1.0", "10", "1.5000", "0.5000", "-"] in rows
    assert [
        "2",
        "train",
        "60",
        "1.0",
        "60",
        "not",
        "finite",
        "0.7500",
        "0.25",
        "stopped",
        "early",
    ] in rows
    assert "\n\nnode  rows\n" in told
    assert "raised what='ERROR of mine'" in told
    assert "started" not in told
    assert told.endswith(f"{why} (exit status 70)")


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    folder = made(tmp_path, "a", {}, STAGES[:1])
    with folder.metrics.open("a") as file:
        file.write('{"split": "va')
    assert run_report(folder).count("train") == 1
