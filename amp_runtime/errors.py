"""Every error a user can meet: a code, an exit status, and words that say what to do.

An error names what is wrong (`what`), where (`where`: file, line, node, port,
instance), and what to do about it (`fix`). It turns into a plain record and
back, so that a worker's error reaches the controller whole.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from typing import Any, ClassVar, TypedDict

EXIT_OK = 0
EXIT_USAGE = 64
EXIT_FAILED = 70
EXIT_IO = 74
EXIT_RETRY = 75
EXIT_CONFIG = 78
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ' (did you mean `x`?)', or '' when no valid name is close."""
    close = difflib.get_close_matches(str(name), [str(v) for v in valid], n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


class ErrorRecord(TypedDict):
    """An error on its way to another process."""

    code: str
    what: str
    where: str
    fix: str


class AmpError(Exception):
    """Base of all errors that `amp_runtime` raises on purpose.

    Args:
        what: what is wrong, with the value that is wrong.
        where: the file and line, or the node, port and instance.
        fix: what to do about it.
    """

    code: ClassVar[str] = "AMP-E000"
    exit_code: ClassVar[int] = EXIT_FAILED
    by_code: ClassVar[dict[str, type[AmpError]]] = {}
    is_final: ClassVar[bool] = False
    """Whether the same would come of another try: nothing is started again."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what, where, fix)
        self.what = what
        self.where = where
        self.fix = fix

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "code" in cls.__dict__:
            if cls.code in AmpError.by_code:
                raise TypeError(f"{cls.__name__}: code {cls.code} is taken")
            AmpError.by_code[cls.code] = cls

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        fix = f"; {self.fix}" if self.fix else ""
        return f"{where}{self.what}{fix}"

    def line(self) -> str:
        """Return the one line that ends a failed command: `AMP-Ennn: ...`."""
        return f"{self.code}: {' '.join(str(self).split())}"

    def to_record(self) -> ErrorRecord:
        return {"code": self.code, "what": self.what, "where": self.where, "fix": self.fix}

    @staticmethod
    def from_record(record: ErrorRecord) -> AmpError:
        """Rebuild an error from `to_record()`; an unknown code keeps its words."""
        cls = AmpError.by_code.get(record["code"], AmpError)
        return cls(record["what"], where=record["where"], fix=record["fix"])

    def at(self, where: str) -> AmpError:
        """Return the same error with `where` put in front of its place."""
        place = f"{where}: {self.where}" if self.where else where
        return type(self)(self.what, where=place, fix=self.fix)


class UnexpectedError(AmpError):
    """An exception that nobody foresaw: a bug of ours."""

    code = "AMP-E001"


def raised_at(error: BaseException, folder: str = "") -> str:
    """Return `file:line` of where `error`, or the first cause of it, was raised.

    The innermost line in `folder` where there is one: the user's own, and not that of
    a library it called.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if folder and frame.filename.startswith(f"{folder}/")]
    frame = next(reversed(own or frames), None)
    return f"{frame.filename}:{frame.lineno}" if frame else ""


def blamed(error: BaseException, cls: type[AmpError], folder: str = "") -> AmpError:
    """Return `error` with the line that raised it; what is no AmpError becomes a `cls`.

    An AmpError without a cause was raised on purpose, and says itself where.
    """
    if not isinstance(error, AmpError):
        return cls(f"{type(error).__name__}: {error} ({raised_at(error, folder)})")
    if error.__cause__ is None:
        return error
    what = f"{error.what} ({raised_at(error, folder)})"
    return type(error)(what, where=error.where, fix=error.fix)


# ---------------------------------------------------------------- usage, config, graph


class UsageError(AmpError):
    """The command line makes no sense."""

    code = "AMP-E101"
    exit_code = EXIT_USAGE


class ConfigError(AmpError):
    """A config file or an override is wrong."""

    code = "AMP-E201"
    exit_code = EXIT_CONFIG


class GraphError(AmpError):
    """A model graph is wrong; each check has a subclass."""

    code = "AMP-E210"
    exit_code = EXIT_CONFIG


class UnknownKindError(GraphError):
    code = "AMP-E211"


class UnknownPortError(GraphError):
    code = "AMP-E212"


class UnknownOptionError(GraphError):
    code = "AMP-E213"


class BadOptionError(GraphError):
    """An option has a value outside its type or range."""

    code = "AMP-E214"


class BadNameError(GraphError):
    """A node name is invalid or taken."""

    code = "AMP-E215"


class UnconnectedPortError(GraphError):
    code = "AMP-E216"


class OccupiedPortError(GraphError):
    """An input port is drawn to twice; a phi merges edges."""

    code = "AMP-E217"


class ShapeMismatchError(GraphError):
    code = "AMP-E218"


