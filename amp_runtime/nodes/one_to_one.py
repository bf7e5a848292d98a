"""Nodes that turn one row into one row; all there is to those without parameters (NPT)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amp_runtime.errors import NodeError
from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.rows.message import Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.spec import Int32, Int64

_MAPPINGS = (dict, Mapping)  # the first is asked first, and faster


class OneToOne(Node):
    """A payload transform: input `x`, output `y`, the state unchanged.

    A kind writes the mathematics, for all rows at once:

        compute(payload) -> (output payload, what the gradient will need)
        backpropagate(saved, gradient, wants_input) -> input gradient

    A kind whose training differs from its evaluation, or depends on the state, also
    overrides `transform`.
    """

    one_to_one = True

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._answered: list[Int64] = []

    @abstractmethod
    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        """Return the output payload, and the arrays to keep per row.

        Both are new memory, or arrays of `payload` as they came.
        """

    @abstractmethod
    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        """Return dL/dx for each row, or None where `wants_input` is false.

        Args:
            saved: what `compute` returned for these rows, new memory.
            gradient: dL/dy; an array that is missing is zero.
        """

    def transform(self, rows: Rows, mode: Mode) -> tuple[Payload, Payload]:
        """Return what `compute` returns, from rows that know their state, in `mode`."""
        return self.compute(rows.payload)

    def to_keep(self, rows: Rows, saved: Payload) -> Payload:
        """Return the arrays to keep per row, of which `compute` said `saved`."""
        return saved

    def differentiate(self, kept: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        """Return dL/dx of rows of which `kept` was kept, new memory."""
        return self.backpropagate(kept, gradient, wants_input)

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        output, saved = self._checked(self.transform(rows, mode), len(rows))
        if mode is Mode.EVALUATE:
            return (Emission("y", Rows(rows.columns, output, rows.width)),)
        positions = self.stash.allocate(len(rows))
        kept = self.to_keep(rows, saved)
        self._kept = tuple(kept)
        self.stash.put(positions, {"return_to": rows.return_to, **kept})
        columns = self.stamp("y", positions, rows.state)
        return (Emission("y", Rows(columns, output, rows.width)),)

    def _checked(self, made: Any, n_rows: int) -> tuple[Payload, Payload]:
        """Return what `compute` returned, if it has its form.

        Raises:
            NodeError: it has not.
        """
        pair = isinstance(made, tuple) and len(made) == 2
        if not pair or not (isinstance(made[0], _MAPPINGS) and isinstance(made[1], _MAPPINGS)):
            raise NodeError(
                f"compute returned {_form(made)}, not two dicts of arrays: the output, and what "
                "the gradient will need",
                where=self.where,
            )
        for name, array in made[1].items():
            if not isinstance(array, np.ndarray) or array.shape[:1] != (n_rows,):
                raise NodeError(
                    f"compute keeps {name!r} of shape {list(np.shape(array))} for {n_rows} rows",
                    where=self.where,
                    fix="an array that is kept has a row for each row: they come back one by one",
                )
        return made[0], made[1]

    def backward(self, port: str, slots: Int32, gradient: Payload | None) -> Sequence[Answer]:
        positions = self.stash.answer(slots)
        self._answered.append(positions)
        input_gradient: Payload | None = None
        if gradient is not None:
            kept = {name: self.stash.take(name, positions) for name in self._kept}
            wants_input = "x" in self.context.wants_gradient
            found = self.differentiate(kept, gradient, wants_input)
            input_gradient = self.wanted("x", found, "backpropagate")
        return (Answer(self.stash.take("return_to", positions), input_gradient),)

    def accumulate(self) -> None:
        for positions in self._answered:
            self.stash.free(positions)
        self._answered.clear()


def _form(given: Any) -> str:
    """Return what a user's code returned, in a few words."""
    if given is None:
        return "None (a return is missing?)"
    if isinstance(given, np.ndarray):
        return f"an array {given.dtype}{list(given.shape)}"
    if isinstance(given, Mapping):
        return f"one dict, of {', '.join(map(str, given))}"
    return (
        f"a {type(given).__name__} of {len(given)}"
        if isinstance(given, tuple)
        else repr(given)[:80]
    )
