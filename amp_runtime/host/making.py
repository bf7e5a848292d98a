"""From a node's specification to the node, in the worker that hosts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amp_runtime.errors import AmpError, StartError
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.node import Evaluation, Kinds, Node, NodeContext
from amp_runtime.nodes.updates import Schedule, UpdatePolicy
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.rows.structure import StructureArena

if TYPE_CHECKING:
    from amp_runtime.control.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What all workers of a run share.

    Attributes:
        peer_of: peer number by node number; the controller is peer 0.
        update_every: examples per update, for nodes that do not say otherwise.
        evaluation: what ends of the graph make of rows in evaluation.
    """

    peer_of: Sequence[int]
    seed: int = 0
    verify: bool = False
    schedule: Schedule = Schedule.ASYNCHRONOUS
    update_every: int = 100
    evaluation: Evaluation = Evaluation.METRICS

    @staticmethod
    def of(settings: ControllerSettings, peer_of: Sequence[int]) -> HostSettings:
        """Return what the nodes of a run with a controller of `settings` are given."""
        return HostSettings(
            peer_of,
            settings.seed,
            settings.verify,
            settings.schedule,
            settings.update_every,
            settings.evaluation,
        )


def make_node(
    wiring: Wiring, number: int, kinds: Kinds, settings: HostSettings, arena: StructureArena
) -> Node:
    """Return node `number` as it is before training.

    Args:
        kinds: finds its class.
        arena: of the worker; the node sees the fields that it declared.
    Raises:
        AmpError: its class is not found, or it cannot be made; names the node.
    """
    spec = wiring.nodes[number]
    where = f"node {spec.name!r} (kind {spec.kind})"
    cls = kinds.load(spec.kind, where=f"node {spec.name!r}")
    context = _context(wiring, number, cls, settings, arena)
    try:
        node = cls(context)
    except AmpError as error:
        raise (error if error.where else error.at(where)) from error.__cause__
    except Exception as error:
        fix = "make its layers smaller" if _is_too_big(error) else ""
        said = f"cannot be made: {type(error).__name__}: {error}"
        raise StartError(said, where=where, fix=fix) from error
    if not hasattr(node, "stash"):
        raise StartError("its __init__ does not call super().__init__(context)", where=where)
    return node


def _context(
    wiring: Wiring, number: int, cls: type[Node], settings: HostSettings, arena: StructureArena
) -> NodeContext:
    spec = wiring.nodes[number]
    context = NodeContext(
        name=spec.name,
        ir_name=spec.ir_name,
        kind=spec.kind,
        options=cls.read_options(spec.options),
        inputs=spec.inputs,
        outputs=spec.outputs,
        wants_gradient=wiring.ports_wanting_gradient(number),
        return_ports={port: r for r, (n, port) in enumerate(wiring.return_ports) if n == number},
        dtype=wiring.dtype,
        seed=settings.seed,
        structure=arena.only(spec.fields),
        verify=settings.verify,
        evaluation=settings.evaluation,
    )
    if not spec.parameterised:
        return context
    training = spec.training
    policy = UpdatePolicy(
        settings.schedule,
        training["update_every"],
        training["min_update_frequency"],
        spec.replica,
        spec.replicas,
        training["nan_limit"],
    )
    return replace(
        context,
        updates=policy,
        optimizer=training["optimizer"],
        lr_schedule=training["lr_schedule"],
        clip=training["clip"],
        initializer=training["initializer"],
        backward_weights=BackwardWeights(training["backward_weights"]),
        delay=training["delay"],
        compensation=training["compensation"],
    )


def _is_too_big(error: Exception) -> bool:
    """Whether an array was asked for that no memory holds: NumPy has three errors for it."""
    numpy_says = ("array is too big", "Maximum allowed dimension exceeded")
    return isinstance(error, MemoryError) or str(error).startswith(numpy_says)
