"""The benchmark's own parts: its tables, who takes part, and the timers of a profile."""

from __future__ import annotations

import json

import pytest

from benchmarks import timers
from benchmarks.bench import main, markdown, rates_of, summary
from benchmarks.experiments import EXPERIMENTS, Contestant
from benchmarks.profile_run import parts_of, table
from benchmarks.results_file import ResultsFile


def stage(split, epoch, examples, seconds, **more):
    return {
        "split": split, "epoch": epoch, "examples": examples, "seconds": seconds,
        "staleness": 0.5, **more,
    }  # fmt: skip


def test_rates_leave_the_first_epoch_out():
    stages = [
        stage("train", 1, 100, 50.0),
        stage("valid", 1, 10, 9.0, accuracy=0.1),
        stage("train", 2, 100, 4.0),
        stage("valid", 2, 10, 1.0, accuracy=0.2),
        stage("train", 3, 100, 6.0),
        stage("valid", 3, 10, 1.5, accuracy=0.3),
    ]
    found = rates_of(stages)
    assert found["train_per_s"] == 200 / 10
    assert found["evaluate_per_s"] == 20 / 2.5
    assert found["valid"] == {"epoch": 3, "accuracy": 0.3}


def line(contestant, train, evaluate):
    return {"contestant": contestant.plain(), "train_per_s": train, "evaluate_per_s": evaluate}


def test_multiples_are_of_the_best_median_that_is_batched_by_hand():
    ours, slow, *_ = EXPERIMENTS["trees"].contestants()
    by_hand = [c for c in EXPERIMENTS["trees"].contestants() if c.is_batched_by_hand][:2]
    eager = next(c for c in EXPERIMENTS["trees"].contestants() if c.is_eager)
    lines = [
        *(line(ours, rate, 50.0) for rate in (90.0, 100.0, 400.0)),
        *(line(by_hand[0], rate, 200.0) for rate in (30.0, 40.0, 900.0)),
        *(line(by_hand[1], rate, 100.0) for rate in (50.0, 50.0, 10.0)),
        line(eager, 5000.0, 5000.0),
    ]
    rows = {row["name"]: row for row in summary(EXPERIMENTS["trees"], lines)}
    assert slow.name not in rows
    assert rows[ours.name]["train_per_s"] == {
        "median": 100.0, "least": 90.0, "most": 400.0, "of_best_by_hand": 2.0,
    }  # fmt: skip
    assert rows[ours.name]["evaluate_per_s"]["of_best_by_hand"] == 0.25
    text = markdown("trees", list(rows.values()))
    assert f"| {ours.name} | 100 (90 to 400) | 2.00 | 50 (50 to 50) | 0.25 | 3 | - |" in text


def test_contestants_of_an_experiment_differ_and_are_known_by_their_names():
    for experiment in EXPERIMENTS.values():
        names = [contestant.name for contestant in experiment.contestants()]
        assert len(set(names)) == len(names)
        for contestant in experiment.contestants():
            assert Contestant(**json.loads(json.dumps(contestant.plain()))) == contestant


def test_what_is_measured_is_not_measured_again(tmp_path):
    results, contestant = ResultsFile(tmp_path / "r.jsonl"), EXPERIMENTS["images"].contestants()[0]
    key = {"contestant": contestant.plain(), "repeat": 0}
    times = []
    for _ in range(2):
        assert results.get(key, lambda: {"n": times.append(1) or len(times)})["n"] == 1


def test_a_benchmark_of_which_all_is_done_only_writes_its_tables(tmp_path, monkeypatch, capsys):
    name, file = "images", tmp_path / "bench.jsonl"
    (tmp_path / EXPERIMENTS[name].needs).mkdir()
    contestants = EXPERIMENTS[name].contestants()
    lines = [
        {"experiment": name, "repeat": 0, "settings": ["data.train=9"], **line(c, 8.0, 9.0)}
        for c in contestants
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    monkeypatch.setenv("AMP_DATA", str(tmp_path))
    monkeypatch.setenv("REPEATS", "1")
    monkeypatch.setattr("sys.argv", ["bench", str(file), name, "data.train=9"])
    main()
    out = capsys.readouterr().out
    assert out == (tmp_path / "bench.md").read_text()
    assert all(f"| {c.name} | 8 (8 to 8) | 1.00 |" in out for c in contestants)
    made = json.loads((tmp_path / "bench.json").read_text())
    assert [row["name"] for row in made["experiments"][name]] == [c.name for c in contestants]
    assert made["machine"]["cores"]
    assert file.read_text().count("\n") == len(contestants)


def test_a_benchmark_says_what_it_leaves_out_and_what_it_does_not_know(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("AMP_DATA", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["bench", str(tmp_path / "bench.jsonl"), "trees"])
    main()
    assert f"trees is left out: {tmp_path / 'sst'} is not there" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["bench", str(tmp_path / "bench.jsonl"), "tree"])
    with pytest.raises(SystemExit, match=r"no experiment 'tree'.*trees"):
        main()


# ------------------------------------------------------------------------------- the profile


@pytest.mark.parametrize("name", [name for names in timers.PARTS.values() for name in names])
def test_all_that_a_profile_times_is_there(name):
    _, _, function = timers.find(name)
    assert callable(function)


@pytest.mark.parametrize("name", ["amp_runtime.errors:No.such", "amp_runtime.errors:no_such"])
def test_what_a_profile_cannot_time_is_named(name):
    with pytest.raises(LookupError, match="to be timed: mend PARTS"):
        timers.find(name)


def test_time_goes_to_the_innermost_part_alone():
    ticks = iter([0.0, 1.0, 1.5, 3.5, 4.5, 10.0])
    times = timers.Times(lambda: next(ticks))
    inner = times.timed("inner", lambda: "done")
    outer = times.timed("outer", lambda: inner())
    assert outer() == "done"  # at 1; inner from 1.5 to 3.5; back at 4.5
    times.switch()
    assert times.cpu_s == {"loop": 1.0 + 5.5, "outer": 0.5 + 1.0, "inner": 2.0}
    assert times.calls == {"outer": 1, "inner": 1}


def test_a_part_that_raises_is_left():
    times = timers.Times()

    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        times.timed("part", fail)()
    times.switch()
    assert times._stack == ["loop"]


def test_table_of_a_worker_says_what_a_batch_and_a_row_cost():
    worker = {
        "worker": "linear-1",
        "wall_s": 10.0,
        "waited_s": 4.0,
        "process_cpu_s": 6.0,
        "call_s": 2e-6,
        "calls": {"poll": 500_000},
        "cpu_s": {"loop": 1.0, "poll": 0.5, "host": 0.5, "forward linear-1": 2.0,
                  "accumulate linear-1": 1.0},
        "nodes": {"linear-1": {"rows": 30_000, "batches": 1_000}},
    }  # fmt: skip
    parts = parts_of(worker)
    assert parts["compute"] == 3.0
    assert parts["libzmq's thread"] == 1.0
    assert sum(parts.values()) == 6.0
    text = table(worker)
    assert "| compute | 3.00 | 50 % | 3000.0 | 100.00 |" in text
    assert "4.0 s waiting for messages and 1.0 s for a core; 6.0 s of CPU" in text
    assert "timers took 1.0 s of it" in text
