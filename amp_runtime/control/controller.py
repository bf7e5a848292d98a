"""The controller, without I/O: an event in, a list of actions out.

    for each epoch:   train stage -> barrier (left-overs) -> validation stage -> barrier
    a stage:          inject while admissible; retire as answers come back
    to evaluate:      one stage over one split, forward only

At most `max_active_keys` instances are in flight; at a barrier none is, and every
worker has acknowledged that nothing of any instance is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from amp_runtime import failpoints
from amp_runtime.control.actions import Action, Finished, StageDone, TakeShards, Tell, ToWorker
from amp_runtime.control.checkpoints import Checkpoints, Resume
from amp_runtime.control.ending import Ending
from amp_runtime.control.feed import Feed, mean_rows_per_example
from amp_runtime.control.in_flight import InFlight, Retirement
from amp_runtime.control.injecting import Injecting
from amp_runtime.control.lifecycle import ControllerStatus, Lifecycle
from amp_runtime.control.parameters import NodeParameters, check_nodes
from amp_runtime.control.place import Covered, Place
from amp_runtime.control.predicted import Inbox
from amp_runtime.control.recovery import FIRST, Generation
from amp_runtime.control.replicas import Replicas
from amp_runtime.control.reports import Reports
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stage import Stage
from amp_runtime.control.stages import Progress, Split, StageResult, Tally
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import LifecycleError, MessagesLostError, StallError
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.statistics import ChannelCounts, WorkerReport
from amp_runtime.nodes.updates import Schedule
from amp_runtime.rows.message import Message, Mode
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array
from amp_runtime.wire.protocol import (
    Acknowledged,
    Barrier,
    Hello,
    Link,
    Linked,
    Parameters,
    Predictions,
    ReadShards,
    Record,
    Retired,
    SendParameters,
    SetParameters,
    ShardsWritten,
    Share,
    Status,
    Stop,
)

LATE_REPORT_S = 2.5
"""A report may be so old: workers send one a second, when they can."""


class Controller:
    """Decides what is injected when, and when the run is over.

    Args:
        train, valid: with float fields in the run's dtype; `valid` may be empty.
        peer_of: peer number by node number.
        channels: the controller's own channel counts, as `ledger.Channels.counts()`.
        now: seconds, of the clock that all events are told by.
        parameters: {node: {parameter: array}} to begin with; other nodes draw theirs. To
            evaluate, they are those of all nodes that have any.
        generation: of the run; a later one has a controller of its own.
        resume: a checkpoint to go on from, in place of `parameters`.
        checkpoint: number of the newest that there is.
    Raises:
        CheckpointError: `resume` holds no place in a run.
        ParametersError: `parameters` are of a node that has none, or some are missing.
    """

    def __init__(
        self,
        wiring: Wiring,
        train: Dataset,
        valid: Dataset,
        settings: ControllerSettings,
        peer_of: Sequence[int],
        channels: Callable[[], ChannelCounts] = ChannelCounts,
        now: float = 0.0,
        parameters: NodeParameters | None = None,
        generation: Generation = FIRST,
        resume: Resume | None = None,
        checkpoint: int = 0,
    ) -> None:
        self.wiring = wiring
        self.settings = settings
        self._generation = generation
        self._train, self._valid = train, valid
        self._peers = sorted(set(peer_of))
        self._peer_of = peer_of
        self._life = Lifecycle("the controller")
        self._waiting_for: set[int] = set(self._peers)
        self._replicas = Replicas(wiring, peer_of, settings.schedule)
        self._parameterised = {
            node.name: peer
            for node, peer in zip(wiring.nodes, peer_of, strict=True)
            if node.parameterised
        }
        predicting = settings.evaluation.predicts
        ends = {
            node.name: (node, peer)
            for node, peer in zip(wiring.nodes, peer_of, strict=True)
            if predicting and node.is_end
        }
        self._peer_of_end = {name: peer for name, (_, peer) in ends.items()}
        self._inbox = Inbox({name: node for name, (node, _) in ends.items()}, wiring.batch)
        if parameters is not None:
            # Who evaluates wants none drawn; who trains may begin with some of them given.
            complete = settings.evaluate is not None
            check_nodes(parameters, wiring.parameterised, all_of_them=complete)
        self._given = parameters
        self._resume = resume
        self._place = Place.from_plain(resume.run.numbers["place"]) if resume else None
        first = self._dataset(settings.evaluate or Split.TRAIN)
        mean_rows = mean_rows_per_example(wiring, first) * wiring.batch
        max_rows = settings.max_active_rows or int(4 * settings.max_active_keys * mean_rows) + 1
        self.in_flight = InFlight(settings.max_active_keys, max_rows, verify=settings.verify)
        self._injecting = Injecting(wiring, peer_of, self.in_flight, verify=settings.verify)
        self._stage: Stage | None = None
        self._next_instance = 0
        self._unsent: list[Retirement] = []
        self._covered = Covered(self._place)
        self._ending = self._ending_from(now)
        rule = settings.checkpoints if settings.evaluate is None else None
        self._checkpoints = Checkpoints(rule, checkpoint, now)
        self._draining = False
        self._saved_to_stop = False
        self._after_saving: Callable[[float], list[Action]] = self._go_on
        self._barrier = 0
        self._flushing_step = False
        self._emptying_inbox = False
        self._setting_parameters = False
        self._after_sharing: Barrier | None = None
        self._stop_reason = ""
        self._why = ""
        self._parameters: dict[str, Mapping[str, Array]] = {}
        self._last_progress = now
        self._reports = Reports(wiring, peer_of, channels, now)

    @property
    def status(self) -> ControllerStatus:
        return self._life.status

    @property
    def reports(self) -> Mapping[int, WorkerReport]:
        """The newest report of each worker, by peer number."""
        return self._reports.newest

    @property
    def _epoch(self) -> int:
        return self._stage.epoch if self._stage is not None else 0

    # ---- events

    def on_record(self, record: Record, now: float) -> list[Action]:
        """Handle a worker's control record.

        Raises:
            LifecycleError: it may not come now.
            InvariantError: a barrier shows rows that were lost or are left.
            ConfigError: the target's metric is none of the model's.
        """
        match record:
            case Hello(worker=worker):
                self._life.require(ControllerStatus.STARTING, event="hello")
                return self._when_all(worker, now, self._link)
            case Linked(worker=worker):
                self._life.require(ControllerStatus.LINKING, event="linked")
                return self._when_all(worker, now, self._linked)
            case Acknowledged(worker=worker, barrier=barrier):
                self._life.require(ControllerStatus.BARRIER, event="acknowledged")
                if barrier != self._barrier:
                    raise LifecycleError(f"barrier {barrier} acknowledged, not {self._barrier}")
                warnings = self._reports.take(record, self._epoch, now)
                return warnings + self._when_all(worker, now, self._barrier_reached)
            case Status(worker=worker):
                # Behind an acknowledgement the metrics may have been reset already: the
                # acknowledged report stands until the barrier is over.
                running = self._life.status is ControllerStatus.RUNNING
                if running or worker + 1 in self._waiting_for:
                    return self._reports.take(record, self._epoch, now)
                return []
            case Parameters(worker=worker, node=node, arrays=arrays):
                self._life.require(ControllerStatus.COLLECTING, event="parameters")
                if node in self._parameters or self._parameterised.get(node) != worker + 1:
                    raise LifecycleError(
                        f"worker {worker} sent parameters of {node!r} unasked or twice"
                    )
                self._parameters[node] = dict(arrays)
                self._last_progress = now
                missing = self._parameterised.keys() - self._parameters.keys()
                self._waiting_for = {self._parameterised[node] for node in missing}
                return [] if missing else self._finish()
            case Share():
                self._life.require(
                    ControllerStatus.RUNNING, ControllerStatus.BARRIER, event="share"
                )
                at_barrier = self._life.status is ControllerStatus.BARRIER
                return [*self._replicas.on_share(record, self._barrier if at_barrier else 0)]
            case ShardsWritten(worker=worker):
                self._life.require(ControllerStatus.SAVING, event="shards-written")
                self._checkpoints.take(record)
                return self._when_all(worker, now, self._saved)
            case Predictions(worker=worker, node=node):
                self._life.require(
                    ControllerStatus.RUNNING, ControllerStatus.BARRIER, event="predictions"
                )
                if self._peer_of_end.get(node) != worker + 1:
                    raise LifecycleError(f"worker {worker} sent predictions of {node!r} unasked")
                self._inbox.add(record)
                return []
            case _:
                raise LifecycleError(f"record {record.verb!r} is not for the controller")

    def on_answers(self, message: Message, now: float) -> list[Action]:
        """Handle answers to injected rows.

        Raises:
            UnmatchedBackwardError: a row was not injected, or is answered already.
        """
        self._life.require(ControllerStatus.RUNNING, event="an answer")
        retirement = self.in_flight.answer(message.columns)
        if not len(retirement.instances):
            return []
        self._last_progress = now
        stage = self._current_stage()
        stage.tally.retire(retirement)
        failpoints.hit("controller.after_retire")
        training = stage.training
        if not training:
            retirement = Retirement(retirement.instances, np.zeros_like(retirement.n_examples))
        self._unsent.append(retirement)
        self._covered.trained += int(retirement.n_examples.sum())
        # Nodes learn their rows per example from this: until they can, at once.
        known_at = 2 * self.settings.update_every * self._replicas.most
        learning = training and self._covered.trained < known_at
        n_unsent = sum(len(r.instances) for r in self._unsent)
        at_once = learning or self._warming_up(stage)  # the next instances wait for updates
        actions = self._send_retired() if at_once or n_unsent >= self._retire_every() else []
        return actions + self._inject(now)

    def on_tick(self, now: float) -> None:
        """Check the deadlines of all waits.

        Raises:
            StallError: a wait passed its deadline; says who waits for what.
            MessagesLostError: it did because rows were lost between two processes.
        """
        starting = self._life.status in (ControllerStatus.STARTING, ControllerStatus.LINKING)
        name = "start_timeout_s" if starting else "stall_timeout_s"
        timeout_s: float = getattr(self.settings, name)
        if now - self._last_progress <= timeout_s:
            return
        if self._life.status is ControllerStatus.RUNNING and self.in_flight.instances:
            if lost := self._reports.lost():
                raise MessagesLostError(
                    f"no instance has retired for {timeout_s:g} s: rows were lost; {lost.what}",
                    where=lost.where,
                )
            moving = self._reports.moving(self._last_progress + max(timeout_s / 2, LATE_REPORT_S))
            stage = self._current_stage()
            owing = self._reports.who_owes(stage.mode, stage.before)
            round_and_round = f"rows still go from node to node, at {', '.join(map(repr, moving))}"
            why = round_and_round if moving else owing
            rule = "a loop of the model must end" if moving else "a node kind must answer every row"
            raise StallError(
                f"no instance has retired for {timeout_s:g} s; {self.in_flight.instances} are in "
                f"flight, the oldest {self.in_flight.oldest()}; {why}",
                fix=f"{rule}; or raise runtime.{name}",
            )
        if self._waiting_for:
            missing = ", ".join(map(self._reports.node_names, sorted(self._waiting_for)))
            raise StallError(
                f"{self._life.status.value}: no word for {timeout_s:g} s from {missing}",
                fix=f"see the logs of these workers, or raise runtime.{name}",
            )

    def excuse(self, now: float) -> None:
        """Begin all waits anew: this process was stopped, and so heard of nothing."""
        self._last_progress = now

    def request_stop(self, reason: str, now: float) -> list[Action]:
        """Stop injecting; finish as soon as nothing is in flight."""
        self._stop_reason = self._stop_reason or reason
        if self._life.status is ControllerStatus.RUNNING:
            return self._inject(now)
        return []

    def progress(self, now: float) -> Progress | None:
        """Return how far the current stage is, from the newest reports; None before it."""
        stage = self._stage
        if stage is None:
            return None
        return stage.progress(self.reports, self.settings.max_epochs, self.in_flight.instances, now)

    # ---- start, barriers, end

    def _when_all(
        self, worker: int, now: float, then: Callable[[float], list[Action]]
    ) -> list[Action]:
        peer = worker + 1
        if peer not in self._waiting_for:
            raise LifecycleError(f"worker {worker} answered unasked or twice")
        self._waiting_for.discard(peer)
        self._last_progress = now
        if self._waiting_for:
            return []
        return then(now)

    def _link(self, now: float) -> list[Action]:
        self._life.to(ControllerStatus.LINKING)
        return self._ask_all(Link([self._generation.incarnation(p) for p in self._peers]))

    def _linked(self, now: float) -> list[Action]:
        if self._resume is not None:
            return self._read_shards(self._resume)
        learn = self._replicas.average and self.settings.evaluate is None
        if self._given is None and not learn:
            return self._begin(now)
        given, self._given = self._given or {}, None
        sent: list[Action] = [
            ToWorker(peer, SetParameters(node.name, given[node.ir_name]))
            for node, peer in zip(self.wiring.nodes, self._peer_of, strict=True)
            if node.ir_name in given
        ]
        self._setting_parameters = True
        # Control keeps its order: who acknowledges has obeyed what was sent before.
        return sent + self._ask_barrier(Barrier(self._barrier + 1, share=learn))

    def _begin(self, now: float) -> list[Action]:
        self._life.to(ControllerStatus.RUNNING)
        self._ending = self._ending_from(now)
        if self._place is not None:
            return self._begin_at(self._place, now)
        if (split := self.settings.evaluate) is not None:
            if not len(self._dataset(split)):
                self._why = "no examples to evaluate"
                return self._ask_barrier(Barrier(self._barrier + 1))
            self._start_stage(split, 0, now)
            return self._inject(now)
        if self.settings.max_epochs == 0 or not len(self._train):
            self._why = "no examples to train on" if not len(self._train) else "max_epochs is 0"
            return self._ask_barrier(Barrier(self._barrier + 1))
        self._start_stage(Split.TRAIN, 1, now)
        return self._inject(now)

    def _begin_at(self, place: Place, now: float) -> list[Action]:
        """Go on where a run was."""
        split, trained = Split(place.split), place.trained
        self._next_instance = place.first_instance
        assert self._resume is not None
        self._checkpoints.restore(self._resume.run, trained, place.epoch - 1, now)
        self._ending = self._ending_from(now - place.seconds)
        if split is Split.TRAIN and (over := self._ending.over(place.epoch, trained, now)):
            self._why = over
            return self._ask_barrier(Barrier(self._barrier + 1))
        self._start_stage(split, place.epoch, now, place)
        return self._inject(now)

    def _ending_from(self, now: float) -> Ending:
        return Ending(self.settings, len(self._train), len(self._valid), now)

    def _start_stage(
        self, split: Split, epoch: int, now: float, place: Place | None = None
    ) -> None:
        """Begin a stage, or go on with one in the middle: at `place`."""
        if self._stage is not None:
            self._next_instance = self._stage.feed.end_instance
        dataset, taken = self._dataset(split), place.taken if place else 0
        training = split is Split.TRAIN and self.settings.evaluate is None
        order = dataset.order(self.settings.seed, epoch) if training else np.arange(len(dataset))
        if training and self.settings.max_examples is not None:
            order = order[: self.settings.max_examples - self._covered.trained + taken]
        self._stage = Stage(
            split,
            epoch,
            Mode.TRAIN if training else Mode.EVALUATE,
            Feed(
                self.wiring,
                dataset,
                order,
                self._next_instance,
                self._generation.left_out,
                taken,
            ),
            len(dataset),
            now - (place.stage_seconds if place else 0.0),
            dict(self.reports),
            (place and place.tally) or Tally.since(self.reports),
            place.step_examples if place else 0,
        )
        self._inbox.begin(self._next_instance)
        self._last_progress = now

    def _dataset(self, split: Split) -> Dataset:
        return self._train if split is Split.TRAIN else self._valid

    def _ask_all(self, record: Record) -> list[Action]:
        self._waiting_for = set(self._peers)
        return [ToWorker(peer, record) for peer in self._peers]

    def _ask_barrier(self, record: Barrier) -> list[Action]:
        self._life.to(ControllerStatus.BARRIER)
        self._barrier = record.barrier
        return self._send_retired() + self._ask_all(record)

    def _ask_after_sharing(self, record: Barrier) -> list[Action]:
        """Ask for a barrier; where replicas are to share before it, for one at which they do."""
        averaged = self._replicas.average and record.apply_left_over
        summed = self._replicas.sum and record.step_examples > 0
        if not averaged and not summed:
            return self._ask_barrier(record)
        self._replicas.abandon()
        self._after_sharing = replace(
            record,
            barrier=record.barrier + 1,
            apply_left_over=record.apply_left_over and not averaged,
        )
        first = Barrier(record.barrier, apply_left_over=averaged, share=True)
        return self._ask_barrier(first)

    def _barrier_reached(self, now: float) -> list[Action]:
        failpoints.hit("controller.at_barrier")
        self.assert_invariants()
        if (after := self._after_sharing) is not None:
            self._after_sharing = None
            told = self._replicas.meet(evaluate=after.reset_metrics and len(self._valid) > 0)
            return [*told, *self._ask_barrier(after)]
        if self._setting_parameters:
            self._setting_parameters = False
            if self._replicas.average and self.settings.evaluate is None and not self._resume:
                self._replicas.begin()
            return self._begin(now)
        stage = self._stage
        if self._draining and stage is not None:
            self._draining = False
            return self._save(self._place_in(stage, now), self._go_on)
        if self._flushing_step and stage is not None:
            self._flushing_step = False
            stage.step_examples = 0
            if self._checkpoints.due(self._covered.trained, now):
                return self._save(self._place_in(stage, now), self._go_on)
            return self._go_on(now)
        actions: list[Action] = []
        if stage is not None and self._peer_of_end and not stage.training:
            actions.append(Tell(self._inbox.take(stage.feed.passed)))
        if self._emptying_inbox:
            self._emptying_inbox = False
            return actions + self._go_on(now)
        if stage is None:
            return actions + self._stage_over(now)
        result = stage.result(self.reports, now)
        actions.append(StageDone(result))
        self._covered.end(stage)
        self._why = self._why or self._ending.reason(result, self._covered.trained, now)
        if place := self._place_behind(stage, result, now):
            return actions + self._save(place, self._stage_over)
        return actions + self._stage_over(now)

    def _stage_over(self, now: float) -> list[Action]:
        """Go on to the next stage, or to the end."""
        stage = self._stage
        if self._why or self._stop_reason:
            self._life.to(ControllerStatus.COLLECTING)
            self._why = self._stop_reason or self._why
            if not self._parameterised or self.settings.evaluate is not None:
                return self._finish()
            peers = sorted(set(self._parameterised.values()))
            self._waiting_for = set(peers)
            return [ToWorker(peer, SendParameters()) for peer in peers]
        self._life.to(ControllerStatus.RUNNING)
        assert stage is not None  # else there was a reason to end
        validate = stage.split is Split.TRAIN and len(self._valid) > 0
        if validate:
            self._start_stage(Split.VALID, stage.epoch, now)
        else:
            self._start_stage(Split.TRAIN, stage.epoch + 1, now)
        return self._inject(now)

    def _go_on(self, now: float) -> list[Action]:
        self._life.to(ControllerStatus.RUNNING)
        return self._inject(now)

    def _finish(self) -> list[Action]:
        self._life.to(ControllerStatus.FINISHED)
        self._waiting_for = set()
        stops: list[Action] = [ToWorker(peer, Stop("the run is over")) for peer in self._peers]
        parameters = self._replicas.merged(self._parameters) if self._parameters else {}
        return [*stops, Finished(self._why, parameters, dict(self.reports))]

    # ---- checkpoints

    def save(self, place: Place) -> Saved:
        """Return what it goes on from at `place`; nothing is in flight."""
        saved = Saved({"place": place.to_plain()})
        if self._replicas.average:
            saved.add("averaging", self._replicas.save())
        return saved

    def _save(self, place: Place, then: Callable[[float], list[Action]]) -> list[Action]:
        """Make a checkpoint, and go on."""
        self._life.to(ControllerStatus.SAVING)
        self._after_saving = then
        self._waiting_for = set(self._peers)
        number = self._checkpoints.begin(self.save(place), place.trained, place.epoch - 1)
        return [TakeShards(number)]

    def go_without_checkpoint(self, now: float) -> list[Action]:
        """Go on: the shards that were asked for cannot be written anywhere."""
        self._life.require(ControllerStatus.SAVING, event="no folder for shards")
        self._waiting_for = set()
        return self._after_saving(now)

    def _saved(self, now: float) -> list[Action]:
        return [self._checkpoints.end(now), *self._after_saving(now)]

    def _place_in(self, stage: Stage, now: float) -> Place:
        """Return the place of now, in the middle of a stage of training."""
        self._saved_to_stop = bool(self._stop_reason)
        seconds, of_step = self._ending.seconds(now), self._synchronous(stage)
        return self._covered.within(stage, seconds, now, of_step=of_step)

    def _place_behind(self, stage: Stage, result: StageResult, now: float) -> Place | None:
        """Return the place behind a stage that is over; None where no checkpoint is due."""
        if self._checkpoints.rule is None or self._saved_to_stop:
            return None
        if self._stop_reason and not stage.training:  # its line will be another then
            return self._covered.before_valid(stage, self._ending.seconds(now))
        if stage.training and len(self._valid) and not self._stop_reason:
            return None
        due = self._checkpoints.due_behind(result, self._covered.trained, now)
        if not due and not self._why:
            return None
        return self._covered.behind(stage, self._ending.seconds(now))

    def _read_shards(self, resume: Resume) -> list[Action]:
        """Have all nodes go on from their shards, and replicas from what they shared."""
        assert self._place is not None
        self._setting_parameters = True
        actions: list[Action] = []
        for peer in self._peers:
            pairs = zip(self.wiring.nodes, self._peer_of, strict=True)
            shards = [resume.shards[node.name] for node, p in pairs if p == peer]
            actions.append(ToWorker(peer, ReadShards(resume.folder, shards)))
        if self._replicas.average:
            averaging = resume.run.part("averaging")
            validating = self._place.split == Split.VALID
            actions += self._replicas.restore(averaging, evaluate=validating)
        return actions + self._ask_barrier(Barrier(self._barrier + 1))

    # ---- injection

    def _inject(self, now: float) -> list[Action]:
        """Admit what may be admitted; ask for a barrier where the stage is over."""
        stage = self._current_stage()
        actions: list[Action] = []
        training = stage.training
        stopping = bool(self._stop_reason) or (training and self._ending.time_is_up(now))
        full = self._inbox.n_bytes >= self.settings.most_prediction_bytes
        saving = training and self._is_to_save(stage, now)
        warming_up = self._warming_up(stage)
        if warming_up and not self.in_flight.instances:
            stage.step_examples = 0
        while not stopping and not full and not saving:
            n_rows, n_examples = stage.feed.upcoming()
            if not len(n_rows):
                break
            count = self.in_flight.admissible(n_rows)
            if training and (max_age := self.settings.max_age) is not None:
                count = min(count, self.in_flight.span_left(stage.feed.next_instance, max_age))
            if self._generation.careful:
                live, upcoming = self.in_flight.numbers(), stage.feed.next_instance
                count = min(count, self._generation.admits(upcoming, live))
            if warming_up or self._synchronous(stage):
                left = self.settings.update_every - stage.step_examples
                started_before = np.cumsum(n_examples) - n_examples
                count = min(count, int((started_before < left).sum()))
            if not count:
                break
            # One message never holds more than an update is made of (see NodeHost).
            together = int((np.cumsum(n_examples) <= self.settings.update_every).sum())
            injection = stage.feed.take(min(count, max(together, 1)))
            stage.step_examples += int(injection.n_examples.sum())
            actions += self._injecting.actions(injection, stage.mode)
        if self.in_flight.instances:
            return actions
        self.in_flight.assert_drained()
        ended = stopping or not len(stage.feed.upcoming()[0])
        if saving and (self._stop_reason or not ended):
            self._draining = True
            self._replicas.abandon()
            return actions + self._ask_barrier(Barrier(self._barrier + 1))
        if full and not ended:
            self._emptying_inbox = True
            return actions + self._ask_barrier(Barrier(self._barrier + 1))
        step = stage.step_examples if self._synchronous(stage) else 0
        if step and not ended:
            self._flushing_step = True
            barrier = Barrier(self._barrier + 1, step_examples=step)
            return actions + self._ask_after_sharing(barrier)
        return actions + self._ask_after_sharing(
            Barrier(
                self._barrier + 1,
                apply_left_over=training,
                step_examples=step,
                reset_metrics=True,
                epoch=stage.epoch,
                resume=not training,
            )
        )

    def _is_to_save(self, stage: Stage, now: float) -> bool:
        """Whether a checkpoint comes first: one is due, or the run was told to stop.

        In a step of the synchronous schedule it waits for the end of the step, as what is due
        may depend on the clock, and numbers must not.
        """
        if self._checkpoints.rule is None:
            return False
        if self._stop_reason:
            return not self._saved_to_stop
        due = self._checkpoints.due(self._covered.trained, now)
        return due and not self._synchronous(stage)

    def _synchronous(self, stage: Stage) -> bool:
        return self.settings.schedule is Schedule.SYNCHRONOUS and stage.training

    def _warming_up(self, stage: Stage) -> bool:
        early = self._covered.trained < self.settings.warm_up_examples
        return early and stage.training and not self._synchronous(stage)

    def _send_retired(self) -> list[Action]:
        if not self._unsent:
            return []
        arrays = {
            "instances": np.concatenate([r.instances for r in self._unsent]),
            "n_examples": np.concatenate([r.n_examples for r in self._unsent]),
        }
        self._unsent.clear()
        return [ToWorker(peer, Retired(arrays)) for peer in self._peers]

    def _retire_every(self) -> int:
        return max(1, self.settings.max_active_keys // 2)

    # ---- truth

    def assert_invariants(self) -> None:
        """Assert at a barrier that every row sent on any channel was received, and none is left.

        Raises:
            InvariantError: names the channel and both counts.
        """
        self.in_flight.assert_drained()
        self._reports.assert_all_received()

    def _current_stage(self) -> Stage:
        if self._stage is None:
            raise LifecycleError("no stage has begun")
        return self._stage
