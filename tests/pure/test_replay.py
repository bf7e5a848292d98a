"""A recorded run, under any delivery, replays to its numbers to the bit, or says why not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import build
from random_runs import data, placed, quick, recipes, run_settings
from scripted import RUN, Delivery, ScriptedRun
from wirings import chain, examples, recurrent

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import AmpError, TraceError
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.nodes.updates import Schedule
from amp_runtime.optim.averaging import AVERAGING
from amp_runtime.processes.blas import blas_kernel, blas_threads
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.rows.message import Direction
from amp_runtime.trace.events import Batch, Event
from amp_runtime.trace.file import TraceReader, TraceWriter
from amp_runtime.trace.recorder import Recorder
from amp_runtime.trace.replay import RecordedStage, Replay, relative
from amp_runtime.trace.staleness import updates_of
from amp_runtime.wire.protocol import GoOn
from workers.registry import Registry


class Recorded:
    """A scripted run with its traces in `folder`."""

    def __init__(
        self,
        folder: Path,
        wiring: Wiring,
        train: Dataset,
        valid: Dataset,
        given: ControllerSettings,
        peer_of: Sequence[int],
        **how: Any,
    ) -> None:
        self.wiring, self.train, self.valid, self.given = wiring, train, valid, given
        self.peer_of, self.folder = peer_of, folder
        row_by_row = how.pop("row_by_row", False)

        def recorder_of(peer: int) -> Recorder:
            return Recorder(TraceWriter(folder / f"w{peer}", RUN, f"w{peer}"), RUN, peer)

        self.run = ScriptedRun.of(
            wiring, train, valid, given, peer_of, recorder_of=recorder_of, **how
        )
        self.run.row_by_row = row_by_row
        self.run.run()
        self.stages = [
            RecordedStage(r.split, r.epoch, r.examples, r.metrics) for r in self.run.results
        ]

    def events(self, peer: int) -> Iterator[Event]:
        return iter(TraceReader(self.folder / f"w{peer}", RUN, f"w{peer}"))

    def replay(self, **otherwise: Any) -> Replay:
        """Return the replay, some of its arguments given otherwise."""
        traces = {p: (f"w{p}", f"trace/w{p}", self.events(p)) for p in set(self.peer_of)}
        traces |= otherwise.pop("traces", {})
        arguments = {
            "wiring": self.wiring,
            "kinds": Registry(),
            "train": self.train,
            "valid": self.valid,
            "settings": self.given,
            "peer_of": self.peer_of,
            "traces": traces,
            "stages": self.stages,
        }
        return Replay(**{**arguments, **otherwise})

    def check_updates(self) -> None:
        """Assert that each node's updates, and the staleness of their rows, are in the trace."""
        for peer, host in self.run.hosts.items():
            told = updates_of(self.events(peer))
            for number, node in host.nodes.items():
                updates = told.get(number, [])
                if not isinstance(node, Parameterised):
                    assert not updates
                    continue
                assert sum(update.versions for update in updates) == node.version
                assert {update.versions for update in updates} <= {1}
                counts = np.zeros_like(node.staleness.counts)
                for update in updates:
                    counts[update.staleness] += update.rows
                assert counts.tolist() == node.staleness.counts.tolist()

    def check(self) -> Replay:
        """Assert that it replays to the bit."""
        results: list[Any] = []
        replay = self.replay(on_stage=lambda recorded, replayed: results.append(replayed))
        differences = replay.run()
        for player in replay.players.values():
            player.host.assert_invariants()
            for node in player.host.parameterised():
                twin = next(
                    other
                    for host in self.run.hosts.values()
                    for other in host.parameterised()
                    if other.name == node.name
                )
                assert twin.version == node.version
                assert twin.staleness.counts.tolist() == node.staleness.counts.tolist()
        self.check_updates()
        assert all(d.equal and d.relative == 0.0 for d in differences)
        n_arrays = sum(
            len(n.parameters) for h in self.run.hosts.values() for n in h.parameterised()
        )
        assert len(differences) == n_arrays
        assert len(results) == len(self.run.results)
        for one, two in zip(results, self.run.results, strict=True):
            assert (one.split, one.epoch, one.examples) == (two.split, two.epoch, two.examples)
            assert one.metrics == pytest.approx(dict(two.metrics), rel=1e-12, nan_ok=True)
            assert one.staleness == two.staleness
        return replay


