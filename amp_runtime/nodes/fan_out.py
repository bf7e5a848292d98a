"""Nodes that emit several rows because of one, and sum the answers.

parent position: return address, answers owed, gradient sums
    ^
child slots: one for each emitted row, each pointing to its parent
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.rows.message import Answer, Payload, Rows
from amp_runtime.rows.picking import picked
from amp_runtime.rows.segments import reduce_segments, run_lengths, run_starts
from amp_runtime.rows.spec import Array, Int32, Int64
from amp_runtime.rows.stash import Stash


@dataclass(slots=True)
class Children:
    """Children that were answered together.

    Attributes:
        port: the output port that they left by.
        positions: int64 [rows], in the stash of children.
        parents: int64 [rows], the position of each one's parent.
        order: int64 [rows], puts the children of one parent side by side; None: no two of
            them have one parent.
        starts: int64 [parents], where in that order each parent's begin.
    """

    port: str
    positions: Int64
    parents: Int64
    order: Int64 | None = None
    starts: Int64 | None = None


class FanOut(Node):
    """Base of bcast and its kin; `self.stash` holds the children, `parents` the sums.

    An answer may name some of the arrays that were emitted: those missing are zero. Null
    and a gradient is the gradient; only nulls are null.
    """

    one_per_port: ClassVar[bool] = False
    """Whether a row has at most one child at each output port."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self.parents = Stash(context.name)
        (self._port,) = context.inputs
        self._sums = (
            {n: s for n, s in context.inputs[self._port].arrays.items() if s.dtype != "int32"}
            if self._port in context.wants_gradient
            else {}
        )
        self._answered: list[Int64] = []

    @property
    def waiting(self) -> int:
        return self.parents.used

    def open_parents(self, rows: Rows, owed: Array | int) -> Int64:
        """Return new parent positions for `rows`, each owing `owed` answers."""
        parents = self.parents.allocate(len(rows))
        self.parents.put(parents, {"return_to": rows.return_to})
        self.parents.column("owed", (), np.int64)[parents] = owed
        self.parents.column("has", (), np.bool_)[parents] = False
        for name, spec in self._sums.items():
            sums = self.parents.column(f"sum.{name}", spec.shape, spec.numpy_dtype)
            sums[parents] = 0
        return parents

    def open_children(self, port: str, parents: Int64, state: Int32) -> Int32:
        """Return stamped columns for one child row of each entry of `parents`."""
        positions = self.stash.allocate(len(parents))
        self.stash.put(positions, {"parent": parents})
        return self.stamp(port, positions, state)

    def collect(self, sums: Array, children: Children, gradient: Array) -> None:
        """Add one array's gradients of `children` [rows, ...] to those of their parents.

        Args:
            sums: of all parents, by position; changed here. Zeros before the first.
        """
        order, starts = children.order, children.starts
        if order is None or starts is None:
            sums[children.parents] += gradient
            return
        counts = run_lengths(starts, len(order))
        sums[children.parents[order[starts]]] += reduce_segments(
            np.add, picked(gradient, order), counts
        )

    def backward(self, port: str, slots: Int32, gradient: Payload | None) -> Sequence[Answer]:
        positions = self.stash.answer(slots)
        self._answered.append(positions)
        parents = self.stash.take("parent", positions)
        children = Children(port, positions, parents)
        answered: Int64 | int = 1
        if not self.one_per_port:
            order = parents.argsort(kind="stable")
            ordered = parents[order]
            starts = run_starts(ordered)
            if len(starts) < len(order):
                children.order, children.starts = order, starts
                parents, answered = ordered[starts], run_lengths(starts, len(order))
        if gradient is not None and len(parents):
            for name, array in gradient.items():
                if name in self._sums:
                    self.parents.column("has", (), np.bool_)[parents] = True
                    sums = self.parents.column(f"sum.{name}", (), array.dtype)
                    self.collect(sums, children, array)
        owed = self.parents.column("owed", (), np.int64)
        still = owed[parents]
        still -= answered
        owed[parents] = still
        done = parents[still == 0]
        if not len(done):
            return ()
        has = self.parents.take("has", done)
        answers = []
        if has.any():
            some = done if has.all() else done[has]
            found = {n: self.parents.take(f"sum.{n}", some) for n in self._sums}
            answers.append(Answer(self.parents.take("return_to", some), found))
        if not has.all():
            answers.append(Answer(self.parents.take("return_to", done[~has]), None))
        self.parents.close(done)
        return answers

    def accumulate(self) -> None:
        for positions in self._answered:
            self.stash.free(positions)
        self._answered.clear()
