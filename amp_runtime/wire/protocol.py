"""The control records that controller and workers exchange, one class a verb.

Records hold plain values (int, float, str, bool, None, lists and string-keyed
dicts of these, and dataclasses of them) and numpy arrays in fields typed `Arrays`.
What a record must hold is declared here: by the types of its fields, by `check`, and by
who may send it. `codec` turns records into frames, and checks on both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from amp_runtime.errors import ErrorRecord, WireError
from amp_runtime.nodes.statistics import Count, WorkerReport
from amp_runtime.rows.spec import Array
from amp_runtime.wire.plain import check_keys, refuse, shown

FORMAT_VERSION = 3
CONTROLLER = 0
"""Peer number of the controller; worker w is peer w + 1."""

Arrays: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Record:
    """Base of all control records."""

    verb: ClassVar[str] = ""
    by_verb: ClassVar[dict[str, type[Record]]] = {}

    def __init_subclass__(cls, verb: str = "", **kwargs: Any) -> None:
        # dataclass(slots=True) makes the class a second time: the last one stands.
        super(Record, cls).__init_subclass__(**kwargs)
        if verb:
            cls.verb = verb
        if cls.verb:
            Record.by_verb[cls.verb] = cls

    def check(self) -> None:
        """Check what the types of the fields cannot say.

        Raises:
            WireError: names the field and what it must be.
        """

    def check_sender(self, sender: int) -> None:
        """Check that peer `sender` may send this record.

        Raises:
            WireError: it may not, or speaks for another.
        """


@dataclass(frozen=True, slots=True)
class FromWorker(Record):
    """Base of the records that a worker sends to the controller."""

    worker: int

    def check_sender(self, sender: int) -> None:
        if sender == CONTROLLER:
            raise WireError(f"record {self.verb!r}, which is a worker's to send")
        if self.worker != sender - 1:
            refuse(f"{self.verb}.worker", self.worker, f"{sender - 1}, the sender's")


@dataclass(frozen=True, slots=True)
class FromController(Record):
    """Base of the records that the controller sends to workers."""

    def check_sender(self, sender: int) -> None:
        if sender != CONTROLLER:
            raise WireError(f"record {self.verb!r}, which is the controller's to send")


# ------------------------------------------------------------------ worker -> controller


@dataclass(frozen=True, slots=True)
class Hello(FromWorker, verb="hello"):
    """A worker has bound its sockets and built its nodes; nothing of any instance is here."""

    pid: Count
    cores: list[Count]
    blas_threads: int
    blas_kernel: str
    rss_bytes: Count


@dataclass(frozen=True, slots=True)
class Linked(FromWorker, verb="linked"):
    """All channels of a worker are connected: it is ready for rows."""


@dataclass(frozen=True, slots=True)
class Acknowledged(FromWorker, verb="acknowledged"):
    """A worker has done what barrier `barrier` asked."""

    barrier: Count
    report: WorkerReport


@dataclass(frozen=True, slots=True)
class Status(FromWorker, verb="status"):
    """A worker's report, unasked, about once a second."""

    report: WorkerReport


@dataclass(frozen=True, slots=True)
class Parameters(FromWorker, verb="parameters"):
    """A node's parameters by name."""

    node: str
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Share(FromWorker, verb="share"):
    """What a replica holds, to be put together with what the others do; a `GoOn` answers.

    Attributes:
        barrier: at which it was asked to; 0: while training goes on.
        count, steps, arrays, beside: as in `optim.snapshot.Snapshot`.
    """

    node: str
    barrier: Count
    count: Count
    steps: Count
    arrays: Arrays
    beside: Arrays


@dataclass(frozen=True, slots=True)
class Predictions(FromWorker, verb="predictions"):
    """What a node predicted from some rows, in any order; all have come before a barrier is
    acknowledged.

    Attributes:
        arrays: `#state` int32 [rows, n], the rows' states, and by name [rows, ...].
    """

    node: str
    arrays: Arrays

    def check(self) -> None:
        state = self.arrays.get("#state")
        if state is None or state.dtype != np.int32 or state.ndim != 2 or not len(state):
            given = "missing" if state is None else f"{state.dtype}{list(state.shape)}"
            refuse("predictions.arrays.#state", given, "int32 [rows, n], of one row or more")
        for name, array in self.arrays.items():
            if array.shape[:1] != state.shape[:1]:
                what = f"shape of predictions.arrays.{shown(name)[1:-1]}"
                refuse(what, list(array.shape), f"[{len(state)}, ...]")


class Shard(NamedTuple):
    """A file of a checkpoint: what one node goes on from.

    Attributes:
        finite: whether all its floats are.
    """

    node: str
    n_bytes: Count
    sha256: str
    finite: bool


@dataclass(frozen=True, slots=True)
class ShardsWritten(FromWorker, verb="shards-written"):
    """A worker has written the shards of its nodes.

    Attributes:
        failure: why it could not, in words; '': it could.
    """

    checkpoint: Count
    shards: list[Shard]
    failure: str


@dataclass(frozen=True, slots=True)
class Fault(FromWorker, verb="fault"):
    """A worker cannot go on: the error, and the end of its traceback.

    Attributes:
        node: the one that was run; '' where none was.
    """

    node: str
    error: ErrorRecord
    traceback: str


