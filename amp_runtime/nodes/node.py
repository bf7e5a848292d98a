"""The contract of a node: pure code that is given rows and returns rows.

    forward(port, rows, mode) -> emissions and answers
    backward(port, slots, gradient) -> answers
    accumulate()                 after the answers were sent: dW, freeing of slots

Every forward row is answered exactly once, after every row emitted because of it
was answered. A kind is one class: its ports, options, forward and backward.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from amp_runtime import names
from amp_runtime.errors import InvariantError, NodeError, UserFunctionError, VerifyError
from amp_runtime.nodes.statistics import Metrics
from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.rows.message import ADDRESS_COLUMNS, Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array, ArraySpec, Columns, Int32, Int64, PortSpec
from amp_runtime.rows.stash import Stash
from amp_runtime.rows.structure import StructureArena

StateFunction = Callable[[Columns, StructureArena], Any]


class Evaluation(enum.StrEnum):
    """What the ends of a graph make of rows in evaluation.

    To predict alone needs no labels; beside the metrics, predictions are those of a run's
    own validation.
    """

    METRICS = "metrics"
    PREDICTIONS = "predictions"
    BOTH = "both"

    @property
    def measures(self) -> bool:
        return self is not Evaluation.PREDICTIONS

    @property
    def predicts(self) -> bool:
        return self is not Evaluation.METRICS


@dataclass(frozen=True)
class NodeContext:
    """Everything a node is given when it is made.

    Attributes:
        options: an instance of the kind's `Options`.
        inputs, outputs: what passes each port.
        wants_gradient: input ports whose rows' senders use a gradient.
        return_ports: {output port: its number in return addresses}.
        dtype: of parameters and floating payloads.
        ir_name: the node's name in the model, without the number of a replica.
        seed: of the run; parameters depend on it and on `ir_name` alone.
        structure: this worker's arena.
        verify: rows carry the state as last stamped; answers bring it back.
        evaluation: what ends of the graph make of rows in evaluation.
        updates: when a parameterised node updates.
        optimizer, lr_schedule: their validated options, `name` among them.
        clip: `none`, or the options of a `Clip`.
        initializer: `own`, or what `initial_values` takes.
        backward_weights: which weights `backpropagate` is given.
        delay: updates by which rows are delayed on purpose, or the options of one of `DELAYS`.
        compensation: `auto`, `none`, or the options of a `Compensation`.
    """

    name: str
    kind: str
    options: Any
    inputs: Mapping[str, PortSpec]
    outputs: Mapping[str, PortSpec]
    wants_gradient: frozenset[str]
    return_ports: Mapping[str, int]
    dtype: str
    seed: int
    structure: StructureArena
    verify: bool = False
    evaluation: Evaluation = Evaluation.METRICS
    updates: UpdatePolicy = field(default_factory=UpdatePolicy)
    optimizer: Mapping[str, Any] = field(default_factory=lambda: {"name": "sgd", "lr": 0.1})
    lr_schedule: Mapping[str, Any] = field(default_factory=lambda: {"name": "constant"})
    clip: Mapping[str, Any] | Literal["none"] = "none"
    initializer: Mapping[str, Any] | Literal["own"] = "own"
    backward_weights: BackwardWeights = BackwardWeights.LIVE
    delay: int | Mapping[str, Any] = 0
    compensation: Mapping[str, Any] | Literal["auto", "none"] = "none"
    ir_name: str = ""


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a kind that has none."""


