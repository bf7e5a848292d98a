"""Checks that kinds with several inputs share."""

from __future__ import annotations

from collections.abc import Mapping

from amp_runtime.errors import SchemaMismatchError, ShapeMismatchError
from amp_runtime.rows.spec import PortSpec, StateSchema


def one_schema(inputs: Mapping[str, PortSpec]) -> StateSchema:
    """Return the state schema that all inputs share.

    Raises:
        SchemaMismatchError: two inputs differ; both are shown.
    """
    (first_port, first), *others = inputs.items()
    for port, spec in others:
        if spec.schema != first.schema:
            raise SchemaMismatchError(
                f"port {first_port!r} has state {first.schema}, but port {port!r} {spec.schema}"
            )
    return first.schema


def one_spec(inputs: Mapping[str, PortSpec]) -> PortSpec:
    """Return the spec that all inputs share.

    Raises:
        ShapeMismatchError, SchemaMismatchError: two inputs differ; both are shown.
    """
    one_schema(inputs)
    (first_port, first), *others = inputs.items()
    for port, spec in others:
        if dict(spec.arrays) != dict(first.arrays):
            raise ShapeMismatchError(
                f"port {first_port!r} is given {first}, but port {port!r} {spec}"
            )
    return first