# ------------------------------------------------------------------ controller -> worker


@dataclass(frozen=True, slots=True)
class Reset(FromController, verb="reset"):
    """A generation begins: forget all of the one before, make your nodes anew, say hello.

    The only record that is obeyed though it is of another generation: of a later one.
    """


@dataclass(frozen=True, slots=True)
class Link(FromController, verb="link"):
    """All sockets are bound: connect your channels.

    Attributes:
        incarnations: of all workers, in order: whom to hear, and where their sockets are.
    """

    incarnations: list[Count]


@dataclass(frozen=True, slots=True)
class Structure(FromController, verb="structure"):
    """The structure of new instances, for nodes that declared that they need it.

    Attributes:
        arrays: `instances` int32 [k], `n_examples` int32 [k], and for each field
            `<name>` [total, *shape] with `#<name>` int32 [examples], its elements
            per example, instances and examples in order.
    """

    arrays: Arrays

    def check(self) -> None:
        of_all = ("instances", "n_examples")
        fields = [name for name in self.arrays if name not in of_all and name[:1] != "#"]
        n_examples = _check_instances(self, *fields, *(f"#{name}" for name in fields))
        for name in fields:
            n_rows = int(_counts(self, f"#{name}", int(n_examples.sum())).sum())
            shape = self.arrays[name].shape
            if shape[:1] != (n_rows,):
                what = f"shape of structure.arrays.{shown(name)[1:-1]}"
                refuse(what, list(shape), f"[{n_rows}, ...], as its counts say")


@dataclass(frozen=True, slots=True)
class Retired(FromController, verb="retired"):
    """Instances have retired: free their structure, count their rows.

    Attributes:
        arrays: `instances` int32 [k] and `n_examples` int32 [k]; evaluation
            instances come with 0 examples, as they bring no gradient.
    """

    arrays: Arrays

    def check(self) -> None:
        _check_instances(self)


@dataclass(frozen=True, slots=True)
class Barrier(FromController, verb="barrier"):
    """Acknowledge with your report; no row is in flight.

    Attributes:
        apply_left_over: take a step with gradients short of a full update first.
        step_examples: >0: take a step for this many examples first (synchronous).
        reset_metrics: start the metrics anew after the report.
        epoch: of the stage that is over, for the log; 0: of none.
        share: replicas share before the report, and after any step.
        resume: replicas take up again what they held before an `EvaluateWith`.
    """

    barrier: Count
    apply_left_over: bool = False
    step_examples: Count = 0
    reset_metrics: bool = False
    epoch: Count = 0
    share: bool = False
    resume: bool = False


@dataclass(frozen=True, slots=True)
class SendParameters(FromController, verb="send-parameters"):
    """Send one `Parameters` for each node that has any."""


@dataclass(frozen=True, slots=True)
class SetParameters(FromController, verb="set-parameters"):
    """Go on from these parameters; the next barrier acknowledges it."""

    node: str
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class AskShare(FromController, verb="ask-share"):
    """Share what replica `node` holds, unless it has done so and waits for the answer."""

    node: str


@dataclass(frozen=True, slots=True)
class GoOn(FromController, verb="go-on"):
    """What replica `node` goes on from, in place of what it shared.

    Attributes:
        count, steps, arrays, beside: as in `optim.snapshot.Snapshot`.
    """

    node: str
    count: Count
    steps: Count
    arrays: Arrays
    beside: Arrays


@dataclass(frozen=True, slots=True)
class EvaluateWith(FromController, verb="evaluate-with"):
    """Until a barrier says `resume`, replica `node` has these parameters."""

    node: str
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class WriteShards(FromController, verb="write-shards"):
    """Write a shard for each of your nodes into `folder`; no row is in flight."""

    checkpoint: Count
    folder: str


@dataclass(frozen=True, slots=True)
class ReadShards(FromController, verb="read-shards"):
    """Go on from these shards in `folder`; the next barrier acknowledges it."""

    folder: str
    shards: list[Shard]


@dataclass(frozen=True, slots=True)
class Stop(FromController, verb="stop"):
    """Leave your loop and exit with status 0."""

    reason: str = field(default="")


# ------------------------------------------------------------------- arrays of instances


def _check_instances(record: Structure | Retired, *others: str) -> Array:
    """Check that the two arrays of all instances are there, and `others`; return `n_examples`."""
    check_keys(f"{record.verb}.arrays", record.arrays, {"instances", "n_examples", *others})
    n_instances = len(_counts(record, "instances"))
    return _counts(record, "n_examples", n_instances)


def _counts(record: Structure | Retired, name: str, length: int | None = None) -> Array:
    """Return an array of numbers that are not negative: int32 [length]."""
    array = record.arrays[name]
    what = f"{record.verb}.arrays.{shown(name)[1:-1]}"
    if array.dtype != np.int32 or array.ndim != 1 or length not in (None, len(array)):
        must = f"int32[{'n' if length is None else length}]"
        refuse(what, f"{array.dtype}{list(array.shape)}", must)
    if (array < 0).any():
        refuse(f"an entry of {what}", int(array.min()), ">= 0")
    return array
