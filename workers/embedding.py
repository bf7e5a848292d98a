"""y = table[x]: a row of parameters for each token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from amp_runtime.errors import BadOptionError, NodeError, ShapeMismatchError
from amp_runtime.limits import Gt
from amp_runtime.nodes.node import single
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.optim.row_gradients import RowSums
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, ArraySpec, PortSpec


class Embedding(Parameterised):
    """Input `x` {one array: int32 [rows]}, output `y` {x: [rows, features]}.

    Parameter: table [entries, features] from a normal distribution. With `sparse:
    dense_equal` an update treats the gradient as dense, as torch.nn.Embedding does by
    default; with `lazy` as torch.optim.SparseAdam does: a row's moments decay only when it
    has a gradient, and a step costs what its rows cost, however long the table is. The
    two are the same with sgd without momentum and with adagrad, and cost the same there.
    """

    kind = "embedding"

    @dataclass(frozen=True, slots=True)
    class Options:
        entries: Annotated[int, Gt(0), "tokens are 0 to entries - 1"]
        features: Annotated[int, Gt(0), "width of the output"]
        std: Annotated[float, Gt(0), "standard deviation of the initial table"] = 1.0
        zero: Annotated[
            tuple[int, ...], "entries that begin as zeros: those that training never sees"
        ] = ()
        sparse: Annotated[
            Literal["dense_equal", "lazy"],
            "lazy: an update leaves rows without a gradient, and their moments, as they are",
        ] = "dense_equal"

        def __post_init__(self) -> None:
            for entry in self.zero:
                if not 0 <= entry < self.entries:
                    raise ValueError(
                        f"zero: {entry} is no entry; entries are 0 to {self.entries - 1}"
                    )

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [(a.shape, a.dtype) for a in spec.arrays.values()] != [((), "int32")]:
            raise ShapeMismatchError(f"port 'x' takes one array int32[rows], but is given {spec}")
        return {"y": PortSpec({"x": ArraySpec((options.features,), dtype)}, spec.schema)}

    @classmethod
    def check_training(cls, options: Any, training: Mapping[str, Any]) -> None:
        if isinstance(compensation := training["compensation"], Mapping):
            # Imported here: workers load this module, and check no options.
            from amp_runtime.remedies.prediction import NOT_PREDICTED, unpredictable

            lazy = options.sparse == "lazy"
            if said := unpredictable(compensation["predict"], ["table"], lazy):
                raise BadOptionError(f"option 'compensation': {said}", fix=NOT_PREDICTED)
        decay = training["optimizer"]["weight_decay"]
        if options.sparse == "lazy" and decay:
            raise BadOptionError(
                f"option 'sparse': lazy leaves rows without a gradient alone, but weight_decay "
                f"{decay:g} of optimizer {training['optimizer']['name']} shrinks all",
                fix="set sparse: dense_equal, or this node's optimizer: {weight_decay: 0}",
            )

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        shape = (self.options.entries, self.options.features)
        table = generator.normal(0, self.options.std, shape)
        if self.options.zero:
            table[list(self.options.zero)] = 0
        return {"table": table}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        tokens = single(payload)
        if len(tokens) and not (0 <= tokens.min() and tokens.max() < self.options.entries):
            bad = tokens[(tokens < 0) | (tokens >= self.options.entries)][0]
            raise NodeError(
                f"token {int(bad)} is outside 0 to {self.options.entries - 1}",
                where=f"node {self.name!r} (kind embedding)",
                fix="raise its option `entries`, or mend the data",
            )
        return {"x": self.parameters["table"].take(tokens, axis=0)}, {"x": tokens}

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        self.terms.add(saved["x"], gradient["x"])
        return None

    def read_backward(self, wants_input: bool) -> tuple[str, ...]:
        return ()

    def row_sums(self) -> Mapping[str, RowSums]:
        return {"table": RowSums(self.parameters["table"], lazy=self.options.sparse == "lazy")}

    def add_gradients(self, into: Mapping[str, Any]) -> None:
        into["table"].add(*self.terms.take())
