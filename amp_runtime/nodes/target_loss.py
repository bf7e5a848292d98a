"""Losses that compare each row with a target of as many features, taken from the structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.nodes.end import PredictionForm
from amp_runtime.nodes.loss import Loss, check_index
from amp_runtime.rows.message import Rows
from amp_runtime.rows.spec import Array, ArraySpec, PortSpec


class TargetLoss(Loss):
    """Input `x` {one array of floats: [rows, ...]}; the target of a row is structure."""

    @dataclass(frozen=True, slots=True)
    class Options:
        target: Annotated[str, "field that holds the targets, of as many features"] = "target"
        index: Annotated[
            str | None, "state column that tells a row's element of `target`; none: element 0"
        ] = None

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        spec = inputs["x"]
        if [a.dtype for a in spec.arrays.values()] != [dtype]:
            raise ShapeMismatchError(f"port 'x' takes one array of {dtype}, but is given {spec}")
        check_index(options.index, spec.schema)
        return {}

    @classmethod
    def fields(cls, options: Any) -> Sequence[str]:
        return (options.target,)

    @classmethod
    def label_fields(cls, options: Any) -> Sequence[str]:
        return (options.target,)

    @classmethod
    def single_fields(cls, options: Any) -> Sequence[str]:
        return (options.target,) if options.index is None else ()

    @classmethod
    def prediction_form(cls, options: Any) -> PredictionForm:
        return PredictionForm(options.index is not None)

    @classmethod
    def check_fields(
        cls, options: Any, inputs: Mapping[str, PortSpec], fields: Mapping[str, ArraySpec]
    ) -> None:
        (array,) = inputs["x"].arrays.values()
        n_target, n_x = prod(fields[options.target].shape), prod(array.shape)
        if n_target != n_x:
            raise ShapeMismatchError(
                f"a target of {n_target} features, but rows of {n_x}",
                fix=f"give the node before it as many features as {options.target!r} has",
            )

    def targets(self, rows: Rows, x: Array) -> Array:
        """Return what the rows of `x` are compared with, in its shape and dtype."""
        target = self.target(rows, self.options.target, self.options.index)
        return target.reshape(x.shape).astype(x.dtype, copy=False)
