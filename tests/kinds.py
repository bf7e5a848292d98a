"""Nodes of one kind by themselves, rows for them, and what every kind must hold.

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
from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.nodes.one_to_one import OneToOne, Parameterised
from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
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
        training: lr_schedule, clip and initializer, checked.
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


# ------------------------------------------------------- what every one-to-one kind holds


def claim_gradients_match_differences(node: OneToOne, **arrays: Any) -> None:
    """dL/dx and dL/dparameters equal central differences of L = sum(c * y), to 1e-7."""
    given = rows(**arrays)
    x = {n: a.copy() for n, a in given.payload.items()}
    emitted = only(node.forward("x", given, Mode.TRAIN))
    generator = np.random.default_rng(5)
    c = {n: generator.normal(size=y.shape) for n, y in emitted.payload.items()}

    def loss() -> float:
        output = only(node.forward("x", Rows(given.columns, x, 2), Mode.EVALUATE)).payload
        return sum(float((c[name] * y).sum()) for name, y in output.items())

    answer = only(node.backward("y", slots(emitted), c))
    for name, array in x.items():
        if array.dtype.kind == "f":
            expected = differences(loss, array)
            np.testing.assert_allclose(answer.gradient[name], expected, rtol=1e-7, atol=1e-8)
    node.accumulate()
    if isinstance(node, Parameterised):
        for name, parameter in node.parameters.items():
            expected = differences(loss, parameter)
            np.testing.assert_allclose(node.gradients[name], expected, rtol=1e-7, atol=1e-8)


def claim_swapped_answers_use_their_own_input(fresh: Callable[[], OneToOne], x: Any) -> None:
    """Answers in the other order give what each row gives alone, and free its slot."""
    one, two = x[:1], x[1:2]
    node = fresh()
    emitted = [
        only(node.forward("x", rows(instance=i, first_slot=i, x=part), Mode.TRAIN))
        for i, part in ((1, one), (2, two))
    ]
    gradients = [{"x": (n + 1.5) * np.ones_like(e.payload["x"])} for n, e in enumerate(emitted)]
    together = {}
    for n in (1, 0):
        together |= answered(node.backward("y", slots(emitted[n]), gradients[n]))
        node.accumulate()
        assert node.stash.used == n
    apart, sums = {}, None
    for n, part in enumerate((one, two)):
        lonely = fresh()
        out = only(lonely.forward("x", rows(first_slot=n + 1, x=part), Mode.TRAIN))
        apart |= answered(lonely.backward("y", slots(out), gradients[n]))
        lonely.accumulate()
        if isinstance(lonely, Parameterised):
            before = sums or dict.fromkeys(lonely.gradients, 0.0)
            sums = {name: before[name] + np.asarray(g) for name, g in lonely.gradients.items()}
    assert together == apart
    for name, total in (sums or {}).items():
        np.testing.assert_allclose(node.gradients[name], total, rtol=1e-14)  # type: ignore[attr-defined]


def claim_null_rows_answer_null(node: OneToOne, x: Any) -> None:
    """A null answer is passed on as null, frees the slot and is no gradient row."""
    emitted = only(node.forward("x", rows(first_slot=7, x=x), Mode.TRAIN))
    assert node.stash.used == len(x)
    found = answered(node.backward("y", slots(emitted), None))
    assert found == dict.fromkeys(range(7, 7 + len(x)))
    node.accumulate()
    assert node.stash.used == 0
    if isinstance(node, Parameterised):
        assert node.updates.rows == 0
        assert not any(np.any(g) for g in node.gradients.values())


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


def claim_evaluation_is_transparent(node: OneToOne, x: Any) -> None:
    """The same numbers as in training, with the caller's addresses and no slot."""
    given = rows(first_slot=4, x=x, verify=node.context.verify)
    evaluated = only(node.forward("x", given, Mode.EVALUATE))
    assert node.stash.used == 0
    assert evaluated.columns.tolist() == given.columns.tolist()
    trained = only(node.forward("x", given, Mode.TRAIN))
    assert trained.columns[:, 0].tolist() == [OWN] * len(x)
    assert trained.state.tolist() == given.state.tolist()
    for name, array in evaluated.payload.items():
        assert array.tolist() == trained.payload[name].tolist()


def claim_rows_do_not_depend_on_their_company(fresh: Callable[[], OneToOne], x: Any) -> None:
    """Zero, one and many rows give row by row the same outputs and gradients."""
    many, single = fresh(), fresh()
    together = only(many.forward("x", rows(x=x), Mode.TRAIN))
    c = np.random.default_rng(2).normal(size=together.payload["x"].shape)
    all_gradients = answered(many.backward("y", slots(together), {"x": c}))
    for n in range(len(x)):
        alone = only(single.forward("x", rows(first_slot=n, x=x[n : n + 1]), Mode.TRAIN))
        np.testing.assert_allclose(alone.payload["x"][0], together.payload["x"][n], rtol=1e-13)
        (gradient,) = answered(single.backward("y", slots(alone), {"x": c[n : n + 1]})).values()
        if gradient is None:
            assert all_gradients[n] is None
        else:
            np.testing.assert_allclose(gradient["x"], all_gradients[n]["x"], rtol=1e-13)
    for node in (many, single):
        node.accumulate()
    if isinstance(many, Parameterised) and isinstance(single, Parameterised):
        for name, total in many.gradients.items():
            np.testing.assert_allclose(single.gradients[name], total, rtol=1e-13, atol=1e-15)
    none = only(many.forward("x", rows(x=np.array(x)[:0]), Mode.TRAIN))
    assert len(none) == 0
    assert none.payload["x"].shape == (0, *together.payload["x"].shape[1:])


def claim_inputs_may_be_read_only_and_are_not_kept(node: OneToOne, x: Any) -> None:
    """The stash copies: what the sender does to its memory later changes nothing."""
    mine = _array(x)
    columns = rows(x=x).columns
    emitted = only(node.forward("x", Rows(columns, {"x": mine}, 2), Mode.TRAIN))
    c = {"x": np.ones_like(emitted.payload["x"])}
    mine[...] = 0
    changed = answered(node.backward("y", slots(emitted), c))
    again = only(node.forward("x", rows(x=x), Mode.TRAIN))
    assert answered(node.backward("y", slots(again), c)) == changed


def claim_verify_brings_the_emitted_state_back(node: OneToOne, x: Any) -> None:
    """Under `verify` rows leave with their own state as origin; answers return the caller's."""
    given = rows(instance=5, step=range(len(x)), x=x, verify=True)
    emitted = only(node.forward("x", given, Mode.TRAIN))
    assert emitted.origin.tolist() == emitted.state.tolist() == given.state.tolist()
    node.check_origin(slots(emitted), emitted.origin)
    answer = only(node.backward("y", slots(emitted), None))
    assert answer.return_to.tolist() == given.columns[:, [0, 1, 4, 5]].tolist()
