"""Replicas, seen from the controller: they share with it, and are told what to go on from.

    averaged   every so many updates, each at its own time:
                   together   one shares -> the others are asked -> all are told
                   elastic    one shares -> it is told
               at the end of an epoch, and to begin with: all share, at a barrier
    summed     before a synchronous step: all share their gradients, at a barrier

A replica trains on while it waits, and shares whether rows come to it or not: nobody waits
for a replica without rows. At a barrier, what was shared before it no longer counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from amp_runtime.control.actions import ToWorker
from amp_runtime.errors import InvariantError, LifecycleError, WireError
from amp_runtime.graph.wiring import NodeSpec, Wiring
from amp_runtime.nodes.updates import Schedule
from amp_runtime.optim.averaging import Averaging, make_averaging
from amp_runtime.optim.snapshot import Snapshot
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array
from amp_runtime.wire.protocol import AskShare, EvaluateWith, GoOn, Share


@dataclass(frozen=True, slots=True)
class _Member:
    """One replica."""

    name: str
    peer: int

    def goes_on(self, held: Snapshot) -> ToWorker:
        return ToWorker(
            self.peer, GoOn(self.name, held.count, held.steps, held.arrays, held.beside)
        )


class _Group(ABC):
    """The replicas of one IR node; shares are kept by the number of the replica."""

    def __init__(self, members: Sequence[_Member]) -> None:
        self.members = members
        self.at_barrier: dict[int, Snapshot] = {}

    @abstractmethod
    def shared(self, replica: int, snapshot: Snapshot) -> list[ToWorker]:
        """Take what a replica shared while training goes on."""

    def abandon(self) -> None:
        """Forget what was shared while training went on."""

    def meet(self) -> list[ToWorker]:
        """Answer to what all shared at a barrier."""
        snapshots = [self.at_barrier[replica] for replica in range(len(self.members))]
        self.at_barrier.clear()
        return [
            member.goes_on(held)
            for member, held in zip(self.members, self._meet(snapshots), strict=True)
        ]

    @abstractmethod
    def _meet(self, snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]: ...

    def begin(self) -> None:
        """Learn what all began with, from what they shared at a barrier."""

    def save(self) -> Saved:
        """Return what it goes on from."""
        return Saved()

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` returned."""

    def to_evaluate(self) -> list[ToWorker]:
        """Return what tells replicas what to be evaluated with, where that is not what they are."""
        return []

    def one_of(self, parameters: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
        """Return the parameters of the node, of those of all replicas.

        Raises:
            InvariantError: they must be equal, and are not.
        """
        first, *others = parameters
        for member, other in zip(self.members[1:], others, strict=True):
            for name, array in first.items():
                if array.tobytes() != other[name].tobytes():
                    raise InvariantError(
                        f"parameter {name!r} of replicas {self.members[0].name!r} and "
                        f"{member.name!r} differs, though they were made equal"
                    )
        return first


class _Averaged(_Group):
    """Replicas that share their parameters."""

    def __init__(self, members: Sequence[_Member], options: Mapping[str, object]) -> None:
        super().__init__(members)
        self._options = options
        self._scheme: Averaging | None = None
        self._waiting: dict[int, Snapshot] = {}

    @property
    def scheme(self) -> Averaging:
        if self._scheme is None:
            raise LifecycleError(f"{self.members[0].name!r} shared before it began")
        return self._scheme

    def begin(self) -> None:
        begun = self.one_of([self.at_barrier[n].arrays for n in range(len(self.members))])
        self.at_barrier.clear()
        self._scheme = make_averaging(self._options, len(self.members), begun)

    def save(self) -> Saved:
        return self.scheme.save()

    def restore(self, saved: Saved) -> None:
        begun = saved.part("centre").arrays
        self._scheme = make_averaging(self._options, len(self.members), begun)
        self._scheme.restore(saved)

    def shared(self, replica: int, snapshot: Snapshot) -> list[ToWorker]:
        if not self.scheme.together:
            (held,) = self.scheme.meet([snapshot])
            return [self.members[replica].goes_on(held)]
        asked = bool(self._waiting)
        if replica in self._waiting:
            raise LifecycleError(f"{self.members[replica].name!r} shared twice")
        self._waiting[replica] = snapshot
        if len(self._waiting) == len(self.members):
            self.at_barrier, self._waiting = self._waiting, {}
            return self.meet()
        others = [m for n, m in enumerate(self.members) if n != replica]
        return [] if asked else [ToWorker(m.peer, AskShare(m.name)) for m in others]

    def abandon(self) -> None:
        self._waiting.clear()

    def _meet(self, snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
        return self.scheme.meet(snapshots)

    def to_evaluate(self) -> list[ToWorker]:
        if not self.scheme.apart:
            return []
        return [ToWorker(m.peer, EvaluateWith(m.name, self.scheme.centre)) for m in self.members]

    def one_of(self, parameters: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
        if self._scheme is not None and self._scheme.apart:
            return self._scheme.centre
        return super().one_of(parameters)


class _Summed(_Group):
    """Replicas that share their gradients, so that each steps with that of all."""

    def shared(self, replica: int, snapshot: Snapshot) -> list[ToWorker]:
        raise LifecycleError(f"{self.members[replica].name!r} shared a gradient unasked")

    def _meet(self, snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
        arrays, beside = {}, {}
        for name in snapshots[0].arrays:
            gradients = [s.arrays[name] for s in snapshots]
            rows = f"rows@{name}"
            if rows in snapshots[0].beside:  # of some rows of a table: they are added up there
                arrays[name] = np.concatenate(gradients)
                beside[rows] = np.concatenate([s.beside[rows] for s in snapshots])
            else:
                arrays[name] = sum(gradients[1:], start=gradients[0])
        total = Snapshot(arrays, beside, count=sum(s.count for s in snapshots))
        return [total] * len(snapshots)


class Replicas:
    """The replicas of all nodes that have some.

    Args:
        peer_of: peer number by node number.
    """

    def __init__(self, wiring: Wiring, peer_of: Sequence[int], schedule: Schedule) -> None:
        self._averaging = schedule is Schedule.ASYNCHRONOUS
        found: dict[str, list[tuple[NodeSpec, int]]] = {}
        for node, peer in zip(wiring.nodes, peer_of, strict=True):
            if node.replicas > 1:
                found.setdefault(node.ir_name, []).append((node, peer))
        self._groups: dict[str, _Group] = {}
        self._replica: dict[str, tuple[_Group, int, int]] = {}
        for ir_name, nodes in found.items():
            members = [_Member(node.name, peer) for node, peer in nodes]
            options = nodes[0][0].training["averaging"]
            group = _Averaged(members, options) if self._averaging else _Summed(members)
            self._groups[ir_name] = group
            for n, member in enumerate(members):
                self._replica[member.name] = (group, n, member.peer)

    @property
    def average(self) -> bool:
        """Whether any is averaged."""
        return self._averaging and bool(self._groups)

    @property
    def sum(self) -> bool:
        """Whether any is stepped with the sum of gradients."""
        return not self._averaging and bool(self._groups)

    @property
    def most(self) -> int:
        """The largest number of replicas of a node."""
        return max((len(group.members) for group in self._groups.values()), default=1)

    def on_share(self, share: Share, barrier: int) -> list[ToWorker]:
        """Take what a replica shared.

        Args:
            barrier: that is waited for; 0: training goes on.
        Raises:
            LifecycleError: a worker shared for a node that it does not host, or unasked.
            WireError: it shared other arrays than another replica.
        """
        group, replica, peer = self._replica.get(share.node, (None, 0, 0))
        if group is None or peer != share.worker + 1 or share.barrier not in (0, barrier):
            raise LifecycleError(f"worker {share.worker} shared {share.node!r} unasked")
        snapshot = Snapshot(share.arrays, share.beside, share.count, share.steps)
        if share.barrier:
            for other in group.at_barrier.values():
                _check_alike(share, other)
            group.at_barrier[replica] = snapshot
            return []
        # What was under way when a barrier was asked for: there it shares again.
        return [] if barrier else group.shared(replica, snapshot)

    def abandon(self) -> None:
        """Forget what was shared while training went on: a barrier comes, where all share."""
        for group in self._groups.values():
            group.abandon()

    def begin(self) -> None:
        """Learn what all began with, from what they shared at a barrier."""
        for group in self._groups.values():
            group.begin()

    def save(self) -> Saved:
        """Return what they go on from: of each node, what its scheme holds."""
        saved = Saved()
        for name, group in self._groups.items():
            saved.add(name, group.save())
        return saved

    def restore(self, saved: Saved, *, evaluate: bool) -> Iterator[ToWorker]:
        """Go on from what `save` returned; yield what replicas are to be told.

        Args:
            evaluate: whether an evaluation comes next.
        """
        for name, group in self._groups.items():
            group.restore(saved.part(name))
            if evaluate:
                yield from group.to_evaluate()

    def meet(self, *, evaluate: bool) -> Iterator[ToWorker]:
        """Yield the answers to what all shared at a barrier.

        Args:
            evaluate: whether an evaluation follows.
        """
        for group in self._groups.values():
            yield from group.meet()
            if evaluate:
                yield from group.to_evaluate()

    def merged(
        self, parameters: Mapping[str, Mapping[str, Array]]
    ) -> dict[str, Mapping[str, Array]]:
        """Return parameters by IR node, of those of all nodes.

        Raises:
            InvariantError: replicas that must be equal are not.
        """
        merged = {node: p for node, p in parameters.items() if node not in self._replica}
        for ir_name, group in self._groups.items():
            merged[ir_name] = group.one_of([parameters[m.name] for m in group.members])
        return merged


def _check_alike(share: Share, other: Snapshot) -> None:
    """Assert that two replicas share the same arrays; rows of a table may differ in number."""
    for given, others in ((share.arrays, other.arrays), (share.beside, other.beside)):
        forms = [{n: (a.dtype, a.shape[1:]) for n, a in some.items()} for some in (given, others)]
        if forms[0] != forms[1]:
            raise WireError(
                f"{share.node!r} shared {sorted(given)}, and another replica {sorted(others)}, "
                "or arrays of another form"
            )
