"""The control records that controller and workers exchange, one class a verb.

Records hold plain values (int, float, str, bool, None, lists and string-keyed
dicts of these) and numpy arrays in fields typed `Arrays`; `codec` turns them into
frames and checks every field's type on the way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from amp_runtime.rows.spec import Array

FORMAT_VERSION = 1
CONTROLLER = 0
"""Peer number of the controller; worker w is peer w + 1."""

Arrays: TypeAlias = Mapping[str, Array]
Plain: TypeAlias = dict[str, Any]


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


# ------------------------------------------------------------------ worker -> controller


@dataclass(frozen=True, slots=True)
class Hello(Record, verb="hello"):
    """A worker has bound its sockets and built its nodes."""

    worker: int
    pid: int
    cores: list[int]
    blas_threads: int
    blas_kernel: str
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Linked(Record, verb="linked"):
    """All channels of a worker are connected: it is ready for rows."""

    worker: int


@dataclass(frozen=True, slots=True)
class Acknowledged(Record, verb="acknowledged"):
    """A worker has done what barrier `barrier` asked.

    Attributes:
        report: `statistics.WorkerReport` as plain data.
    """

    worker: int
    barrier: int
    report: Plain


@dataclass(frozen=True, slots=True)
class Status(Record, verb="status"):
    """A worker's report, unasked, about once a second."""

    worker: int
    report: Plain


@dataclass(frozen=True, slots=True)
class Parameters(Record, verb="parameters"):
    """A node's parameters by name."""

    worker: int
    node: str
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Fault(Record, verb="fault"):
    """A worker cannot go on: the error, and the end of its traceback."""

    worker: int
    node: str
    error: Plain
    traceback: str


# ------------------------------------------------------------------ controller -> worker


@dataclass(frozen=True, slots=True)
class Link(Record, verb="link"):
    """All sockets are bound: connect your channels."""


@dataclass(frozen=True, slots=True)
class Structure(Record, verb="structure"):
    """The structure of new instances, for nodes that declared that they need it.

    Attributes:
        arrays: `instances` int32 [k], `n_examples` int32 [k], and for each field
            `<name>` [total, *shape] with `#<name>` int32 [examples], its elements
            per example, instances and examples in order.
    """

    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Retired(Record, verb="retired"):
    """Instances have retired: free their structure, count their rows.

    Attributes:
        arrays: `instances` int32 [k] and `n_examples` int32 [k]; evaluation
            instances come with 0 examples, as they bring no gradient.
    """

    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Barrier(Record, verb="barrier"):
    """Acknowledge with your report; no row is in flight.

    Attributes:
        apply_left_over: take a step with gradients short of a full update first.
        step_examples: >0: take a step for this many examples first (synchronous).
        reset_metrics: start the metrics anew after the report.
    """

    barrier: int
    apply_left_over: bool = False
    step_examples: int = 0
    reset_metrics: bool = False


@dataclass(frozen=True, slots=True)
class SendParameters(Record, verb="send-parameters"):
    """Send one `Parameters` for each node that has any."""


@dataclass(frozen=True, slots=True)
class SetParameters(Record, verb="set-parameters"):
    """Go on from these parameters; the next barrier acknowledges it."""

    node: str
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Stop(Record, verb="stop"):
    """Leave your loop and exit with status 0."""

    reason: str = field(default="")
