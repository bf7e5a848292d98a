"""The replicas among the nodes of one worker, and the records about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_runtime.errors import WireError
from amp_runtime.graph.wiring import NodeSpec
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.nodes.replica import Replica, make_replica
from amp_runtime.nodes.updates import Schedule
from amp_runtime.optim.snapshot import Snapshot
from amp_runtime.rows.saved import Saved
from amp_runtime.wire.protocol import AskShare, Barrier, EvaluateWith, GoOn, Share


class HostReplicas:
    """Shares when it is time, when asked, and at barriers.

    Args:
        worker: number of the worker.
        nodes: (spec, node) of those with replicas.
    """

    def __init__(
        self, worker: int, nodes: Iterable[tuple[NodeSpec, Parameterised]], schedule: Schedule
    ) -> None:
        self._worker = worker
        self._replicas: dict[str, Replica] = {
            spec.name: make_replica(node, spec.training, schedule) for spec, node in nodes
        }

    def moves(self, node: str) -> int | None:
        """Return how often a node went on from what it was sent: versions that are no updates.

        None: it has no replicas.
        """
        replica = self._replicas.get(node)
        return replica.moves if replica else None

    def save(self, node: str) -> Saved:
        """Return what a replica goes on from beside its node; empty of what is none."""
        replica = self._replicas.get(node)
        return replica.save() if replica else Saved()

    def restore(self, node: str, saved: Saved) -> None:
        """Go on from what `save` returned; the node has been restored before."""
        if replica := self._replicas.get(node):
            replica.restore(saved)

    def due(self) -> list[Share]:
        """Return what is to be shared now, unasked."""
        return [self._share(name) for name, replica in self._replicas.items() if replica.due]

    def at_barrier(self, barrier: Barrier) -> Iterator[Share]:
        """Do what a barrier asks of replicas; yield what they share."""
        for name, replica in self._replicas.items():
            if barrier.resume:
                replica.resume()
            if barrier.share:
                yield self._share(name, barrier.barrier)

    def obey(self, record: AskShare | GoOn | EvaluateWith) -> list[Share]:
        """Obey a record of the controller about one replica; return the reply.

        Raises:
            WireError: it is not here.
        """
        replica = self._replicas.get(record.node)
        if replica is None:
            raise WireError(f"record {record.verb!r} for {record.node!r}, which is no replica here")
        match record:
            case AskShare():
                # It may have shared by itself meanwhile: then that is what was asked for.
                return [] if replica.pending else [self._share(record.node)]
            case GoOn():
                held = Snapshot(record.arrays, record.beside, record.count, record.steps)
                replica.go_on(held)
            case EvaluateWith():
                replica.evaluate_with(record.arrays)
        return []

    def _share(self, node: str, barrier: int = 0) -> Share:
        held = self._replicas[node].share(at_barrier=bool(barrier))
        return Share(self._worker, node, barrier, held.count, held.steps, held.arrays, held.beside)
