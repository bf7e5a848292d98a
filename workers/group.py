"""Joins the rows whose states have one key into one row: stacked, summed, averaged, maximal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from amp_runtime.errors import (
    DuplicateStateError,
    SchemaMismatchError,
    ShapeMismatchError,
    UserFunctionError,
)
from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.nodes.state_change import StateChange, WholeNumbers, leaving_schema
from amp_runtime.rows.blocks import ColumnSpec
from amp_runtime.rows.gathering import Gathering
from amp_runtime.rows.message import ADDRESS_COLUMNS, Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.spec import ArraySpec, Columns, Int32, Int64, PortSpec
from workers.reductions import REDUCTIONS


class Group(Node):
    """Input `x`, output `y`: one row for each key, when `count` rows of that key have come.

    With `stack` an array [rows, *features] leaves as [rows, count, *features], else as it
    came. A group of no rows would never leave: with `announced`, the input port `key`
    brings one row for each group, in the state of the group, which leaves when this row
    and its members are there; sum, mean and max of none are zeros.
    """

    kind = "group"
    changes_state = True
    keeps_state = ("key",)

    @dataclass(frozen=True, slots=True)
    class Options:
        reduce: Annotated[
            Literal["stack", "sum", "mean", "max"],
            "what becomes of the rows of a group; of equal maxima the first gets the gradient",
        ]
        key: Annotated[
            str,
            "package.module:function of (columns, structure) that returns the state columns that "
            "it changes; rows that get the same state are one group, which leaves with it",
        ]
        count: Annotated[
            int | str,
            "how many rows a group has: a number, or a package.module:function of (columns, "
            "structure) that is given the states of groups",
        ]
        position: Annotated[
            str | None,
            "package.module:function of (columns, structure) that returns, for each row, its "
            "place in its group, 0 to count - 1; none: in the order of their states",
        ] = None
        columns: Annotated[
            Mapping[str, int] | None,
            "{state column: bits} of what leaves, beside instance and example; none: as it came",
        ] = None
        announced: Annotated[
            bool, "whether input port `key` brings one row for each group; then it may be empty"
        ] = False
        passes: Annotated[
            Mapping[str, str],
            "{array of the rows at `key`: the name that it leaves by, beside those of the group}",
        ] = field(default_factory=dict)

        def __post_init__(self) -> None:
            if isinstance(self.count, int) and self.count < 1:
                raise ValueError(f"count: a group of {self.count} rows never leaves")
            if self.reduce == "stack" and not isinstance(self.count, int):
                raise ValueError("count: a stack is of a fixed number of rows")
            if self.passes and not self.announced:
                raise ValueError("passes: needs announced: true, for the port `key`")

    # ---- what the graph builder asks

    @classmethod
    def input_ports(cls, options: Any) -> tuple[str, ...]:
        return ("x", "key") if options.announced else ("x",)

    @classmethod
    def state_functions(cls, options: Any) -> Sequence[str]:
        named = (options.key, options.count, options.position)
        return [name for name in named if isinstance(name, str)]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if any(array.dtype != dtype for array in spec.arrays.values()):
            raise ShapeMismatchError(f"port 'x' takes {dtype} arrays, but is given {spec}")
        stacked = (options.count,) if options.reduce == "stack" else ()
        arrays = {
            name: ArraySpec((*stacked, *array.shape), dtype) for name, array in spec.arrays.items()
        }
        schema = leaving_schema(spec.schema, options.columns)
        if options.announced:
            announcing = inputs["key"]
            if options.columns is not None and announcing.schema != schema:
                raise SchemaMismatchError(
                    f"groups have state {schema}, but port 'key' {announcing.schema}"
                )
            schema = announcing.schema
            for array, name in options.passes.items():
                if array not in announcing.arrays or name in arrays:
                    raise ShapeMismatchError(
                        f"option 'passes': {array!r} cannot leave as {name!r} beside "
                        f"{sorted(arrays)}; port 'key' is given {announcing}"
                    )
                arrays[name] = announcing.arrays[array]
        return {"y": PortSpec(arrays, schema)}

    # ---- life

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        options = context.options
        self._before = context.inputs["x"].schema
        self._after = context.outputs["y"].schema
        self._reduction = REDUCTIONS[options.reduce]
        self._key = StateChange(self, options.key, self._before, self._after)
        self._count = WholeNumbers(self, options.count, at_least=0 if options.announced else 1)
        self._position = WholeNumbers(self, options.position) if options.position else None
        width = ADDRESS_COLUMNS + len(self._before.names) * context.verify
        kept: dict[str, ColumnSpec] = {"return_to": ((width,), np.int32), "order": ((), np.int64)}
        for name, array in context.inputs["x"].arrays.items():
            kept[f"x.{name}"] = (array.shape, array.numpy_dtype)
        self._gathering = Gathering(self.stash, kept, announced=options.announced)
        self._passes = dict(options.passes)
        self._answered: list[Int64] = []

    @property
    def waiting(self) -> int:
        return self._gathering.waiting

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        if not len(rows):
            return ()
        entries = self._announce(rows) if port == "key" else self._join(rows)
        done = self._gathering.completed(entries)
        if not len(done):
            return ()
        if self._position is None:
            self._sort(done)
        members, counts = self._members(done)
        payload = {}
        for name in self.context.inputs["x"].arrays:
            array = self._gathering.members.take(f"x.{name}", members)
            payload[name] = self._reduction.combine(array, counts)
            if self._reduction.save is not None and mode is Mode.TRAIN:
                self.stash.put(done, {f"saved.{name}": self._reduction.save(array, counts)})
        for array, name in self._passes.items():
            payload[name] = self.stash.take(f"key.{array}", done)
        columns = self.stamp("y", done, self.stash.take("state", done))
        return (Emission("y", Rows(columns, payload, len(self._after.names))),)

    def backward(self, port: str, slots: Int32, gradient: Payload | None) -> Sequence[Answer]:
        positions = self.stash.answer(slots)
        self._answered.append(positions)
        members, counts = self._members(positions)
        return_to = self._gathering.members.take("return_to", members)
        answers = [Answer(return_to, self._divided(positions, counts, gradient))]
        if self.options.announced:
            return_to = self.stash.take("return_to.key", positions)
            answers.append(Answer(return_to, self._passed_back(gradient)))
        return answers

    def accumulate(self) -> None:
        for positions in self._answered:
            self._gathering.close(positions)
            self.stash.free(positions)
        self._answered.clear()

    # ---- members

    def _join(self, rows: Rows) -> Int64:
        """Put members into their groups; return the entry of each."""
        columns = self.columns(rows, "x")
        state = self._key(columns)
        entries = self._enter(state)
        positions = None if self._position is None else self._positions(columns, entries)
        places = self._gathering.place(entries, positions, columns)
        kept = {f"x.{name}": array for name, array in rows.payload.items()}
        if self._position is None:
            kept["order"] = self._before.pack(rows.state)
        self._gathering.members.put(places, {"return_to": rows.return_to, **kept})
        return entries

    def _announce(self, rows: Rows) -> Int64:
        """Note the rows that announce groups; return the entry of each."""
        entries = self._enter(rows.state)
        self._gathering.announce(entries, self.columns(rows, "key"))
        passed = {f"key.{name}": rows.payload[name] for name in self._passes}
        self.stash.put(entries, {"return_to.key": rows.return_to, **passed})
        return entries

    def _enter(self, state: Int32) -> Int64:
        entries = self._gathering.enter(
            self._after.pack(state), lambda at: self._count(Columns(state[at], self._after))
        )
        self.stash.put(entries, {"state": state})
        return entries

    def _positions(self, columns: Columns, entries: Int64) -> Int64:
        assert self._position is not None
        positions = self._position(columns)
        count = self._gathering.members.counts(entries)
        if (outside := positions >= count).any():
            at = int(np.flatnonzero(outside)[0])
            raise UserFunctionError(
                f"{self.options.position} returned {int(positions[at])} in a group of "
                f"{int(count[at])} rows",
                where=f"node {self.name!r} (kind group), {columns.words(at)}",
            )
        return positions

    def _members(self, entries: Int64) -> tuple[Int64, Int64]:
        """Return the members of all `entries`, one group behind the other, and their counts."""
        members = self._gathering.members
        return members.rows(entries), members.counts(entries)

    def _sort(self, entries: Int64) -> None:
        """Bring the members of complete groups into the order of their states.

        Raises:
            DuplicateStateError: two have the same.
        """
        members, counts = self._members(entries)
        states = self._gathering.members.take("order", members)
        group = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((states, group))
        same = np.diff(states[order]) == 0
        if (same & (np.diff(group) == 0)).any():
            at = int(np.flatnonzero(same & (np.diff(group) == 0))[0])
            of = Columns(self.stash.take("state", entries), self._after)
            raise DuplicateStateError(
                "two members of one group have the same state",
                where=f"node {self.name!r}, port 'x', group of {of.words(int(group[at]))}",
                fix="a state must be unique per visit: change it in every cycle (isu)",
            )
        self._gathering.members.reorder(members, order)

    def _divided(
        self, entries: Int64, counts: Int64, gradient: Payload | None
    ) -> dict[str, Any] | None:
        """Return the gradient of the members of `entries`; None where there is none."""
        if gradient is None or "x" not in self.context.wants_gradient:
            return None
        divided = {}
        for name in self.context.inputs["x"].arrays:
            if name not in gradient:
                continue
            saved = None
            if self._reduction.save is not None:
                saved = self.stash.take(f"saved.{name}", entries)
            divided[name] = self._reduction.divide(gradient[name], counts, saved)
        return divided or None

    def _passed_back(self, gradient: Payload | None) -> Payload | None:
        """Return the gradient of the rows at `key`; None where there is none."""
        if gradient is None or "key" not in self.context.wants_gradient:
            return None
        return {a: gradient[n] for a, n in self._passes.items() if n in gradient} or None
