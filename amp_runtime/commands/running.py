"""What the verbs that start workers have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amp_runtime.control.parameters import NodeParameters
from amp_runtime.errors import OutputError
from amp_runtime.graph.placement import Placement
from amp_runtime.nodes.node import Kinds
from amp_runtime.output.run_folder import RunFolder
from amp_runtime.placing import plan_placement
from amp_runtime.prepare import Prepared
from amp_runtime.processes.launch import usable_cores
from amp_runtime.processes.signals import as_error


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the nodes of a run are.

    Attributes:
        words: the same, for the first line of the console.
        notes: what a user should know about it, and about the data.
    """

    placement: Placement
    cores: Sequence[int]
    words: str
    notes: Sequence[str]


def place(prepared: Prepared, kinds: Kinds) -> Placed:
    """Deal the nodes to workers and cores that this process may use, as the config says.

    Raises:
        ConfigProblemsError: a group of nodes that cannot be.
    """
    cores = usable_cores()
    planned = plan_placement(prepared, kinds, cores)
    placement = planned.placement
    n_workers, n_cores = len(placement.workers), len(cores)
    shared = f"{n_workers} workers share {n_cores} core{'s' if n_cores > 1 else ''}"
    words = f"{planned.summary()}, on cores {', '.join(map(str, cores))}"
    notes = [
        *planned.lines([*prepared.wiring.number]),
        *([shared] if n_workers > n_cores else []),
        *prepared.notes,
    ]
    return Placed(placement, cores, words, notes)


def parameters_of(run: RunFolder, which: str) -> tuple[NodeParameters, str]:
    """Return the parameters of a run, and what to say behind its name where they are a
    checkpoint's: of its end, or where it has none, as it was killed, of its newest checkpoint.

    Args:
        which: the checkpoint: `latest`, `best` or a number; '': none.
    Raises:
        UsageError, ParametersError, CheckpointError: there are none, or they are damaged.
    """
    if not which and (run.parameters.exists() or not run.checkpoints.exists()):
        return run.read_parameters(), ""
    # Imported here: most runs have ended.
    from amp_runtime.checkpoint.parameters import read_parameters

    found, name = read_parameters(run.checkpoints, which or "latest")
    return found, f", {name}"


@contextlib.contextmanager
def told_to(folder: RunFolder) -> Iterator[None]:
    """Record in a folder's manifest what made the command fail."""
    try:
        yield
    except BaseException as error:
        failure = as_error(error)
        with contextlib.suppress(OutputError):  # the first failure is the one to be told
            folder.finish(failure.line(), failure.exit_code)
        raise
