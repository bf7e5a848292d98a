"""Nodes with parameters (PPT), which they update by themselves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from amp_runtime import failpoints
from amp_runtime.errors import NodeError, StartError
from amp_runtime.nodes.finite import NotApplied, are_finite
from amp_runtime.nodes.generators import node_generator, node_key
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.one_to_one import OneToOne
from amp_runtime.nodes.statistics import Histogram
from amp_runtime.nodes.terms import Terms
from amp_runtime.nodes.updates import LocalUpdates, Schedule
from amp_runtime.optim import make_optimizer
from amp_runtime.optim.clip import Clip
from amp_runtime.optim.lr_schedules import make_lr_schedule
from amp_runtime.optim.row_gradients import RowGradient, RowSums
from amp_runtime.remedies.backward_weights import (
    BackwardWeights,
    LiveWeights,
    RecomputedWeights,
    StashedWeights,
)
from amp_runtime.remedies.weight_versions import WeightVersions
from amp_runtime.rows.message import Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array, Int32

if TYPE_CHECKING:
    from amp_runtime.delay.injected import InjectedDelay
    from amp_runtime.remedies.remedy import Remedies

SUMMED_TOGETHER = 64
"""Rows whose dL/dparameters are summed in one product: dL/dW is as large as W, and to write
it costs more than a few rows' products."""

TILE_ROWS = 16
"""Rows that are multiplied together in evaluation: fewer cost speed, more cost single rows."""