class SchemaMismatchError(GraphError):
    code = "AMP-E219"


class NoPathToLossError(GraphError):
    code = "AMP-E220"


class StatelessCycleError(GraphError):
    """A cycle in which no node changes the state: rows would meet themselves."""

    code = "AMP-E221"


class BranchesMeetError(GraphError):
    """Two branches of a bcast meet in a phi: one state would pass twice."""

    code = "AMP-E222"


class FunctionNameError(AmpError):
    """`package.module:name` does not lead to a usable object."""

    code = "AMP-E230"
    exit_code = EXIT_CONFIG


class DataError(AmpError):
    """A data file or an example is wrong."""

    code = "AMP-E301"
    exit_code = EXIT_CONFIG


class MissingDataError(AmpError):
    """A data file is not there."""

    code = "AMP-E302"
    exit_code = EXIT_IO


class OutputError(AmpError):
    """The run folder cannot be made or written."""

    code = "AMP-E303"
    exit_code = EXIT_IO


class FetchError(AmpError):
    """A data file cannot be fetched now."""

    code = "AMP-E304"
    exit_code = EXIT_RETRY


class ParametersError(AmpError):
    """Parameters from a file do not fit the graph."""

    code = "AMP-E305"
    exit_code = EXIT_CONFIG


class TraceError(AmpError):
    """The trace of a recorded run is damaged, another run's, or cannot be replayed."""

    code = "AMP-E306"
    exit_code = EXIT_CONFIG


class ReplayError(AmpError):
    """A replay came to other numbers than the run that was recorded."""

    code = "AMP-E307"


class CheckpointError(AmpError):
    """A checkpoint is damaged, does not fit the run, is in use, or cannot be written."""

    code = "AMP-E308"
    exit_code = EXIT_IO


# ------------------------------------------------------------------------ node contract


class NodeError(AmpError):
    """A node's contract was broken."""

    code = "AMP-E401"


class UnmatchedBackwardError(NodeError):
    """An answer came to a slot that is free: never issued, or answered already."""

    code = "AMP-E402"


class DuplicateStateError(NodeError):
    """A second row with the same key came to one port of a join."""

    code = "AMP-E403"


class GroupSizeError(NodeError):
    """More rows came to a group than it expects."""

    code = "AMP-E408"


class PayloadShapeError(NodeError):
    """A payload or gradient is not what the port declares."""

    code = "AMP-E404"


class KeyOverflowError(NodeError):
    """A key column holds a value outside its declared bits."""

    code = "AMP-E405"


class VerifyError(NodeError):
    """`verify: true` found an answer whose state is not the one emitted."""

    code = "AMP-E406"


class MissingStructureError(NodeError):
    """A row's structure is not in the arena, or an index leaves it."""

    code = "AMP-E407"


class InvariantError(AmpError):
    """A promise of the runtime does not hold: a bug of ours or of a node kind."""

    code = "AMP-E410"


class UserFunctionError(NodeError):
    """A function on states raised, or returned something of the wrong form."""

    code = "AMP-E411"


class DivergedError(NodeError):
    """Too many updates of a node would not have been finite."""

    code = "AMP-E412"
    is_final = True


# ------------------------------------------------------------------- wire and processes


class WireError(AmpError):
    """A frame is not what the protocol allows."""

    code = "AMP-E501"


class MessagesLostError(WireError):
    """Messages were lost on their way from one process to another."""

    code = "AMP-E503"


class LifecycleError(AmpError):
    """An event came in a status that does not allow it."""

    code = "AMP-E502"


class WorkerExitedError(AmpError):
    """A worker process ended unasked."""

    code = "AMP-E601"


class WorkerFaultError(AmpError):
    """A node raised an exception; its traceback is in the worker's log."""

    code = "AMP-E602"


class StartError(AmpError):
    """A worker could not start."""

    code = "AMP-E603"
    exit_code = EXIT_CONFIG


class StallError(AmpError):
    """A wait passed its deadline."""

    code = "AMP-E604"


class RestartLimitError(AmpError):
    """Workers failed more often than they may be started again."""

    code = "AMP-E606"


class WorkerHungError(AmpError):
    """A worker process is there, and says nothing any more."""

    code = "AMP-E607"


class PlacementError(AmpError):
    """Nodes cannot be placed on the cores this process may use."""

    code = "AMP-E605"
    exit_code = EXIT_CONFIG


class Interrupted(AmpError):
    """The run was stopped by SIGINT (Ctrl-C)."""

    code = "AMP-E901"
    exit_code = EXIT_SIGINT


class Terminated(AmpError):
    """The run was stopped by SIGTERM or SIGHUP."""

    code = "AMP-E902"
    exit_code = EXIT_SIGTERM
