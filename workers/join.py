"""Makes one payload of what comes on several ports with equal states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from amp_runtime.errors import ShapeMismatchError, nearest
from amp_runtime.limits import MinLen
from amp_runtime.nodes.joining import Joining
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.schema_checks import one_schema
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import ArraySpec, Int64, PortSpec


class Join(Joining):
    """Inputs as named by `inputs`; output `y`: the arrays of all.

    A port that is given one array names it; a port that is given several keeps their names.
    So `x` and `h` of single arrays make {x, h}, and `x` and `state` {h, c} make {x, h, c}.
    """

    kind = "join"
    infers_from_any = True

    @dataclass(frozen=True, slots=True)
    class Options:
        inputs: Annotated[tuple[str, ...], MinLen(2), "names of the input ports"]
        loop: Annotated[
            Mapping[str, Mapping[str, int]],
            "{port: {array: its width}} of what comes by a loop that begins behind this node, "
            "so that nothing else tells",
        ] = field(default_factory=dict)

        def __post_init__(self) -> None:
            for port in self.loop:
                if port not in self.inputs:
                    raise ValueError(f"loop: no input {port!r}{nearest(port, self.inputs)}")

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        inputs = dict(inputs)
        schema = one_schema(inputs)
        for port, widths in options.loop.items():
            told = {name: ArraySpec((width,), dtype) for name, width in widths.items()}
            inputs.setdefault(port, PortSpec(told, schema))
        if len(inputs) < len(options.inputs):
            return {}  # more is known later
        came_by: dict[str, str] = {}
        arrays = {}
        for port in options.inputs:
            spec = inputs[port]
            for own, joined in joined_names(port, spec).items():
                if joined in came_by:
                    raise ShapeMismatchError(
                        f"an array {joined!r} comes on port {came_by[joined]!r} "
                        f"and on port {port!r}, which is given {spec}",
                        fix="name the port otherwise, or put a take before it",
                    )
                came_by[joined] = port
                arrays[joined] = spec.arrays[own]
        return {"y": PortSpec(arrays, schema)}

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._joined = [joined_names(port, spec) for port, spec in context.inputs.items()]

    def keep(self, number: int, positions: Int64, payload: Payload) -> None:
        joined = self._joined[number]
        self.stash.put(positions, {f"x.{joined[name]}": x for name, x in payload.items()})

    def combine(self, positions: Int64) -> Payload:
        arrays = self.context.outputs["y"].arrays
        return {name: self.stash.take(f"x.{name}", positions) for name in arrays}

    def divide(self, positions: Int64, gradient: Payload) -> Sequence[Payload]:
        return [
            {own: gradient[name] for own, name in joined.items() if name in gradient}
            for joined in self._joined
        ]


def joined_names(port: str, spec: PortSpec) -> dict[str, str]:
    """Return {name of an array that comes to `port`: its name in the joined payload}."""
    names = list(spec.arrays)
    return {names[0]: port} if len(names) == 1 else {name: name for name in names}
