"""Multiplies the rows of several ports with equal states, element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any

import numpy as np

from amp_runtime.limits import MinLen
from amp_runtime.nodes.joining import Joining, floats_alike
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, Int64, PortSpec


class Multiply(Joining):
    """Inputs as named by `inputs`, all alike, of any shape; output `y`: their product."""

    kind = "multiply"

    @dataclass(frozen=True, slots=True)
    class Options:
        inputs: Annotated[tuple[str, ...], MinLen(2), "names of the input ports"]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": floats_alike(inputs, dtype)}

    def keep(self, number: int, positions: Int64, payload: Payload) -> None:
        self.stash.put(positions, {f"{name}.{number}": x for name, x in payload.items()})

    def combine(self, positions: Int64) -> Payload:
        names = self.context.outputs["y"].arrays
        return {name: reduce(np.multiply, self._factors(name, positions)) for name in names}

    def divide(self, positions: Int64, gradient: Payload) -> Sequence[Payload]:
        parts: list[dict[str, Array]] = [{} for _ in self.context.inputs]
        for name, g in gradient.items():
            factors = self._factors(name, positions)
            for number, part in enumerate(parts):
                # The product of the others, and not y / x: a factor may be zero.
                part[name] = reduce(np.multiply, factors[:number] + factors[number + 1 :], g)
        return parts

    def _factors(self, name: str, positions: Int64) -> list[Array]:
        numbers = range(len(self.context.inputs))
        return [self.stash.take(f"{name}.{n}", positions) for n in numbers]
