"""The controller by scripted events: what it admits, when it asks, what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wirings import chain, examples, recurrent, tokens_chain

from amp_runtime.control.actions import Action, Finished, Inject, StageDone, ToWorker, Warn
from amp_runtime.control.controller import Controller
from amp_runtime.control.lifecycle import ControllerStatus
from amp_runtime.control.recovery import FIRST, Generation
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Target
from amp_runtime.errors import (
    ConfigError,
    InvariantError,
    LifecycleError,
    MessagesLostError,
    StallError,
    UnmatchedBackwardError,
    WireError,
)
from amp_runtime.nodes.statistics import (
    ChannelCount,
    ChannelCounts,
    MetricSum,
    NodeReport,
    ProcessFacts,
    WorkerReport,
)
from amp_runtime.nodes.updates import Schedule
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.wire.protocol import (
    Acknowledged,
    Barrier,
    Hello,
    Link,
    Linked,
    Parameters,
    Record,
    Retired,
    SendParameters,
    Status,
    Stop,
    Structure,
)

DEFAULT = ControllerSettings(max_active_keys=2, update_every=3)


def report(metrics: dict[str, float] | None = None, **given: Any) -> WorkerReport:
    """Return a worker's report: the sums of the loss's metrics, in training and evaluation."""
    sums = {name: MetricSum(total, 0) for name, total in (metrics or {}).items()}
    nodes = {"loss": NodeReport(metrics={"train": sums, "evaluate": sums})} if sums else {}
    return WorkerReport(**{"nodes": nodes, **given})


@dataclass
class Play:
    """A controller of two workers (linear, loss), whose replies the test gives.

    Attributes:
        out: the rows under way, by instance: [slots].
        records: sent to worker 0, since they were last taken.
    """

    controller: Controller
    out: dict[int, list[list[int]]] = field(default_factory=dict)
    injected: list[int] = field(default_factory=list)
    modes: list[Mode] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    finished: Finished | None = None
    now: float = 0.0

    @staticmethod
    def of(
        settings: ControllerSettings = DEFAULT,
        lengths: Sequence[int] = (1,) * 5,
        valid: int = 0,
        wiring: Any = None,
        generation: Generation = FIRST,
    ) -> Play:
        """Return a controller that has not begun."""
        wiring = wiring or chain()
        peer_of = [1] * (len(wiring.nodes) - 1) + [2]
        train, held_out = examples(lengths), examples([1] * valid)
        return Play(Controller(wiring, train, held_out, settings, peer_of, generation=generation))

    def begun(self) -> Play:
        for worker in (0, 1):
            self.record(hello(worker))
        for worker in (0, 1):
            self.record(Linked(worker))
        return self

    def record(self, record: Record) -> Play:
        return self.act(self.controller.on_record(record, self.now))

    def act(self, actions: list[Action]) -> Play:
        for action in actions:
            match action:
                case Inject(message=message):
                    self.modes.append(message.mode)
                    for row in message.columns.tolist():
                        if row[2] not in self.out:
                            self.injected.append(row[2])
                        self.out.setdefault(row[2], []).append([row[1]])
                case ToWorker(peer=1, record=record):
                    self.records.append(record)
                case StageDone(result=result):
                    self.results.append(result)
                case Warn(text=text):
                    self.warnings.append(text)
                case Finished():
                    self.finished = action
        return self

    def answer(self, *instances: int, n_rows: int | None = None) -> Play:
        """Answer all rows of some instances, or the first `n_rows` of each."""
        columns = []
        for instance in instances:
            rows = self.out[instance]
            columns += rows[:n_rows]
            del rows[:n_rows]
            if not rows:
                del self.out[instance]
        message = Message(Direction.BACKWARD, Mode.TRAIN, 0, np.array(columns, np.int32), None)
        return self.act(self.controller.on_answers(message, self.now))

    def acknowledge(self, metrics: dict[str, float] | None = None) -> Play:
        """Let both workers acknowledge the barrier that was asked for last."""
        number = self.controller._barrier
        self.record(Acknowledged(0, number, report()))
        return self.record(Acknowledged(1, number, report(metrics)))

    def barrier(self) -> Barrier:
        """Return the barrier that was asked for last; the records before are forgotten."""
        (barrier,) = [r for r in self.records if isinstance(r, Barrier)]
        self.records.clear()
        return barrier

    def run_stage(self) -> Play:
        """Answer every instance as it comes until a barrier."""
        while self.status is ControllerStatus.RUNNING:
            self.answer(min(self.out))
        return self

    def collect(self) -> Play:
        return self.record(Parameters(0, "linear", {"weight": np.ones((2, 2))}))

    @property
    def status(self) -> ControllerStatus:
        return self.controller.status


def hello(worker: int) -> Hello:
    return Hello(worker, 1, [], 1, "", 0)


# -------------------------------------------------------------------------------- start


def test_linking_waits_for_every_hello_and_running_for_every_linked():
    play = Play.of()
    play.record(hello(1))
    assert play.records == []
    play.record(hello(0))
    assert [type(r) for r in play.records] == [Link]
    play.record(Linked(0))
    assert play.injected == []
    play.record(Linked(1))
    assert play.status is ControllerStatus.RUNNING
    assert play.injected == [0, 1]


def test_nothing_to_train_on_ends_the_run_and_says_so():
    play = Play.of(lengths=[]).begun().acknowledge().collect()
    assert play.injected == []
    assert play.results == []
    assert play.finished is not None
    assert play.finished.why == "no examples to train on"
    assert play.finished.parameters["linear"]["weight"].tolist() == [[1, 1], [1, 1]]


# ---------------------------------------------------------------------------- admission


def test_as_many_instances_as_keys_are_in_flight_and_order_is_kept():
    play = Play.of(replace(DEFAULT, max_active_keys=3)).begun()
    assert play.injected == [0, 1, 2]
    play.answer(1)
    assert play.injected == [0, 1, 2, 3]
    play.answer(0, 2, 3)
    assert play.injected == [0, 1, 2, 3, 4]
    play.answer(4)
    assert play.status is ControllerStatus.BARRIER


def test_an_instance_retires_only_with_its_last_row():
    play = Play.of(lengths=[3, 3, 3], wiring=tokens_chain()).begun()
    assert play.injected == [0, 1]
    play.answer(0, n_rows=2)
    assert play.injected == [0, 1]
    play.answer(0)
    assert play.injected == [0, 1, 2]


def test_rows_in_flight_are_bounded_and_a_larger_instance_goes_alone():
    settings = replace(DEFAULT, max_active_keys=9, max_active_rows=4)
    play = Play.of(settings, lengths=[2, 2, 2, 2], wiring=tokens_chain()).begun()
    assert play.injected == [0, 1]
    play = Play.of(settings, lengths=[7, 7], wiring=tokens_chain()).begun()
    assert play.injected == [0]
    play.answer(0, n_rows=6)
    assert play.injected == [0]
    play.answer(0)
    assert play.injected == [0, 1]


def test_auto_rows_are_four_times_those_of_the_mean_instance():
    play = Play.of(lengths=[1, 2, 3], wiring=tokens_chain())
    assert play.controller.in_flight.max_rows == 4 * 2 * 2 + 1


@pytest.mark.parametrize("n", [1, 2])
def test_more_keys_than_examples_inject_them_all(n):
    play = Play.of(replace(DEFAULT, max_active_keys=100), lengths=[1] * n).begun()
    assert play.injected == list(range(n))
    play.answer(*play.injected)
    assert play.status is ControllerStatus.BARRIER
    play.acknowledge({"loss": 2.0 * n})
    assert (play.results[0].examples, play.results[0].metrics) == (n, {"loss": 2.0})


def test_what_remains_of_a_batch_is_an_instance_too():
    play = Play.of(wiring=chain(batch=2)).begun()
    play.run_stage().acknowledge({"loss": 10.0})
    assert play.injected == [0, 1, 2]
    assert (play.results[0].examples, play.results[0].complete) == (5, True)
    assert play.results[0].metrics == {"loss": 2.0}


def test_structure_goes_to_the_nodes_that_need_it_with_every_instance():
    wiring = chain()
    controller = Controller(wiring, examples([1] * 3), examples([]), DEFAULT, [1, 2])
    actions: list[Action] = []
    for record in (hello(0), hello(1), Linked(0), Linked(1)):
        actions += controller.on_record(record, 0.0)
    sent = [a for a in actions if isinstance(a, ToWorker) and isinstance(a.record, Structure)]
    assert {a.peer for a in sent} == {2}
    assert np.concatenate([a.record.arrays["instances"] for a in sent]).tolist() == [0, 1]
    assert set(sent[0].record.arrays) == {"instances", "n_examples", "label", "#label"}


def test_retired_instances_are_told_before_the_barrier():
    play = Play.of(lengths=[1, 1]).begun()
    play.records.clear()
    play.answer(0, 1)
    *told, last = play.records
    assert isinstance(last, Barrier)
    assert all(isinstance(r, Retired) for r in told)
    assert np.concatenate([r.arrays["instances"] for r in told]).tolist() == [0, 1]
    assert sum(int(r.arrays["n_examples"].sum()) for r in told) == 2


def test_under_verify_rows_carry_their_state_twice():
    play = Play.of(replace(DEFAULT, verify=True))
    actions: list[Action] = []
    for record in (hello(0), hello(1), Linked(0), Linked(1)):
        actions += play.controller.on_record(record, 0.0)
    (columns,) = [a.message.columns for a in actions if isinstance(a, Inject)]
    assert columns[:, 2:].tolist() == [[0, 0, 0, 0], [1, 0, 1, 0]]


@given(
    lengths=st.lists(st.integers(1, 5), max_size=12),
    keys=st.integers(1, 5),
    most_rows=st.integers(1, 9),
    batch=st.integers(1, 3),
    synchronous=st.booleans(),
    valid=st.integers(0, 3),
    random=st.randoms(use_true_random=False),
)
def test_bounds_and_order_hold_whatever_comes_back_when(
    lengths, keys, most_rows, batch, synchronous, valid, random
):
    settings = ControllerSettings(
        max_active_keys=keys,
        max_active_rows=most_rows,
        max_epochs=2,
        update_every=3,
        schedule=Schedule.SYNCHRONOUS if synchronous else Schedule.ASYNCHRONOUS,
    )
    play = Play.of(settings, lengths, valid, tokens_chain(batch=batch)).begun()
    flight = play.controller.in_flight
    while play.finished is None:
        match play.status:
            case ControllerStatus.RUNNING:
                assert 1 <= len(play.out) <= keys
                assert sum(map(len, play.out.values())) == flight.rows
                assert flight.rows <= most_rows or len(play.out) == 1
                some = random.sample(sorted(play.out), random.randint(1, len(play.out)))
                play.answer(*some, n_rows=random.randint(1, 5))
            case ControllerStatus.BARRIER:
                assert play.out == {}
                play.acknowledge({"loss": 1.0})
            case _:
                play.record(Parameters(0, "embedding", {}))
    assert play.injected == sorted(play.injected)
    assert len(play.injected) == len(set(play.injected))
    assert [r.examples for r in play.results if r.split == "train"] == [len(lengths)] * (
        2 if lengths else 0
    )


# ---------------------------------------------------------------------- barriers and end


def test_each_epoch_trains_validates_and_stops_after_the_last():
    play = Play.of(replace(DEFAULT, max_epochs=2), lengths=[1] * 2, valid=1).begun()
    barriers = []
    for _ in range(4):
        play.run_stage()
        barriers.append(play.barrier())
        play.acknowledge({"loss": 6.0})
    assert [(r.split, r.epoch, r.metrics) for r in play.results] == [
        ("train", 1, {"loss": 3.0}), ("valid", 1, {"loss": 6.0}),
        ("train", 2, {"loss": 3.0}), ("valid", 2, {"loss": 6.0}),
    ]  # fmt: skip
    assert [(b.barrier, b.apply_left_over, b.reset_metrics) for b in barriers] == [
        (1, True, True), (2, False, True), (3, True, True), (4, False, True),
    ]  # fmt: skip
    assert play.modes == [Mode.TRAIN, Mode.EVALUATE] * 2
    assert play.injected == list(range(6))  # instances are never numbered twice
    assert [type(r) for r in play.records] == [SendParameters]
    play.collect()
    assert [type(r) for r in play.records] == [SendParameters, Stop]
    assert play.finished is not None
    assert play.finished.why == "2 epochs done"


def test_without_validation_data_epochs_follow_each_other():
    play = Play.of(replace(DEFAULT, max_epochs=2), lengths=[1] * 2).begun()
    play.run_stage().acknowledge().run_stage().acknowledge()
    assert [r.split for r in play.results] == ["train", "train"]
    assert play.status is ControllerStatus.COLLECTING


def test_validation_instances_retire_with_no_examples_to_learn_from():
    play = Play.of(lengths=[1], valid=2).begun().run_stage().acknowledge()
    play.records.clear()
    play.run_stage()
    counts = [r.arrays["n_examples"].tolist() for r in play.records if isinstance(r, Retired)]
    assert [n for some in counts for n in some] == [0, 0]


@pytest.mark.parametrize(
    ("target", "values", "epochs"),
    [
        (Target("loss", at_most=0.5), [2.0, 0.5, 0.1], 2),
        (Target("loss", at_least=2.0), [1.0, 1.9, 2.0], 3),
        (Target("loss", at_most=0.5), [2.0, 0.6, 0.7], 3),
    ],
)
def test_the_run_ends_with_the_validation_that_reaches_the_target(target, values, epochs):
    play = Play.of(replace(DEFAULT, max_epochs=3, target=target), lengths=[1], valid=1).begun()
    for value in values[:epochs]:
        play.run_stage().acknowledge({"loss": -100.0 if target.at_most else 100.0})
        play.run_stage().acknowledge({"loss": value})
    play.collect()
    assert play.finished is not None
    assert len(play.results) == 2 * epochs
    reached = target.reached({"loss": values[epochs - 1]})
    assert play.finished.why.startswith("target reached: loss" if reached else "3 epochs done")


@pytest.mark.parametrize("valid", [0, 1])
def test_a_target_that_no_metric_can_reach_is_refused_when_the_metrics_are_known(valid):
    target = Target("los", at_most=0.5)
    play = Play.of(replace(DEFAULT, max_epochs=3, target=target), lengths=[1], valid=valid).begun()
    if valid:
        play.run_stage().acknowledge({"loss": 1.0})
    with pytest.raises(ConfigError, match=r"training.target: no metric 'los' .*mean 'loss'.*has"):
        play.run_stage().acknowledge({"loss": 1.0})


def test_a_barrier_is_over_when_all_have_acknowledged():
    play = Play.of(lengths=[1]).begun().run_stage()
    play.record(Acknowledged(1, 1, report()))
    assert play.results == []
    play.record(Acknowledged(0, 1, report()))
    assert len(play.results) == 1


def test_the_acknowledged_metrics_stand_though_a_later_status_has_none():
    play = Play.of(lengths=[1]).begun().run_stage()
    play.record(Acknowledged(1, 1, report({"loss": 4.0})))
    play.record(Status(1, report()))  # a second passes; its metrics are reset already
    play.record(Acknowledged(0, 1, report()))
    assert play.results[0].metrics == {"loss": 4.0}


def test_a_status_shows_in_the_progress():
    play = Play.of(lengths=[1] * 4).begun().answer(0)
    play.now = 2.0
    play.record(Status(1, report({"loss": 3.0})))
    progress = play.controller.progress(2.0)
    assert progress is not None
    assert (progress.examples, progress.n_examples, progress.in_flight) == (1, 4, 2)
    assert progress.metrics == {"loss": 3.0}
    assert progress.eta_s == 6.0  # 3 more at 1 in 2 s


def test_a_channel_that_lost_rows_is_named_with_both_counts():
    play = Play.of(lengths=[1]).begun().run_stage()
    sent = ProcessFacts({"sent": [[2, "forward", 3, 7]], "received": [[0, "control", 1, 0]]})
    received = ProcessFacts({"received": [[1, "forward", 2, 5]]})
    play.record(Acknowledged(0, 1, report(process=sent)))
    with pytest.raises(
        InvariantError,
        match=r"forward channel from linear to loss: .*sent \(3, 7\), received \(2, 5\)",
    ):
        play.record(Acknowledged(1, 1, report(process=received)))


def test_counts_of_control_channels_may_differ_at_a_barrier():
    play = Play.of(lengths=[1]).begun().run_stage()
    facts = ProcessFacts({"sent": [[0, "control", 3, 0]]})
    play.record(Acknowledged(0, 1, report(process=facts)))
    play.record(Acknowledged(1, 1, report()))
    assert len(play.results) == 1


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_training_loss_that_is_not_finite_is_warned_of_once_with_node_and_epoch(loss):
    play = Play.of(replace(DEFAULT, max_epochs=3)).begun()
    play.run_stage().acknowledge({"loss": 1.0})
    assert play.warnings == []
    play.record(Status(1, report({"loss": loss})))
    said = f"epoch 2: the training loss of node 'loss' is {loss}; the run goes on, but has"
    assert [text[: len(said)] for text in play.warnings] == [said]
    play.run_stage().acknowledge({"loss": loss})
    play.run_stage().acknowledge({"loss": loss})
    assert len(play.warnings) == 1
    assert len(play.results) == 3


def test_it_is_warned_of_at_the_end_of_the_epoch_at_the_latest():
    play = Play.of(valid=2).begun().run_stage()
    assert play.barrier().epoch == 1
    play.acknowledge({"loss": float("nan")})
    assert len(play.warnings) == 1


# -------------------------------------------------------------------------- synchronous


def test_a_synchronous_step_waits_for_its_examples_and_for_every_worker():
    settings = replace(DEFAULT, schedule=Schedule.SYNCHRONOUS, max_active_keys=9)
    play = Play.of(settings, lengths=[1] * 5).begun()
    assert play.injected == [0, 1, 2]
    play.answer(0, 1)
    assert play.injected == [0, 1, 2]
    play.answer(2)
    barrier = play.barrier()
    assert (barrier.step_examples, barrier.reset_metrics, barrier.apply_left_over) == (
        3, False, False,
    )  # fmt: skip
    play.record(Acknowledged(0, 1, report()))
    assert play.injected == [0, 1, 2]
    play.record(Acknowledged(1, 1, report()))
    assert play.results == []
    assert play.injected == [0, 1, 2, 3, 4]
    play.answer(3, 4)
    barrier = play.barrier()
    assert (barrier.step_examples, barrier.reset_metrics) == (2, True)


def test_a_synchronous_step_holds_whole_instances():
    settings = replace(DEFAULT, schedule=Schedule.SYNCHRONOUS, max_active_keys=9)
    play = Play.of(settings, lengths=[1] * 8, wiring=chain(batch=2)).begun()
    assert play.injected == [0, 1]
    play.answer(0, 1)
    assert play.barrier().step_examples == 4


def test_keys_bound_the_work_inside_a_synchronous_step():
    settings = replace(DEFAULT, schedule=Schedule.SYNCHRONOUS, max_active_keys=2)
    play = Play.of(settings, lengths=[1] * 5).begun()
    assert play.injected == [0, 1]
    play.answer(0)
    assert play.injected == [0, 1, 2]
    play.answer(1)
    assert play.injected == [0, 1, 2]


def test_validation_takes_no_synchronous_step():
    settings = replace(DEFAULT, schedule=Schedule.SYNCHRONOUS, max_active_keys=9)
    play = Play.of(settings, lengths=[1], valid=5).begun().run_stage().acknowledge()
    play.records.clear()
    assert play.injected[1:] == [1, 2, 3, 4, 5]
    play.run_stage()
    assert play.barrier().step_examples == 0


# --------------------------------------------------------------------------------- stop


def finish(play: Play) -> Finished:
    """Bring a stopped run to its end: what is in flight comes back, nothing is injected."""
    injected = list(play.injected)
    while play.finished is None:
        match play.status:
            case ControllerStatus.RUNNING:
                play.answer(*play.out)
            case ControllerStatus.BARRIER:
                play.acknowledge({"loss": 1.0})
            case ControllerStatus.COLLECTING:
                play.collect()
            case ControllerStatus.STARTING:
                play.begun()
            case ControllerStatus.LINKING:
                play.record(Linked(0)).record(Linked(1))
    assert play.injected == injected
    return play.finished


def at(status: str) -> Play:
    settings = replace(DEFAULT, max_epochs=2)
    play = Play.of(settings, lengths=[1] * 4, valid=5)
    if status == "linking":
        play.record(hello(0)).record(hello(1))
    if status in ("starting", "linking"):
        return play
    play.begun()
    if status == "running":
        return play.answer(0)
    play.run_stage()
    if status == "barrier":
        return play.record(Acknowledged(0, 1, report()))
    return play.acknowledge()


@pytest.mark.parametrize("status", ["starting", "linking", "running", "validating"])
def test_a_stop_injects_nothing_more_and_waits_for_what_is_in_flight(status):
    play = at(status)
    play.act(play.controller.request_stop("SIGINT", 0.0))
    play.act(play.controller.request_stop("SIGTERM", 0.0))
    assert finish(play).why == "SIGINT"
    assert not play.results[-1].complete


def test_a_stop_during_a_barrier_ends_the_run_behind_it():
    play = at("barrier")
    play.act(play.controller.request_stop("SIGINT", 0.0))
    play.record(Acknowledged(1, 1, report()))
    assert finish(play).why == "SIGINT"
    assert [(r.split, r.complete) for r in play.results] == [("train", True)]


def test_a_stop_between_two_synchronous_steps_takes_no_step_for_nothing():
    settings = replace(DEFAULT, schedule=Schedule.SYNCHRONOUS)
    play = Play.of(settings, lengths=[1] * 9).begun().run_stage()
    assert play.barrier().step_examples == 3
    play.act(play.controller.request_stop("SIGINT", 0.0))
    play.acknowledge()
    assert play.barrier().step_examples == 0
    assert finish(play).why == "SIGINT"
    assert (play.results[0].examples, play.results[0].complete) == (3, False)


def test_a_stop_within_a_synchronous_step_applies_what_came_back():
    settings = replace(DEFAULT, schedule=Schedule.SYNCHRONOUS)
    play = Play.of(settings, lengths=[1] * 9).begun()
    play.act(play.controller.request_stop("SIGINT", 0.0))
    play.answer(0, 1)
    assert play.barrier().step_examples == 2


def test_a_stop_while_parameters_come_in_or_later_changes_nothing():
    play = Play.of(lengths=[1]).begun().run_stage().acknowledge()
    assert play.status is ControllerStatus.COLLECTING
    assert play.controller.request_stop("SIGINT", 0.0) == []
    play.collect()
    assert play.controller.request_stop("SIGINT", 0.0) == []
    assert play.finished is not None
    assert play.finished.why == "1 epoch done"


# -------------------------------------------------------------------------- what is refused


def running() -> Play:
    return Play.of().begun()


def at_barrier() -> Play:
    return Play.of(lengths=[1]).begun().run_stage()


def collecting() -> Play:
    return at_barrier().acknowledge()


@pytest.mark.parametrize(
    ("play", "record", "said"),
    [
        (running, hello(0), "'hello' came while the controller was running; .*starting -> linking"),
        (running, Linked(0), "'linked' came while the controller was running"),
        (running, Acknowledged(0, 1, report()), "'acknowledged' came while .* was running"),
        (running, Parameters(0, "linear", {}), "'parameters' came while .* was running"),
        (running, Barrier(1), "record 'barrier' is not for the controller"),
        (Play.of, Linked(0), "'linked' came while the controller was starting"),
        (Play.of, hello(2), "worker 2 answered unasked or twice"),
        (at_barrier, Acknowledged(0, 2, report()), "barrier 2 acknowledged, not 1"),
        (at_barrier, Acknowledged(5, 1, report()), "worker 5 answered unasked or twice"),
        (collecting, Parameters(0, "liner", {}), "worker 0 sent parameters of 'liner' unasked"),
        (collecting, Parameters(1, "linear", {}), "worker 1 sent parameters of 'linear' unasked"),
    ],
)
def test_a_record_out_of_turn_is_refused_with_what_was(play, record, said):
    with pytest.raises(LifecycleError, match=said):
        play().record(record)


@pytest.mark.parametrize("record", [Status, partial(Acknowledged, barrier=1)])
def test_a_report_of_nodes_that_a_worker_does_not_host_is_refused(record):
    play = at_barrier()
    with pytest.raises(WireError, match=r"worker 'linear': .*report.nodes holds 'loss'; .*linear"):
        play.record(record(worker=0, report=report({"loss": 1.0})))


def test_a_record_that_comes_twice_is_refused():
    play = Play.of().record(hello(0))
    with pytest.raises(LifecycleError, match="worker 0 answered unasked or twice"):
        play.record(hello(0))
    play = at_barrier().record(Acknowledged(0, 1, report()))
    with pytest.raises(LifecycleError, match="worker 0 answered unasked or twice"):
        play.record(Acknowledged(0, 1, report()))


def test_parameters_of_one_node_come_once():
    wiring = recurrent()
    play = Play.of(lengths=[1], wiring=wiring).begun()
    play.run_stage().acknowledge()
    play.record(Parameters(0, "embedding", {}))
    with pytest.raises(
        LifecycleError, match="worker 0 sent parameters of 'embedding' unasked or t"
    ):
        play.record(Parameters(0, "embedding", {}))
    play.record(Parameters(0, "linear-1", {}))
    assert play.finished is None
    play.record(Parameters(0, "linear-2", {}))
    assert play.finished is not None


def test_an_answer_that_comes_twice_or_late_is_refused():
    play = running()
    slots = [row[:] for row in play.out[0]]
    play.answer(0)
    play.out[0] = slots
    with pytest.raises(UnmatchedBackwardError, match="controller"):
        play.answer(0)
    play = at_barrier()
    play.out[0] = [[0]]
    with pytest.raises(LifecycleError, match="'an answer' came while the controller was barrier"):
        play.answer(0)


# ------------------------------------------------------------------------------- deadlines


def test_a_start_that_takes_too_long_names_who_is_missing():
    play = Play.of(replace(DEFAULT, start_timeout_s=3)).record(hello(0))
    play.controller.on_tick(3.0)
    with pytest.raises(StallError, match=r"starting: no word for 3 s from loss; .*start_timeout_s"):
        play.controller.on_tick(3.1)


def test_every_word_of_a_worker_starts_the_wait_anew():
    play = Play.of(replace(DEFAULT, start_timeout_s=3))
    play.now = 2.0
    play.record(hello(0))
    play.controller.on_tick(5.0)
    with pytest.raises(StallError):
        play.controller.on_tick(5.1)


def test_row_26_a_stall_in_which_rows_still_move_names_the_nodes_of_the_loop():
    play = Play.of(replace(DEFAULT, stall_timeout_s=8)).begun()
    for rows in (10, 20, 30, 40):
        play.now += 1.9
        play.record(Status(1, WorkerReport({"loss": NodeReport(rows_forward=7)})))
        nodes = {"linear": NodeReport(rows_forward=rows)}
        play.record(Status(0, WorkerReport(nodes)))
    play.now += 1.9
    with pytest.raises(
        StallError,
        match=r"; rows still go from node to node, at 'linear'; a loop of the model must end; or",
    ):
        play.controller.on_tick(play.now)


def test_a_run_that_stands_still_names_instances_and_who_owes():
    play = Play.of(replace(DEFAULT, stall_timeout_s=4)).begun().answer(0)
    held = {"linear": NodeReport(stash_used=2)}
    play.record(Status(0, report(nodes=held)))
    play.controller.on_tick(4.0)
    with pytest.raises(
        StallError, match=r"retired for 4 s; 2 are in flight, the oldest \[1, 2\]; .*linear"
    ):
        play.controller.on_tick(4.1)


@pytest.mark.parametrize(("received", "error"), [(1, MessagesLostError), (2, StallError)])
def test_row_34_rows_that_were_lost_are_told_from_rows_that_are_owed(received, error):
    play = Play.of(replace(DEFAULT, stall_timeout_s=4)).begun()
    for worker in (0, 1):
        play.record(Status(worker, report()))
    play.now = 2.0
    sent = ProcessFacts(ChannelCounts(sent=[ChannelCount(2, "forward", 2, 2)]))
    play.record(Status(0, report(process=sent)))
    with pytest.raises(StallError):
        play.controller.on_tick(4.1)  # the other worker has not said what came
    came = ProcessFacts(ChannelCounts(received=[ChannelCount(1, "forward", received, received)]))
    play.record(Status(1, report(process=came)))
    with pytest.raises(error, match="no instance has retired for 4 s") as caught:
        play.controller.on_tick(4.1)
    if error is MessagesLostError:
        assert "rows were lost; (messages, rows) sent (2, 2), received (1, 1)" in str(caught.value)
        assert "forward channel from linear to loss" in str(caught.value)


def test_a_controller_that_was_stopped_itself_begins_to_wait_anew():
    play = Play.of(replace(DEFAULT, stall_timeout_s=4)).begun()
    play.controller.excuse(3600.0)
    play.controller.on_tick(3604.0)
    with pytest.raises(StallError):
        play.controller.on_tick(3604.1)


def test_a_retirement_starts_the_wait_anew_and_a_status_does_not():
    play = Play.of(replace(DEFAULT, stall_timeout_s=4)).begun()
    play.now = 3.0
    play.answer(0)
    play.record(Status(0, report()))
    play.controller.on_tick(7.0)
    play.now = 6.0
    play.record(Status(0, report()))
    with pytest.raises(StallError):
        play.controller.on_tick(7.1)


def test_a_barrier_that_takes_too_long_names_who_is_missing():
    play = Play.of(replace(DEFAULT, stall_timeout_s=4), lengths=[1]).begun().run_stage()
    play.record(Acknowledged(1, 1, report()))
    with pytest.raises(
        StallError, match=r"barrier: no word for 4 s from linear; .*stall_timeout_s"
    ):
        play.controller.on_tick(4.1)


def test_parameters_that_take_too_long_name_who_owes_them():
    wiring = recurrent()
    peer_of = [1, 1, 1, 2, 1, 1, 1, 3]
    settings = replace(DEFAULT, stall_timeout_s=4)
    controller = Controller(wiring, examples([]), examples([]), settings, peer_of)
    for record in (*map(hello, range(3)), *map(Linked, range(3))):
        controller.on_record(record, 0.0)
    for worker in range(3):
        controller.on_record(Acknowledged(worker, 1, report()), 0.0)
    controller.on_record(Parameters(1, "linear-1", {}), 0.0)
    controller.on_record(Parameters(0, "embedding", {}), 0.0)
    with pytest.raises(StallError, match=r"collecting: no word for 4 s from embedding.*linear-2; "):
        controller.on_tick(4.1)


# ------------------------------------------------------------------------------- limits


def test_max_examples_cuts_the_epoch_in_the_middle_of_an_instance_and_validates():
    settings = replace(DEFAULT, max_epochs=9, max_examples=8)
    play = Play.of(settings, lengths=[1] * 6, valid=3, wiring=chain(batch=4)).begun()
    for _ in range(4):
        play.run_stage().acknowledge()
    play.collect()
    assert [(r.split.value, r.epoch, r.examples, r.complete) for r in play.results] == [
        ("train", 1, 6, True),
        ("valid", 1, 3, True),
        ("train", 2, 2, False),
        ("valid", 2, 3, True),
    ]
    assert play.finished is not None
    assert play.finished.why == "max_examples reached: 8 examples"
    assert play.finished.parameters.keys() == {"linear"}


@pytest.mark.parametrize(
    ("max_examples", "why"), [(3, "max_examples reached: 3 examples"), (5, "1 epoch done")]
)
def test_a_limit_that_cuts_the_last_epoch_is_why_training_ended(max_examples, why):
    play = Play.of(replace(DEFAULT, max_epochs=1, max_examples=max_examples)).begun()
    play.run_stage().acknowledge().collect()
    assert play.finished is not None
    assert play.finished.why == why


def test_max_examples_at_the_end_of_an_epoch_begins_no_other():
    play = Play.of(replace(DEFAULT, max_epochs=9, max_examples=5)).begun()
    play.run_stage().acknowledge().collect()
    assert [(r.examples, r.complete) for r in play.results] == [(5, True)]
    assert play.finished is not None
    assert play.finished.why == "max_examples reached: 5 examples"


def test_max_minutes_stops_injection_finishes_what_is_in_flight_and_validates():
    play = Play.of(replace(DEFAULT, max_epochs=9, max_minutes=2), valid=3)
    play.now = 1000.0  # starting takes no time from training
    play.begun()
    play.now += 119.9
    play.answer(0)
    assert play.injected == [0, 1, 2]
    play.now += 0.1
    play.answer(1)
    assert play.injected == [0, 1, 2]  # nothing new, and instance 2 is still waited for
    assert play.status is ControllerStatus.RUNNING
    play.now += 300.0
    play.answer(2)
    assert play.status is ControllerStatus.BARRIER
    play.acknowledge()
    assert (play.results[-1].examples, play.results[-1].complete) == (3, False)
    play.run_stage().acknowledge().collect()
    assert (play.results[-1].examples, play.results[-1].complete) == (3, True)
    assert play.finished is not None
    assert play.finished.why == "max_minutes reached: 2 minutes"


def test_max_minutes_reached_while_validating_lets_it_end():
    play = Play.of(replace(DEFAULT, max_epochs=9, max_minutes=1), valid=3).begun()
    play.run_stage().acknowledge()
    play.now += 60.0
    play.run_stage().acknowledge().collect()
    assert [(r.split.value, r.complete) for r in play.results] == [("train", True), ("valid", True)]
    assert play.finished is not None


def test_max_minutes_ends_a_synchronous_step_that_has_begun():
    settings = replace(
        DEFAULT, max_epochs=9, max_minutes=1, schedule=Schedule.SYNCHRONOUS, update_every=3
    )
    play = Play.of(settings).begun()
    play.now += 60.0
    play.answer(0, 1)
    barrier = play.barrier()
    assert (barrier.step_examples, barrier.reset_metrics) == (2, True)
    play.acknowledge().collect()
    assert play.finished is not None


def test_a_target_that_is_reached_is_told_rather_than_a_limit():
    settings = replace(DEFAULT, max_examples=5, target=Target("loss", at_most=9.0))
    play = Play.of(settings).begun().run_stage().acknowledge({"loss": 5.0}).collect()
    assert play.finished is not None
    assert play.finished.why.startswith("target reached")


def test_max_age_holds_an_instance_back_until_the_oldest_is_near_enough():
    play = Play.of(replace(DEFAULT, max_active_keys=9, max_age=3), lengths=[1] * 8).begun()
    assert play.injected == [0, 1, 2]
    play.answer(1, 2)
    assert play.injected == [0, 1, 2]  # 3 - 0 has reached 3
    play.answer(0)
    assert play.injected == [0, 1, 2, 3, 4, 5]
    play.answer(3)
    assert play.injected == [0, 1, 2, 3, 4, 5, 6]
    play.answer(4, 5, 6)
    assert play.injected == [0, 1, 2, 3, 4, 5, 6, 7]


def test_linking_tells_the_incarnation_of_every_worker():
    play = Play.of(generation=Generation(3, incarnations={2: 3}))
    for worker in (0, 1):
        play.record(hello(worker))
    assert play.records == [Link([0, 3])]


def test_who_is_suspect_goes_alone_and_all_others_as_ever():
    generation = Generation(2, careful=frozenset({3, 4}))
    keys = replace(DEFAULT, max_active_keys=9)
    play = Play.of(keys, lengths=[1] * 8, generation=generation).begun()
    assert play.injected == [0, 1, 2]
    play.answer(0, 2)
    assert play.injected == [0, 1, 2]
    play.answer(1)
    assert play.injected == [0, 1, 2, 3]
    play.answer(3)
    assert play.injected == [0, 1, 2, 3, 4]
    play.answer(4)
    assert play.injected == [0, 1, 2, 3, 4, 5, 6, 7]


def test_what_is_left_out_is_not_injected_and_all_others_keep_their_numbers():
    generation = Generation(3, left_out=frozenset({1, 4, 6}))
    keys = replace(DEFAULT, max_active_keys=9, max_epochs=2)
    play = Play.of(keys, lengths=[1] * 5, valid=2, generation=generation).begun()
    play.run_stage().acknowledge({"loss": 6.0})
    play.run_stage().acknowledge({"loss": 1.0})
    play.run_stage().acknowledge()
    assert play.injected == [0, 2, 3, 5, *range(7, 12), 12, 13]
    train, valid, again = play.results
    assert (train.examples, train.complete, train.metrics) == (3, True, {"loss": 2.0})
    assert (valid.examples, valid.complete, valid.metrics) == (1, True, {"loss": 1.0})
    assert (again.examples, again.complete) == (5, True)


def test_in_warm_up_instances_of_one_update_are_in_flight_and_the_next_wait_for_all():
    settings = replace(DEFAULT, max_active_keys=9, update_every=3, warm_up_examples=5)
    play = Play.of(settings, lengths=[1] * 14).begun()
    assert play.injected == [0, 1, 2]
    play.answer(2, 0)
    assert play.injected == [0, 1, 2]
    play.records.clear()
    play.answer(1)
    assert play.injected == [0, 1, 2, 3, 4, 5]
    # Nodes know before rows come that would be stale.
    assert [r.arrays["instances"].tolist() for r in play.records if isinstance(r, Retired)] == [[1]]
    play.answer(3)
    assert play.injected == [0, 1, 2, 3, 4, 5]
    play.answer(4)  # the fifth example: from here on as ever
    assert play.injected == list(range(5 + 1 + 8))


def test_warm_up_spares_validation_and_ends_with_an_epoch_that_is_shorter():
    settings = replace(
        DEFAULT, max_epochs=2, update_every=3, warm_up_examples=100, max_active_keys=9
    )
    play = Play.of(settings, lengths=[1] * 4, valid=2).begun()
    play.answer(0, 1, 2)
    assert play.injected == [0, 1, 2, 3]
    play.run_stage().acknowledge()
    assert play.injected == [0, 1, 2, 3, 4, 5]
    play.run_stage().acknowledge()
    assert play.injected == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_max_age_of_one_is_one_instance_at_a_time_and_does_not_hold_up_validation():
    play = Play.of(replace(DEFAULT, max_age=1), lengths=[1] * 3, valid=3).begun()
    assert play.injected == [0]
    play.answer(0)
    assert play.injected == [0, 1]
    play.run_stage().acknowledge()
    assert play.injected == [0, 1, 2, 3, 4]  # two of validation, as max_active_keys allows


@given(
    max_age=st.integers(1, 6),
    max_active_keys=st.integers(1, 8),
    order=st.lists(st.integers(0, 7), min_size=30, max_size=30),
)
def test_no_instance_is_ever_older_than_max_age(max_age, max_active_keys, order):
    settings = replace(DEFAULT, max_active_keys=max_active_keys, max_age=max_age)
    play = Play.of(settings, lengths=[1] * 20).begun()
    for choice in order:
        if play.status is not ControllerStatus.RUNNING:
            break
        assert max(play.out) - min(play.out) < max_age
        assert len(play.out) <= max_active_keys
        live = sorted(play.out)
        play.answer(live[choice % len(live)])
    while play.status is ControllerStatus.RUNNING:
        play.answer(min(play.out))
    assert play.injected == list(range(20))