@settings(quick, max_examples=15)
@given(
    recipe=recipes,
    seed=st.integers(0, 2**16),
    delivery=st.sampled_from(Delivery),
    schedule=st.sampled_from(Schedule),
    keys=st.integers(1, 8),
    batch=st.integers(1, 3),
    verify=st.booleans(),
    row_by_row=st.booleans(),
)
def test_random_graphs_replay_to_the_bit_whatever_was_delivered_when(
    recipe, seed, delivery, schedule, keys, batch, verify, row_by_row
):
    wiring = build(recipe, batch=batch)
    given = run_settings(schedule, max_active_keys=keys, verify=verify, max_epochs=2)
    with tempfile.TemporaryDirectory() as folder:
        Recorded(
            Path(folder),
            wiring,
            *data(0),
            given,
            placed(wiring, seed),
            seed=seed,
            delivery=delivery,
            row_by_row=row_by_row,
        ).check()


@settings(quick, max_examples=8)
@given(
    recipe=recipes,
    seed=st.integers(0, 2**16),
    delivery=st.sampled_from(Delivery),
    schedule=st.sampled_from(Schedule),
    replicas=st.integers(2, 3),
    scheme=st.sampled_from(sorted(AVERAGING)),
    every=st.sampled_from([1, 2, "epoch"]),
)
def test_replicas_replay_to_the_bit_whatever_they_shared_when(
    recipe, seed, delivery, schedule, replicas, scheme, every
):
    wiring = build(recipe, replicas=replicas, averaging={"name": scheme}, average_every=every)
    given = run_settings(schedule, max_active_keys=5)
    with tempfile.TemporaryDirectory() as folder:
        Recorded(
            Path(folder), wiring, *data(0), given, placed(wiring, seed), seed=seed,
            delivery=delivery,
        ).check()  # fmt: skip


@pytest.mark.parametrize("weights", list(BackwardWeights))
def test_predicted_weights_and_past_ones_are_the_same_when_replayed(tmp_path, weights):
    training = {
        "optimizer": {"name": "adam", "lr": 0.05},
        "update_every": 2,
        "backward_weights": weights.value,
        "compensation": {"predict": "linear", "step_size": "annealed", "anneal_over": 9},
    }
    wiring = recurrent(training=training)
    given = ControllerSettings(max_epochs=3, max_active_keys=6, update_every=2)
    peer_of = list(range(1, len(wiring.nodes) + 1))
    Recorded(tmp_path, wiring, TRAIN, VALID, given, peer_of, seed=8).check()


@pytest.mark.parametrize("weights", ["live", "stashed"])
def test_injected_delays_are_the_same_when_replayed(tmp_path, weights):
    training = {
        "optimizer": {"name": "adam", "lr": 0.05},
        "update_every": 2,
        "delay": {"name": "random", "low": 0, "high": 3},
        "backward_weights": weights,
    }
    wiring = recurrent(training=training)
    given = ControllerSettings(max_epochs=3, max_active_keys=4, update_every=2)
    peer_of = list(range(1, len(wiring.nodes) + 1))
    Recorded(tmp_path, wiring, TRAIN, VALID, given, peer_of, seed=8).check()


# ------------------------------------------------------------------- a run to take apart

TRAIN, VALID = examples([3, 1, 4, 2, 5, 2, 3, 1], seed=3), examples([2, 4, 1], seed=4)


@pytest.fixture
def recorded(tmp_path) -> Recorded:
    """An rnn of two epochs, a worker a node, of which many instances were in flight."""
    wiring = recurrent(training={"optimizer": {"name": "adam", "lr": 0.05}, "update_every": 2})
    given = ControllerSettings(max_epochs=2, max_active_keys=6, update_every=2, seed=3)
    peer_of = list(range(1, len(wiring.nodes) + 1))
    return Recorded(tmp_path, wiring, TRAIN, VALID, given, peer_of, seed=5)


def test_what_was_recorded_is_not_what_one_process_alone_would_do(recorded, tmp_path):
    """Else the tests above would say nothing."""
    replay = recorded.check()
    (tmp_path / "other").mkdir()
    other = Recorded(
        tmp_path / "other", recorded.wiring, TRAIN, VALID, recorded.given, recorded.peer_of, seed=6
    )
    one, two = recorded.run.finished, other.run.finished
    assert one is not None
    assert two is not None
    gaps = [
        relative(array, two.parameters[node][name])
        for node, arrays in one.parameters.items()
        for name, array in arrays.items()
    ]
    assert max(gaps) > 1e-6
    assert replay.n_events == sum(len([*recorded.events(p)]) - 1 for p in set(recorded.peer_of))


