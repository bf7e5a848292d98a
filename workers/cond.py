"""Chooses an output by the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from amp_runtime.errors import UserFunctionError
from amp_runtime.limits import MinLen
from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from amp_runtime.rows.spec import PortSpec


class Cond(Node):
    """Input `x`, outputs as named by `outputs`; rows and return addresses pass unchanged."""

    kind = "cond"
    transparent = True

    @dataclass(frozen=True, slots=True)
    class Options:
        choose: Annotated[
            str,
            "package.module:function of (columns, structure) that returns, for each row, the "
            "number of its output; for two outputs a truth value will do",
        ]
        outputs: Annotated[tuple[str, ...], MinLen(2), "names of the output ports"] = ("no", "yes")

    @classmethod
    def output_ports(cls, options: Any) -> tuple[str, ...]:
        return tuple(options.outputs)

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return dict.fromkeys(options.outputs, inputs["x"])

    @classmethod
    def state_functions(cls, options: Any) -> Sequence[str]:
        return (options.choose,)

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._choose = self.state_function(self.options.choose)

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        given = self.call(self._choose, self.columns(rows, port))
        chosen = np.asarray(given)
        n = len(self.options.outputs)
        fits = chosen.shape == (len(rows),) and chosen.dtype.kind in "biu"
        if not fits or not ((chosen >= 0) & (chosen < n)).all():
            raise UserFunctionError(
                f"{self.options.choose} must return one output number (0 to {n - 1}) for each of "
                f"{len(rows)} rows, but returned {_shown(given)}",
                where=f"node {self.name!r} (kind cond)",
            )
        emissions = []
        for number, output in enumerate(self.options.outputs):
            mask = chosen == number
            if mask.all():
                return (Emission(output, rows),)
            if mask.any():
                emissions.append(Emission(output, rows.take(np.flatnonzero(mask))))
        return emissions


def _shown(given: Any) -> str:
    if given is None:
        return "None (a return is missing?)"
    found = np.asarray(given)
    return f"{found.dtype}{list(found.shape)} {found!r:.80}"
