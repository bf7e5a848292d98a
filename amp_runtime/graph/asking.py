"""What a node class says of itself while a graph is built: asked for, and checked.

The class may be a user's own: what it raises names the class, its method and the line,
and what it returns is held against the contract of a node before anything relies on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from amp_runtime.errors import AmpError, GraphError, ShapeMismatchError, raised_at
from amp_runtime.nodes.node import Node
from amp_runtime.rows.spec import DTYPES, ArraySpec, PortSpec, StateSchema


@contextmanager
def asking(cls: type[Node], method: str, where: str) -> Iterator[None]:
    """Make what `cls.method` raises an error of the graph.

    Raises:
        GraphError: names the class, the method, and the line that raised.
    """
    try:
        yield
    except AmpError:
        raise
    except Exception as error:
        raise GraphError(
            f"{_title(cls, method)} raised {type(error).__name__}: {error} ({raised_at(error)})",
            where=where,
        ) from error


def names_said(cls: type[Node], method: str, options: Any, where: str) -> tuple[str, ...]:
    """Return the names that `cls.method` says of `options`.

    Raises:
        GraphError: it raises, or returns something else.
    """
    with asking(cls, method, where):
        said = getattr(cls, method)(options)
    well_formed = isinstance(said, Sequence) and not isinstance(said, str)
    if not well_formed or not all(isinstance(name, str) and name for name in said):
        raise _wrong(cls, method, said, "a list of names", where)
    return tuple(said)


def ports_said(cls: type[Node], method: str, options: Any, where: str) -> tuple[str, ...]:
    """Return the ports that `cls.input_ports` or `cls.output_ports` says, in order.

    Raises:
        GraphError: as `names_said`, or two have one name.
    """
    ports = names_said(cls, method, options, where)
    if len(set(ports)) < len(ports):
        raise _wrong(cls, method, ports, "names that differ", where)
    return ports


def infer_said(
    cls: type[Node], options: Any, inputs: Mapping[str, PortSpec], dtype: str, where: str
) -> Mapping[str, PortSpec]:
    """Return what leaves each output port, as `cls.infer` says; {} where it cannot yet.

    That may be while some inputs are unknown, for a kind that `infers_from_any`.

    Raises:
        GraphError: it raises, or returns no {output port: PortSpec} of all ports.
        ShapeMismatchError: an array has no features, or a dtype that no edge carries.
    """
    try:
        with asking(cls, "infer", where):
            said = cls.infer(options, inputs, dtype)
    except GraphError as error:
        raise (error if error.where.startswith(where) else error.at(where)) from error.__cause__
    if said == {} and len(inputs) < len(ports_said(cls, "input_ports", options, where)):
        return {}
    ports = ports_said(cls, "output_ports", options, where)
    if not isinstance(said, Mapping) or set(said) != set(ports):
        raise _wrong(cls, "infer", said, f"what leaves its output ports {list(ports)}", where)
    for port, spec in said.items():
        is_spec = isinstance(spec, PortSpec) and isinstance(spec.schema, StateSchema)
        if not is_spec or not all(isinstance(a, ArraySpec) for a in spec.arrays.values()):
            raise _wrong(cls, "infer", said, "a PortSpec for each output port", where)
        for name, array in spec.arrays.items():
            check_array(f"array {name!r} of output port {port!r}", array, where)
    return said


def check_array(what: str, spec: ArraySpec, where: str) -> None:
    """Assert that an edge can carry an array.

    Raises:
        ShapeMismatchError: it has no features, or a dtype that is not ours.
    """
    if spec.dtype not in DTYPES:
        raise ShapeMismatchError(f"{what} is {spec}; dtypes are {', '.join(DTYPES)}", where=where)
    if not all(type(n) is int and n > 0 for n in spec.shape):
        raise ShapeMismatchError(
            f"{what} is {spec}",
            where=where,
            fix="the shape of a row is whole numbers above 0, or empty for a single number",
        )


def load_said(cls: type[Node], options: Any, inputs: Mapping[str, PortSpec], where: str) -> float:
    """Return how long a row takes, in microseconds, as `cls.load` says.

    Raises:
        GraphError: it raises, or returns no finite number of at least 0.
    """
    with asking(cls, "load", where):
        said = cls.load(options, inputs)
    if not isinstance(said, int | float) or not (math.isfinite(said) and said >= 0):
        raise _wrong(cls, "load", said, "microseconds a row, at least 0", where)
    return float(said)


def _title(cls: type[Node], method: str) -> str:
    return f"{cls.__module__}:{cls.__qualname__}.{method}"


def _wrong(cls: type[Node], method: str, said: Any, wanted: str, where: str) -> GraphError:
    return GraphError(f"{_title(cls, method)} returned {said!r:.80}, not {wanted}", where=where)
