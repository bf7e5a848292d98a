"""Nodes of one kind by themselves, and rows for them; `claims` has what every kind must hold.

The rows that tests send in carry states (instance, step) and return port `CALLER`;
output ports of the node under test are numbered from `OWN` on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from amp_runtime.checking.options import validate_options
from amp_runtime.errors import UnmatchedBackwardError
from amp_runtime.nodes.node import Evaluation, Node, NodeContext
from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.rows.message import Answer, Emission, Rows
from amp_runtime.rows.spec import INSTANCE, Array, ArraySpec, PortSpec, StateSchema
from amp_runtime.rows.structure import StructureArena
from workers.registry import Registry

SCHEMA = StateSchema(((INSTANCE, 24), ("step", 8)))
CALLER = 3
OWN = 10


def f64(values: Any) -> Array:
    return np.array(values, np.float64)


def spec(*arrays: tuple[str, tuple[int, ...], str], schema: StateSchema = SCHEMA) -> PortSpec:
    return PortSpec({name: ArraySpec(shape, dtype) for name, shape, dtype in arrays}, schema)


def floats(*shape: int, name: str = "x", schema: StateSchema = SCHEMA) -> PortSpec:
    """Return the spec of one array float64 [rows, *shape]."""
    return spec((name, shape, "float64"), schema=schema)


def rows(
    instance: int | Sequence[int] = 1,
    step: int | Sequence[int] = 0,
    *,
    first_slot: int = 0,
    verify: bool = False,
    **arrays: Any,
) -> Rows:
    """Return rows with slots `first_slot`, ...: floats become float64, whole numbers int32."""
    payload = {name: _array(values) for name, values in arrays.items()}
    n = len(next(iter(payload.values())))
    columns = np.zeros((n, 4), np.int32)
    columns[:, 0] = CALLER
    columns[:, 1] = first_slot + np.arange(n)
    columns[:, 2] = instance
    columns[:, 3] = step
    if verify:
        columns = np.concatenate([columns, columns[:, 2:]], axis=1)
    for array in (columns, *payload.values()):
        array.flags.writeable = False
    return Rows(columns, payload, 2)


def _array(values: Any, dtype: str = "float64") -> Array:
    array = np.array(values)
    return array.astype(dtype if array.dtype.kind == "f" else np.int32)


def structure(instances: Mapping[int, Mapping[str, Any]], dtype: str = "float64") -> StructureArena:
    """Return an arena of instances with one example each: {instance: {field: values}}."""
    names = list(next(iter(instances.values())))
    columns = {
        name: [_array(fields[name], dtype) for fields in instances.values()] for name in names
    }
    arena = StructureArena(
        {n: ArraySpec(c[0].shape[1:], c[0].dtype.name) for n, c in columns.items()}
    )
    arrays = {
        "instances": np.array(list(instances), np.int32),
        "n_examples": np.ones(len(instances), np.int32),
    }
    for name, values in columns.items():
        arrays[name] = np.concatenate(values)
        arrays[f"#{name}"] = np.array([len(v) for v in values], np.int32)
    arena.add(arrays)
    return arena


def make(
    kind: str,
    given: PortSpec | Mapping[str, PortSpec],
    /,
    *,
    name: str = "",
    wants: Sequence[str] | None = None,
    arena: StructureArena | None = None,
    verify: bool = False,
    evaluation: Evaluation = Evaluation.METRICS,
    seed: int = 0,
    updates: UpdatePolicy | None = None,
    optimizer: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    dtype: str = "float64",
    **options: Any,
) -> Any:
    """Return a node of `kind`, as a host would make it.

    Args:
        given: what comes to each input port; one spec alone stands for port `x`.
        training: lr_schedule, clip, initializer, backward_weights, compensation, checked.
        wants: ports whose senders want a gradient; None: all of them.
    """
    ports = {"x": given} if isinstance(given, PortSpec) else dict(given)
    cls = Registry().load(kind)
    checked = validate_options(cls.Options, options, where=kind)
    outputs = cls.infer(checked, ports, dtype)
    context = NodeContext(
        name=name or f"{kind}-1",
        kind=kind,
        options=checked,
        inputs=ports,
        outputs=outputs,
        wants_gradient=frozenset(ports if wants is None else wants),
        return_ports={port: OWN + n for n, port in enumerate(outputs)},
        dtype=dtype,
        seed=seed,
        structure=arena or StructureArena({}),
        verify=verify,
        evaluation=evaluation,
        updates=updates or UpdatePolicy(min_update_frequency=1_000_000),
        optimizer=optimizer or {"name": "sgd", "lr": 0.1},
        **(training or {}),
    )
    return cls(context)


def only(results: Sequence[Emission | Answer]) -> Any:
    """Return the only thing that a node returned: an emission's rows, or an answer."""
    (result,) = results
    return result.rows if isinstance(result, Emission) else result


def slots(emitted: Rows) -> Array:
    return np.ascontiguousarray(emitted.columns[:, 1])


def answered(answers: Sequence[Emission | Answer]) -> dict[int, Any]:
    """Return {slot of the caller: {array: values} or None} over all answers; none twice."""
    found: dict[int, Any] = {}
    for answer in answers:
        assert isinstance(answer, Answer)
        assert (answer.return_to[:, 0] == CALLER).all()
        for at, slot in enumerate(answer.return_to[:, 1].tolist()):
            assert slot not in found
            gradient = answer.gradient
            found[slot] = (
                None if gradient is None else {n: a[at].tolist() for n, a in gradient.items()}
            )
    return found


def differences(function: Callable[[], float], array: Array, eps: float = 1e-6) -> Array:
    """Return d function / d array by central differences; `array` is changed and restored."""
    gradient = np.zeros_like(array)
    for at in np.ndindex(array.shape):
        before = array[at]
        values = []
        for value in (before + eps, before - eps):
            array[at] = value
            values.append(function())
        array[at] = before
        gradient[at] = (values[0] - values[1]) / (2 * eps)
    return gradient


def claim_duplicate_and_unknown_slots_are_refused(
    node: Node, emit: Callable[[], Rows], port: str = "y"
) -> None:
    """A second answer, also within one message, and one to a slot never issued name the node."""
    mine = slots(emit())
    place = f"node '{node.name}': an answer to slot"
    for bad, why in ((200, "free"), (5000, "outside the stash"), (-1, "outside the stash")):
        with pytest.raises(UnmatchedBackwardError, match=f"{place}.*{why}"):
            node.backward(port, np.array([bad], np.int32), None)
    node.backward(port, mine, None)
    with pytest.raises(UnmatchedBackwardError, match=f"{place}.*answered already"):
        node.backward(port, mine[:1], None)
    node.accumulate()
    with pytest.raises(UnmatchedBackwardError, match=f"{place}.*now at use 1"):
        node.backward(port, mine[:1], None)
    again = slots(emit())
    with pytest.raises(UnmatchedBackwardError, match=f"{place}.*named twice in one message"):
        node.backward(port, np.r_[again, again[:1]], None)