class Node(ABC):
    """Base of every kind.

    Class attributes:
        kind: its name in graphs.
        Options: a frozen dataclass; its annotations are checked when a graph is built.
        inputs, outputs: port names, where they do not depend on options.
        transparent: keeps nothing and passes return addresses on.
        one_to_one: one row in, one row out: transparent in evaluation.
        parameterised: has parameters that it updates itself.
        changes_state: rows leave with another state than they came with.
        keeps_state: input ports of such a kind whose rows' state leaves all the same.
        is_end: rows end here (loss, sink).
        infers_from_any: `infer` can tell the outputs from some of the inputs.
    """

    kind: ClassVar[str]
    Options: ClassVar[type[Any]] = NoOptions
    inputs: ClassVar[tuple[str, ...]] = ("x",)
    outputs: ClassVar[tuple[str, ...]] = ("y",)
    transparent: ClassVar[bool] = False
    one_to_one: ClassVar[bool] = False
    parameterised: ClassVar[bool] = False
    changes_state: ClassVar[bool] = False
    keeps_state: ClassVar[tuple[str, ...]] = ()
    is_end: ClassVar[bool] = False
    infers_from_any: ClassVar[bool] = False

    # ---- what the graph builder asks of a kind

    @classmethod
    def input_ports(cls, options: Any) -> tuple[str, ...]:
        return cls.inputs

    @classmethod
    def output_ports(cls, options: Any) -> tuple[str, ...]:
        return cls.outputs

    @classmethod
    @abstractmethod
    def infer(
        cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str
    ) -> Mapping[str, PortSpec]:
        """Return what leaves each output port.

        Args:
            inputs: what comes to each input port.
            dtype: of floating arrays in this run.
        Raises:
            ShapeMismatchError, SchemaMismatchError: the inputs do not fit.
        """

    @classmethod
    def read_options(cls, plain: Mapping[str, Any]) -> Any:
        """Return the `Options` of a checked graph's plain data."""
        return cls.Options(**{k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()})

    @classmethod
    def state_functions(cls, options: Any) -> Sequence[str]:
        """Return the functions on states that the options name."""
        return ()

    @classmethod
    def fields(cls, options: Any) -> Sequence[str]:
        """Return the structure fields that the options name."""
        return ()

    @classmethod
    def check_fields(
        cls, options: Any, inputs: Mapping[str, PortSpec], fields: Mapping[str, ArraySpec]
    ) -> None:
        """Refuse structure fields that do not fit the options, or what comes.

        Args:
            fields: those that `fields` and the functions on states name.
        Raises:
            ShapeMismatchError: one does not; its place is added by the caller.
        """

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        """Return roughly how long a row takes, there and back, in microseconds."""
        return 0.5 if cls.transparent else 3.0

    @classmethod
    def check_training(cls, options: Any, training: Mapping[str, Any]) -> None:
        """Refuse training options (checked, plain data) that do not go with `options`.

        Raises:
            BadOptionError: they do not; its place is added by the caller.
        """

    # ---- life

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.name = context.name
        self.options = context.options
        self.stash = Stash(context.name)

    @abstractmethod
    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        """Handle forward rows that came to input `port`.

        Args:
            rows: columns int32 and payload as declared for the port; read-only.
        Returns:
            What to send: rows by output port, and answers.
        Raises:
            DuplicateStateError: a join got a second row with one state on one port.
        """

    def backward(self, port: str, slots: Int32, gradient: Payload | None) -> Sequence[Answer]:
        """Handle the answers to rows that left by output `port`.

        Args:
            slots: int32 [rows], of this node's own stash.
            gradient: {name: [rows, *shape]}, a subset of what was emitted; None: null.
        Raises:
            UnmatchedBackwardError: a slot is free, or answered already.
        """
        raise InvariantError(f"node {self.name!r} stamps no rows, but was answered")

    def accumulate(self) -> None:
        """Do what may wait until the answers were sent: dW, the local update, freeing."""

    # ---- what the runtime asks of a node

    @property
    def waiting(self) -> int:
        """Entries of a join that wait for rows on other ports."""
        return 0

    def take_metrics(self, mode: Mode) -> Metrics:
        """Return a loss's sums for `mode` since the last reset."""
        return {}

    def reset_metrics(self) -> None:
        """Start the metrics anew."""

    def save(self) -> Saved:
        """Return what the node goes on from after a stop; no row is in flight.

        A kind that learns or counts beside its parameters adds what it needs to that of its
        base, and takes it back in `restore`: numbers and arrays, see `Saved`.
        """
        return Saved()

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` of such a node returned; this one is as it was made.

        Raises:
            ParametersError: it was of another node.
        """

    def assert_drained(self) -> None:
        """Assert that nothing is kept: no row is in flight.

        Raises:
            InvariantError: the stash or a join still holds rows.
        """
        if self.stash.used or self.waiting:
            raise InvariantError(
                f"{self.stash.used} rows are still in the stash and {self.waiting} keys wait in "
                "the join, though nothing is in flight",
                where=f"node {self.name!r} (kind {self.kind})",
                fix="every forward row must be answered exactly once",
            )

    def check_origin(self, slots: Int32, origin: Int32) -> None:
        """Under `verify`: assert that answers bring back the states that were emitted.

        Raises:
            VerifyError: they do not.
        """
        emitted = self.stash.take("emitted", self.stash.peek(slots))
        if origin.shape != emitted.shape or (origin != emitted).any():
            at = int(np.flatnonzero((origin != emitted).any(axis=1))[0])
            raise VerifyError(
                f"an answer brings back state {origin[at].tolist()}, "
                f"but slot {int(slots[at])} was emitted with {emitted[at].tolist()}",
                where=f"node {self.name!r}",
            )

    # ---- helpers for kinds

    @property
    def where(self) -> str:
        """What an error of this node is placed by."""
        return f"node {self.name!r} (kind {self.context.kind})"

    def _names_at(self, port: str) -> Sequence[str]:
        return tuple(self.context.inputs[port].arrays)

    def stamp(self, port: str, positions: Int64, state: Int32) -> Int32:
        """Return columns for rows that leave by `port` with answers due to `positions`.

        Args:
            positions: int64 [rows], open in this node's stash.
            state: int32 [rows, n].
        Returns:
            int32 [rows, 2 + n (+ n)], new memory.
        """
        width = state.shape[1]
        verify = self.context.verify
        columns = np.empty((len(positions), ADDRESS_COLUMNS + width * (1 + verify)), np.int32)
        columns[:, 0] = self.context.return_ports[port]
        columns[:, 1] = self.stash.slots(positions)
        columns[:, ADDRESS_COLUMNS : ADDRESS_COLUMNS + width] = state
        if verify:
            columns[:, ADDRESS_COLUMNS + width :] = state
            self.stash.put(positions, {"emitted": state})
        return columns

    def wanted(self, port: str, gradient: Payload | None, by: str) -> Payload | None:
        """Return what goes back to the rows of `port`: null where nobody uses a gradient.

        Args:
            gradient: what the kind gave for them.
            by: its method.
        Raises:
            NodeError: it gave none, but parameters lie before it: they would not train.
        """
        if port not in self.context.wants_gradient:
            return None
        if gradient is not None and not isinstance(gradient, (dict, Mapping)):
            raise NodeError(
                f"{by} returned a {type(gradient).__name__} for port {port!r}, not "
                f"{{name: array}} with the names that came: {', '.join(self._names_at(port))}",
                where=self.where,
            )
        # Whole numbers have no gradient: a kind that takes only these has none to give.
        if gradient is None and any(
            a.dtype != "int32" for a in self.context.inputs[port].arrays.values()
        ):
            raise NodeError(
                f"{by} returned None for port {port!r}, but parameters before it need a gradient",
                where=self.where,
                fix="return zeros where it is zero",
            )
        return gradient

    def state_function(self, name: str) -> StateFunction:
        """Return the function on states that an option names."""
        function: StateFunction = names.resolve(
            name, what="a function on states", where=f"node {self.name!r} (kind {self.kind})"
        )
        return function

    def columns(self, rows: Rows, port: str) -> Columns:
        """Return the states of rows that came to input `port`, by name."""
        return Columns(rows.state, self.context.inputs[port].schema)

    def call(self, function: StateFunction, columns: Columns) -> Any:
        """Call a function on states, naming the node when it raises."""
        try:
            return function(columns, self.context.structure)
        except Exception as error:
            raise UserFunctionError(
                f"{function.__module__}:{function.__qualname__} raised "
                f"{type(error).__name__}: {error}",
                where=f"node {self.name!r} (kind {self.kind})",
            ) from error


class Kinds(Protocol):
    """Where node classes come from; `workers.registry.Registry` is one."""

    def names(self) -> Sequence[str]:
        """Return the names of the built-in kinds."""

    def load(self, kind: str, *, where: str = "") -> type[Node]:
        """Return the class of `kind`, a built-in name or `package.module:Class`."""


def single(payload: Payload) -> Array:
    """Return the only array of a payload."""
    (array,) = payload.values()
    return array
