"""Counters: histograms, sums of metrics, and reports that go through plain data."""

from __future__ import annotations

import numpy as np
import pytest

from amp_runtime.control.stages import Progress, Split, StageResult, Tally, Target
from amp_runtime.nodes.statistics import (
    ChannelCount,
    Histogram,
    MetricSum,
    NodeReport,
    ProcessFacts,
    WorkerReport,
    add_metrics,
)
from amp_runtime.rows.message import Mode
from amp_runtime.wire.codec import Envelope, decode, encode_record
from amp_runtime.wire.protocol import Status


def test_a_histogram_counts_and_grows():
    histogram = Histogram()
    histogram.add(np.array([0, 3, 3]))
    histogram.add(np.array([1]))
    histogram.add(np.array([], np.int64))
    assert histogram.counts.tolist() == [1, 1, 0, 2]
    assert (histogram.total, histogram.mean) == (4, 7 / 4)


def test_a_histogram_of_any_values_fits_into_a_record():
    histogram = Histogram()
    histogram.add(np.array([3, 4094, 4095, 4096, 1_000_000]))
    assert histogram.counts[[3, 4094, 4095]].tolist() == [1, 1, 3]
    report = WorkerReport({"linear": NodeReport(staleness=histogram.counts.tolist())})
    frames = encode_record(Envelope("0" * 32, 0, 1, 0, 0), Status(0, report))
    assert decode(frames).body == Status(0, report)


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 0), (0.25, 0), (0.26, 1), (0.5, 1), (0.51, 3), (0.95, 3), (1.0, 3)]
)
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(share, value):
    assert Histogram([1, 1, 0, 2]).percentile(share) == value


def test_an_empty_histogram_has_mean_zero():
    assert (Histogram().mean, Histogram().percentile(0.95)) == (0.0, 0)


def test_metrics_add_up_by_name():
    total: dict[str, MetricSum] = {}
    add_metrics(total, {"loss": MetricSum(1.5, 0)})
    add_metrics(total, {"loss": MetricSum(2.0, 0), "accuracy": MetricSum(3.0, 4)})
    assert total == {"loss": MetricSum(3.5, 0), "accuracy": MetricSum(3.0, 4)}


def test_a_report_crosses_and_comes_back_equal():
    sums = {"train": {"loss": MetricSum(1.5, 0)}}
    batches = {"batches_forward": 1, "batches_backward": 1}
    node = NodeReport(3, 2, **batches, staleness=[1, 2], busy_s=0.5, metrics=sums)
    facts = ProcessFacts({"sent": [ChannelCount(1, "forward", 2, 3)]}, 1.5, 100)
    report = WorkerReport({"linear": node}, facts, 7, 6, 5)
    found = decode(encode_record(Envelope("0" * 32, 0, 1, 0, 0), Status(0, report))).body.report
    assert found == report
    assert type(found.process.channels["sent"][0]) is ChannelCount
    assert (node.rows, node.batches) == (5, 2)
    assert node.mode_metrics("train") == {"loss": MetricSum(1.5, 0)}
    assert node.mode_metrics("evaluate") == {}


@pytest.mark.parametrize(
    ("train", "found"), [(1.5, None), (float("inf"), float("inf")), (None, None)]
)
def test_a_loss_has_diverged_when_its_training_sum_is_not_finite(train, found):
    metrics = {"evaluate": {"loss": MetricSum(float("nan"))}}
    if train is not None:
        metrics["train"] = {"loss": MetricSum(train), "accuracy": MetricSum(float("nan"), 1)}
    assert NodeReport(metrics=metrics).diverged_loss() == found


# ------------------------------------------------------------------------------- stages


def reports(**metrics):
    """Return one report a node, of {metric: (total, count)} in training."""
    sums = {name: {m: MetricSum(*s) for m, s in some.items()} for name, some in metrics.items()}
    return {
        n: WorkerReport({name: NodeReport(metrics={"train": some})})
        for n, (name, some) in enumerate(sums.items(), start=1)
    }


def test_losses_of_all_nodes_add_up_per_example():
    tally = Tally(examples=4)
    given = reports(a={"loss": [6.0, 0]}, b={"loss": [2.0, 0], "accuracy": [3.0, 6]})
    assert tally.metrics(given, Mode.TRAIN) == {
        "a.loss": 1.5, "b.loss": 0.5, "loss": 2.0, "accuracy": 0.5,
    }  # fmt: skip
    assert tally.metrics(given, Mode.EVALUATE) == {}


def test_a_metric_that_several_nodes_have_bears_their_names():
    given = reports(a={"accuracy": [1.0, 2]}, b={"accuracy": [3.0, 3]})
    assert Tally(examples=4).metrics(given, Mode.TRAIN) == {"a.accuracy": 0.5, "b.accuracy": 1.0}


def test_metrics_of_no_example_are_zero():
    assert Tally().metrics(reports(a={"loss": [0.0, 0]}), Mode.TRAIN) == {"loss": 0.0}


def test_staleness_is_that_of_the_stage_alone():
    def report(*counts):
        return {1: WorkerReport({"linear": NodeReport(staleness=list(counts))})}

    tally = Tally.since(report(10, 5))
    assert tally.staleness(report(10, 5)) is None
    assert tally.staleness(report(11, 6, 0, 2)) == (0 + 1 + 2 * 3) / 4


def test_a_stage_is_complete_when_all_examples_came_back():
    def result(examples):
        tally = Tally(examples=examples)
        return tally.result(Split.VALID, 1, 2.0, {}, Mode.EVALUATE, 4)

    assert (result(4).complete, result(3).complete) == (True, False)
    assert (result(4).examples_per_s, result(4).staleness) == (2.0, None)


def test_rates_are_zero_before_any_time_has_passed():
    progress = Progress(Split.TRAIN, 1, 1, 0, 10, 0.0, 1, {}, None)
    assert (progress.examples_per_s, progress.eta_s) == (0.0, None)
    assert StageResult(Split.TRAIN, 1, 0.0, 0, {}, None).examples_per_s == 0.0


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (Target("m", at_least=0.5), True),
        (Target("m", at_least=0.51), False),
        (Target("m", at_most=0.5), True),
        (Target("m", at_most=0.49), False),
        (Target("m", at_least=0.4, at_most=0.6), True),
        (Target("n", at_least=0.0), False),
    ],
)
def test_a_target_is_reached_within_its_bounds(target, reached):
    assert target.reached({"m": 0.5}) is reached
    assert target.reached({"m": float("nan")}) is False
