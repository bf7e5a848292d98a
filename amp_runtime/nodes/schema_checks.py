"""Checks on inputs that several kinds share."""

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


def only_floats(spec: PortSpec, dtype: str) -> PortSpec:
    """Return what comes to port `x`, all of whose arrays are floats.

    Raises:
        ShapeMismatchError: one is not.
    """
    if any(array.dtype != dtype for array in spec.arrays.values()):
        raise ShapeMismatchError(f"port 'x' takes {dtype} arrays, but is given {spec}")
    return spec


def vectors(spec: PortSpec, names: tuple[str, ...], dtype: str) -> tuple[int, ...]:
    """Return the widths of the arrays `names`, which are all that comes to port `x`.

    Raises:
        ShapeMismatchError: other arrays come, or they are not floats [rows, n].
    """
    wanted = ", ".join(f"{name}: {dtype}[rows, n]" for name in names)
    fits = spec.arrays.keys() == set(names) and all(
        (len(array.shape), array.dtype) == (1, dtype) for array in spec.arrays.values()
    )
    if not fits:
        raise ShapeMismatchError(
            f"port 'x' takes {{{wanted}}}, but is given {spec}",
            fix="bring arrays together with a join, pick some with a take",
        )
    return tuple(spec.arrays[name].shape[0] for name in names)
