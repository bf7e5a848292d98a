"""Rows that the controller injects: what a builder says of them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from amp_runtime.errors import GraphError, ShapeMismatchError
from amp_runtime.graph.asking import check_array
from amp_runtime.graph.example_fields import ExampleFields
from amp_runtime.graph.wiring import InputSpec, PerExample
from amp_runtime.rows.spec import POSITION, ArraySpec, PortSpec, StateSchema


@dataclass(frozen=True, slots=True)
class zeros:  # noqa: N801 - reads as a function where it is used
    """A payload of an input: zeros of the given feature shape, in the run's dtype."""

    shape: tuple[int, ...] | int


@dataclass(frozen=True, slots=True)
class GivenInput:
    """What `Graph.input` is given beside a name."""

    each: str
    state: Mapping[str, str | int]
    payload: Mapping[str, str | zeros]
    at_least: int


def input_spec(
    name: str,
    given: GivenInput,
    schema: StateSchema,
    columns: tuple[str, ...],
    examples: ExampleFields,
    dtype: str,
) -> InputSpec:
    """Return a checked input.

    Args:
        columns: the model's own state columns.
        dtype: of floating payloads.
    Raises:
        GraphError: state or payload are no mappings by name, other columns are given than
            declared, or a field is not there.
        ShapeMismatchError: a field cannot be a state column.
    """
    where = f"input {name!r}"
    _check_mapping("state", given.state, where)
    _check_mapping("payload", given.payload, where)
    if set(given.state) != set(columns):
        raise GraphError(
            f"state columns {sorted(given.state)} do not match those declared {sorted(columns)}",
            where=where,
        )
    arrays: dict[str, ArraySpec] = {}
    sources: dict[str, str | None] = {}
    for array, source in given.payload.items():
        if isinstance(source, zeros):
            shape = source.shape
            arrays[array] = ArraySpec((shape,) if isinstance(shape, int) else tuple(shape), dtype)
            sources[array] = None
        else:
            arrays[array], sources[array] = examples.spec(source, where), source
        check_array(f"array {array!r}", arrays[array], where)
    if given.each != PerExample:
        examples.spec(given.each, where)
        if given.each not in examples.specs:
            raise GraphError(f"{given.each!r} has no elements", where=where, fix="use PerExample")
    for column, value in given.state.items():
        _check_column(column, value, examples, where)
    plain = {c: v if isinstance(v, str) else int(v) for c, v in given.state.items()}
    spec = PortSpec(arrays, schema)
    return InputSpec(name, given.each, plain, sources, spec, given.at_least)


def _check_column(column: str, value: object, examples: ExampleFields, where: str) -> None:
    """Assert that a state column is given whole numbers."""
    if not isinstance(value, str):
        if not is_whole(value):
            raise GraphError(
                f"state column {column!r} is given {value!r:.80}",
                where=where,
                fix="give a field, POSITION or a whole number",
            )
    elif value != POSITION:
        found = examples.spec(value, where)
        if found != ArraySpec((), "int32"):
            raise ShapeMismatchError(
                f"state column {column!r} takes whole numbers, one a row, but field "
                f"{value!r} is {found}",
                where=where,
            )


def is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_mapping(what: str, given: object, where: str) -> None:
    """Assert that an argument of `Graph.input` is a mapping from names."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise GraphError(f"its {what} is {given!r:.80}, not a dict by name", where=where)