class Parameterised(OneToOne):
    """A payload transform with parameters, which it updates by itself.

    Beside `compute` and `backpropagate`, a kind writes

        initial_parameters(generator) -> {name: array}
        add_gradients(into)      adds dL/dparameters of all rows since the last time

    where a product of rows and a parameter is `self.product(x, parameter)`, its gradient
    `self.product_back(dy, name)`, and `self.terms` keeps what `add_gradients` needs. `compute`
    is given the weights of now in `self.parameters`, and `backpropagate` those that
    `backward_weights` says. Each row keeps the version that it was computed with, so the
    staleness of its gradient is known exactly.
    """

    parameterised = True

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        dtype = np.dtype(context.dtype)
        generator = node_generator(context.seed, context.ir_name or context.name)
        initial = self.initial_parameters(generator)
        if not isinstance(initial, Mapping) or not all(isinstance(n, str) for n in initial):
            raise self._wrong_start(f"initial_parameters returned {initial!r:.80}, no dict by name")
        with np.errstate(over="ignore"):  # `_check_finite` finds it
            self.parameters: dict[str, Array] = {
                name: np.ascontiguousarray(array, dtype) for name, array in initial.items()
            }
            if context.initializer != "own":
                self._initialize(context.initializer, generator)
        self._check_finite()
        self._gradients: dict[str, Any] = {
            name: np.zeros_like(a) for name, a in self.parameters.items()
        }
        self._gradients |= self.row_sums()
        self._gradient_ids = [id(array) for array in self._gradients.values()]
        self.terms = Terms()
        self._live = self.parameters
        self._turned: dict[str, Array] = {}
        self.optimizer = make_optimizer(context.optimizer, self.parameters)
        self.lr_schedule = make_lr_schedule(context.lr_schedule)
        self.clip = None if context.clip == "none" else Clip(**context.clip)
        self.clipped = 0
        self.updates = LocalUpdates(context.updates)
        self.not_applied = NotApplied(context.updates.nan_limit, self.where)
        self.version = 0
        self.staleness = Histogram()
        self.weights = self._make_weights(context.backward_weights)
        self.delay = self._make_delay(context.delay)
        self.remedies = self._make_remedies(context.compensation)
        self._past: int | None = None
        self._lineages: list[Int32] = []
        self._unsummed = 0
        self._evaluating = False

    @abstractmethod
    def initial_parameters(self, generator: np.random.Generator) -> Mapping[str, Array]:
        """Return the parameters before training; any float dtype."""

    def product(self, x: Array, weight: Array) -> Array:
        """Return x @ weight: [rows, in] @ [in, out], new memory.

        In evaluation a row's product does not depend on the rows that travel with it, down to
        the last bit: BLAS chooses how it sums by the number of rows, so all are multiplied in
        tiles of as many. Then predictions are the same wherever nodes run, and those of a
        run's own validation.
        """
        if not self._evaluating:
            plain: Array = x @ weight
            return plain
        n_tiles = -(-len(x) // TILE_ROWS)
        whole = np.zeros((n_tiles * TILE_ROWS, x.shape[1]), x.dtype)
        whole[: len(x)] = x
        found: Array = np.matmul(whole.reshape(n_tiles, TILE_ROWS, x.shape[1]), weight)
        return found.reshape(len(whole), weight.shape[1])[: len(x)]

    def product_back(self, gradient: Array, name: str, part: slice = slice(None)) -> Array:
        """Return the gradient of `product`'s x: [rows, out] @ parameter `name` turned, [in, out].

        Args:
            part: rows of the parameter that x was multiplied with.
        """
        if self.parameters is not self._live:  # of a past version
            past: Array = gradient @ self.parameters[name][part].T
            return past
        turned = self._turned.get(name)
        if turned is None:
            turned = self._turned[name] = self.parameters[name].T
        elif not turned.flags.c_contiguous:
            # BLAS is given few rows at a time, and to turn a matrix for each costs more than
            # the product: so it is turned once an update, if it is used more than once.
            turned = self._turned[name] = np.ascontiguousarray(turned)
        found: Array = gradient @ turned[:, part]
        return found

    def transform(self, rows: Rows, mode: Mode) -> tuple[Payload, Payload]:
        self._evaluating = mode is Mode.EVALUATE
        return super().transform(rows, mode)

    @abstractmethod
    def add_gradients(self, into: Mapping[str, Any]) -> None:
        """Add the gradient of all `backpropagate` calls since the last time to `into`.

        It reads no parameters: `backpropagate` keeps what is needed of them, in `self.terms`
        if it likes. Some rows may wait for others, to be summed at once.

        Args:
            into: {name: array to add to, or what `row_sums` said}.
        """

    def row_sums(self) -> Mapping[str, RowSums]:
        """Return the parameters whose gradient is summed by rows: large tables, few rows."""
        return {}

    def read_backward(self, wants_input: bool) -> Collection[str]:
        """Return the names of the parameters that `backpropagate` reads; here all.

        Where weights are stashed, the others are not kept of past versions.
        """
        return tuple(self.parameters)

    def _make_weights(self, which: BackwardWeights) -> LiveWeights:
        match which:
            case BackwardWeights.RECOMPUTE:
                return RecomputedWeights(self)
            case BackwardWeights.STASHED:
                names = self.read_backward("x" in self.context.wants_gradient)
                return StashedWeights(self, self.where, WeightVersions(names))
            case BackwardWeights.LIVE:
                return LiveWeights(self)

    def _make_delay(self, option: int | Mapping[str, Any]) -> InjectedDelay | None:
        if option == 0:
            return None
        # Imported here: most nodes have only the delay that comes by itself.
        from amp_runtime.delay.draws import make_delays
        from amp_runtime.delay.injected import InjectedDelay

        # Of the IR node: replicas change no instance's delay.
        key = node_key(self.context.seed, self.context.ir_name or self.name)
        return InjectedDelay(make_delays(option, key, self.where))

    def _make_remedies(
        self, options: Mapping[str, Any] | Literal["auto", "none"]
    ) -> Remedies | None:
        # The synchronous schedule has no delay but one that is injected.
        synchronous = self.updates.policy.schedule is Schedule.SYNCHRONOUS
        if options == "none" or (synchronous and self.delay is None):
            return None
        # Imported here: a worker has what its nodes ask for.
        if options == "auto":
            from amp_runtime.remedies.automatic import Automatic

            return Automatic(self)
        from amp_runtime.remedies.making import make_remedies

        return make_remedies(self, options)

    def _initialize(self, given: Mapping[str, Any], generator: np.random.Generator) -> None:
        # Imported here: most nodes begin with their kind's own parameters.
        from amp_runtime.nodes.initializers import initial_values

        found = initial_values(given, self.parameters, generator, self.where)
        for name, values in found.items():
            self.parameters[name][...] = values

    def _check_finite(self) -> None:
        for name, array in self.parameters.items():
            if not np.isfinite(array).all():
                raise self._wrong_start(f"parameter {name!r} would begin with a value not finite")

    def _wrong_start(self, what: str) -> StartError:
        return StartError(what, where=self.where)

    def set_parameters(self, arrays: Mapping[str, Array]) -> None:
        """Take over parameters, a copy.

        Raises:
            ParametersError: a name, shape or dtype is not that of this node's; names all.
        """
        Saved(arrays=arrays).fill(self.parameters, self.where)
        if self.delay is not None:
            self.delay.forget()
        self.overwritten()

    def before_overwriting(self) -> None:
        """Keep the weights of this version, if rows in flight or to come need them."""
        copy = None
        if self.delay is not None:
            copy = self.delay.keep(self.version, self.forward_parameters)
        self.weights.before_step(copy)

    def overwritten(self) -> None:
        """Learn that the parameters are others now: forget what was made of them."""
        self._turned.clear()
        if self.remedies is not None:
            self.remedies.overwritten()

    @property
    def forward_parameters(self) -> Mapping[str, Any]:
        """What rows of this version are computed with in training, if no delay is injected."""
        return self._live if self.remedies is None else self.remedies.ahead()

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        if mode is Mode.EVALUATE or (self.remedies is None and self.delay is None):
            return super().forward(port, rows, mode)
        if self.delay is None:
            return self._forward_with(self.version, port, rows)
        found: list[Emission | Answer] = []
        for version, part in self.delay.split(rows, self.version):
            found += self._forward_with(version, port, part)
        return found

    def _forward_with(self, version: int, port: str, rows: Rows) -> Sequence[Emission | Answer]:
        """Handle rows of training that are computed with the weights of `version`."""
        if self.delay is None or version == self.version:
            weights = self.forward_parameters
        else:
            weights = self.delay.at(version)
        if weights is self._live:
            return super().forward(port, rows, Mode.TRAIN)
        self.parameters, self._past = dict(weights), version
        try:
            return super().forward(port, rows, Mode.TRAIN)
        finally:
            self.parameters, self._past = self._live, None

    def to_keep(self, rows: Rows, saved: Payload) -> Payload:
        version = self.version if self._past is None else self._past
        lineage = np.empty((len(rows), 2), np.int32)
        lineage[:, 0] = version
        lineage[:, 1] = rows.state[:, 0]
        return {"lineage": lineage, **self.weights.to_keep(rows, saved, version)}

    def differentiate(self, kept: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        lineage = kept["lineage"]
        rest = {name: array for name, array in kept.items() if name != "lineage"}
        if self.remedies is None:
            self._lineages.append(lineage)
            return self.weights.backpropagate(rest, lineage[:, 0], gradient, wants_input)
        answer, used = self.remedies.backpropagate(rest, lineage[:, 0], gradient, wants_input)
        if used is not None:
            version, instance = lineage[~used].T
            self.staleness.add(self.version - version)
            self.updates.add_unused(instance)
            lineage = lineage[used]
        if len(lineage):
            self._lineages.append(lineage)
        return answer

    def backward(self, port: str, slots: Int32, gradient: Payload | None) -> Sequence[Answer]:
        answers = super().backward(port, slots, gradient)
        if gradient is None:
            self.weights.answered(self.stash.take("lineage", self._answered[-1])[:, 0])
        return answers

    def accumulate(self) -> None:
        for lineage in self._lineages:
            version, instance = lineage.T
            self.staleness.add(self.version - version)
            self.updates.add(instance)
            self._unsummed += len(lineage)
        if self._lineages:
            self._lineages.clear()
            if self._unsummed >= SUMMED_TOGETHER:
                self._sum()
            self.step_if_due()
        super().accumulate()

    def assert_drained(self) -> None:
        super().assert_drained()
        self.weights.assert_drained(self.where)

    @property
    def gradients(self) -> Mapping[str, Any]:
        """Sums of dL/dparameters of all rows since the last step, by name."""
        if self._unsummed:
            self._sum()
        return self._gradients

    def _sum(self) -> None:
        """Add up the gradients of rows that waited to be summed together."""
        self._unsummed = 0
        self.weights.add_gradients(self._gradients)
        if [id(array) for array in self._gradients.values()] != self._gradient_ids:
            raise NodeError(
                "add_gradients put other arrays in the place of those that it was given",
                where=self.where,
                fix="add to them: into['weight'] += ...",
            )

    def save(self) -> Saved:
        """Return parameters, what the optimiser keeps, gradients short of an update, counts."""
        self._turned.clear()  # made anew by who goes on, and by who goes on from this
        saved = super().save()
        saved.numbers |= {"version": self.version, "clipped": self.clipped}
        saved.arrays["staleness"] = self.staleness.counts
        saved.add("parameters", Saved(arrays=self.parameters))
        saved.add("optimizer", self.optimizer.save())
        saved.add("updates", self.updates.save())
        saved.add("not_applied", self.not_applied.save())
        if self.updates.rows:
            saved.add("gradients", self._save_gradients())
        if self.remedies is not None:
            saved.add("remedies", self.remedies.save())
        if self.delay is not None:
            saved.add("delay", self.delay.save())
        saved.add("weights", self.weights.save())
        return saved

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self.version, self.clipped = saved.numbers["version"], saved.numbers["clipped"]
        self.staleness = Histogram(saved.arrays["staleness"])
        self.set_parameters(saved.part("parameters").arrays)
        self.optimizer.restore(saved.part("optimizer"), self.where)
        self.updates.restore(saved.part("updates"))
        self.not_applied.restore(saved.part("not_applied"))
        if self.updates.rows:
            self._restore_gradients(saved.part("gradients"))
        if self.remedies is not None:
            self.remedies.restore(saved.part("remedies"), self.where)
        if self.delay is not None:
            self.delay.restore(saved.part("delay"), self.parameters, self.where)
        self.weights.restore(saved.part("weights"))

    def _save_gradients(self) -> Saved:
        saved = Saved()
        for name, gradient in self.gradients.items():
            if isinstance(gradient, RowSums):
                taken = gradient.take()
                gradient.add(taken.rows, taken.values)
                saved.arrays |= {f"rows@{name}": taken.rows, name: taken.values}
            else:
                saved.arrays[name] = gradient
        return saved

    def _restore_gradients(self, saved: Saved) -> None:
        dense = Saved()
        for name, gradient in self._gradients.items():
            if isinstance(gradient, RowSums):
                gradient.add(saved.arrays[f"rows@{name}"], saved.arrays[name])
            else:
                dense.arrays[name] = saved.arrays[name]
        dense.fill({n: g for n, g in self._gradients.items() if n in dense.arrays}, self.where)

    def on_retired(self, instances: Array, n_examples: Array) -> None:
        """Learn how many rows an example brings; take a step that this makes due."""
        self.updates.on_retired(instances, n_examples)
        self.step_if_due()

    def step_if_due(self) -> None:
        divisor = self.updates.due()
        if divisor is not None:
            self._step(divisor)

    def apply_left_over(self) -> None:
        """Take a step with gradients that are short of a full one, divided as a full one."""
        divisor = self.updates.left_over()
        if divisor is not None:
            self._step(divisor, left_over=True)

    def step_for(self, n_examples: int) -> None:
        """Take the synchronous step for `n_examples`; none if no gradient row came."""
        if self.updates.rows:
            self._step(float(n_examples))
        self.updates.synchronous_step_done(n_examples)

    def _step(self, divisor: float, *, left_over: bool = False) -> None:
        gradients: dict[str, Array | RowGradient] = {
            name: gradient.take() if isinstance(gradient, RowSums) else gradient
            for name, gradient in self.gradients.items()
        }
        arrays = [g.values if isinstance(g, RowGradient) else g for g in gradients.values()]
        for array in arrays:
            array /= divisor
        if are_finite(arrays):
            self._apply(gradients, arrays)
        else:
            number = self.version + self.not_applied.count + 1
            self.not_applied.add(number, self.updates.instances, self.parameters)
        for gradient in self._gradients.values():
            if not isinstance(gradient, RowSums):
                gradient[...] = 0
        self.updates.stepped(left_over=left_over)

    def _apply(self, gradients: Mapping[str, Array | RowGradient], arrays: Sequence[Array]) -> None:
        """Update the parameters.

        Args:
            gradients: of the mean loss per example.
            arrays: what they hold.
        """
        if self.clip is not None:
            self.clipped += self.clip.apply(arrays)
        factor, momentum = self.lr_schedule.at(self.updates.examples), 0.0
        self.before_overwriting()
        if self.remedies is not None:
            factor *= self.remedies.lr_factor()
            momentum = self.remedies.momentum()
            self.remedies.before_step()
        self.optimizer.step(gradients, lr_factor=factor, momentum=momentum)
        self.overwritten()
        if self.remedies is not None:
            self.remedies.stepped()
        self.version += 1
        failpoints.hit("worker.after_apply")


def uniform(generator: np.random.Generator, bound: float, shape: tuple[int, ...]) -> Any:
    """Return an array drawn uniformly from [-bound, bound)."""
    return generator.uniform(-bound, bound, shape)
