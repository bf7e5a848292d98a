"""Adds the rows of several ports with equal states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any

import numpy as np

from amp_runtime.limits import MinLen
from amp_runtime.nodes.joining import Joining, floats_alike
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Int64, PortSpec


class Add(Joining):
    """Inputs as named by `inputs`, all alike, of any shape; output `y`: their sum.

    The parts are kept and added in the order of the ports, so the sum does not depend on
    which came first.
    """

    kind = "add"

    @dataclass(frozen=True, slots=True)
    class Options:
        inputs: Annotated[tuple[str, ...], MinLen(2), "names of the input ports"]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": floats_alike(inputs, dtype)}

    def keep(self, number: int, positions: Int64, payload: Payload) -> None:
        self.stash.put(positions, {f"{name}.{number}": x for name, x in payload.items()})

    def combine(self, positions: Int64) -> Payload:
        numbers = range(len(self.context.inputs))
        return {
            name: reduce(np.add, (self.stash.take(f"{name}.{n}", positions) for n in numbers))
            for name in self.context.outputs["y"].arrays
        }

    def divide(self, positions: Int64, gradient: Payload) -> Sequence[Payload]:
        return [gradient] * len(self.context.inputs)