def test_recording_changes_nothing(recorded):
    again = ScriptedRun.of(recorded.wiring, TRAIN, VALID, recorded.given, recorded.peer_of, seed=5)
    finished, before = again.run(), recorded.run.finished
    assert before is not None
    for node, arrays in finished.parameters.items():
        for name, array in arrays.items():
            assert array.tobytes() == before.parameters[node][name].tobytes()


def test_a_run_that_was_stopped_in_an_epoch_replays(tmp_path):
    wiring = chain()
    given = ControllerSettings(max_epochs=9, max_examples=11, max_active_keys=3, update_every=2)
    made = Recorded(tmp_path, wiring, TRAIN, VALID, given, [1, 2], seed=1)
    assert [s.examples for s in made.stages] == [8, 3, 3, 3]
    made.check()


def test_other_data_leads_to_other_numbers_and_they_are_told(recorded):
    other = examples([3, 1, 4, 2, 5, 2, 3, 1], seed=9)
    differences = recorded.replay(train=other).run()
    assert not all(d.equal for d in differences)
    assert max(d.relative for d in differences) > 1e-6


def test_rows_that_never_come_are_named_with_worker_event_and_what_is_missing(recorded):
    shorter = examples([3, 1, 4, 2, 5, 2, 2, 1], seed=3)
    with pytest.raises(TraceError) as told:
        recorded.replay(train=shorter).run()
    said = str(told.value)
    assert "trace/w1, event " in said
    assert "worker 'w1': its next event is a batch of" in said
    assert "rows at port 'x' of node 'embedding', but there are no rows of states [" in said


def test_too_few_examples_are_told(recorded):
    with pytest.raises(TraceError, match="epoch 1 train had 8 examples, but there are 7"):
        recorded.replay(train=examples([3, 1, 4, 2, 5, 2, 3])).run()


def test_a_batch_that_was_taken_out_is_missed_at_that_event(recorded):
    def without_the_fifth() -> Iterator[Event]:
        for number, event in enumerate(recorded.events(2)):
            if number != 5:
                yield event

    traces = {2: ("w2", "trace/w2", without_the_fifth())}
    with pytest.raises(AmpError, match=r"trace/w\d, event \d+"):
        recorded.replay(traces=traces).run()


def test_an_answer_to_a_slot_that_was_never_issued_is_missed_by_number(recorded):
    def changed() -> Iterator[Event]:
        changes = 1
        for event in recorded.events(4):
            if changes and isinstance(event, Batch) and event.direction is Direction.BACKWARD:
                event, changes = replace(event, identities=event.identities + 4000), 0
            yield event

    with pytest.raises(TraceError, match=r"w4.*there are no answers to slots \[40\d\d\]"):
        recorded.replay(traces={4: ("w4", "trace/w4", changed())}).run()


def test_stages_that_are_not_those_of_the_traces_are_refused(recorded):
    train, valid, *rest = recorded.stages
    wrong = [train, replace(valid, epoch=7), *rest]
    with pytest.raises(TraceError, match=r"trace/w1: stage 2 is of epoch 1, expected 7"):
        recorded.replay(stages=wrong).run()
    with pytest.raises(TraceError, match=r"its next event is a batch"):
        recorded.replay(stages=recorded.stages[:-1]).run()
    with pytest.raises(TraceError, match=r"ends before its stages do"):
        recorded.replay(stages=[*recorded.stages, recorded.stages[0]]).run()


def test_replicas_are_told_what_they_go_on_from_in_the_trace(tmp_path):
    wiring = build([], replicas=2, averaging={"name": "elastic"}, average_every=1)
    peer_of = [1 + at % 3 for at in range(len(wiring.nodes))]
    given = run_settings(Schedule.ASYNCHRONOUS, max_active_keys=4)
    made = Recorded(tmp_path, wiring, *data(0), given, peer_of, seed=2)
    assert any(isinstance(e, GoOn) for p in set(peer_of) for e in made.events(p))
    made.check()


def test_the_largest_relative_difference_is_of_the_largest_entry():
    assert relative(np.array([1.0, -4.0]), np.array([1.5, -4.0])) == 0.125
    assert relative(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])) == 0.0
    assert relative(np.array([np.nan, 1.0]), np.array([0.0, 1.0])) == np.inf
    assert relative(0.0, 1e-300) == np.inf


def test_within_blas_threads_numpy_computes_with_so_many_and_afterwards_as_before():
    before = blas_kernel()[0]
    with blas_threads(2):
        assert blas_kernel()[0] == 2
        with blas_threads(1):
            assert blas_kernel()[0] == 1
    assert blas_kernel()[0] == before
