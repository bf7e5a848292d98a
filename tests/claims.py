"""What a node of every kind must hold, whatever it does; see `tests/pure/test_every_kind.py`.

A `Case` is a kind with options and rows for it. A `Trial` sends rows to a fresh node, all
at once or one by one, in any order, and answers what left it. Rows that left are known by
output port and state, answers by the slot of the row that was sent: so trials can be
compared. The gradient of a row that left depends on its port and state alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from kinds import (
    CALLER,
    claim_duplicate_and_unknown_slots_are_refused,
    differences,
    make,
    structure,
)

from amp_runtime.nodes.node import Node
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.rows.message import Answer, Emission, Mode, Rows
from amp_runtime.rows.spec import Array, PortSpec
from workers.registry import Registry

FEW, MANY = 3, 300
"""Instances. MANY bring more rows than a new stash holds."""

Key: TypeAlias = tuple[str, tuple[int, ...]]
"""Output port and state of a row that left."""

Gradient: TypeAlias = "Callable[[Key, Left], dict[str, Array] | None]"


def one_row(instance: int) -> Sequence[Sequence[int]]:
    return [(instance % 3,)]


@dataclass(frozen=True)
class Case:
    """A kind and what is sent to it.

    Attributes:
        given: what comes to each input port, floats in float64.
        options: of the kind.
        states: {port: function of an instance that returns the states of its rows, without
            the instance}; a port that is missing gets one row, with step = instance % 3.
        fields: {structure field: function of an instance that returns its elements}.
        below: whole numbers in payloads are 0 to `below` - 1.
        same_in_evaluation: whether the numbers are those of training.
    """

    kind: str
    given: Mapping[str, PortSpec]
    options: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, Callable[[int], Sequence[Sequence[int]]]] = field(default_factory=dict)
    fields: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)
    below: int = 4
    same_in_evaluation: bool = True

    def ports(self, dtype: str) -> dict[str, PortSpec]:
        """Return what comes to each input port in a run of `dtype`."""
        ports = {}
        for port, spec in self.given.items():
            arrays = {
                name: a if a.dtype == "int32" else replace(a, dtype=dtype)
                for name, a in spec.arrays.items()
            }
            ports[port] = replace(spec, arrays=arrays)
        return ports

    def make(self, *, dtype: str = "float64", **given: Any) -> Node:
        """Return a fresh node; `given` as for `kinds.make`."""
        arena = None
        if self.fields:
            instances = range(1, MANY + 1)
            fields = {i: {n: f(i) for n, f in self.fields.items()} for i in instances}
            arena = structure(fields, dtype)
        node: Node = make(
            self.kind,
            self.ports(dtype),
            arena=arena,
            seed=3,
            dtype=dtype,
            **given,
            **self.options,
        )
        return node

    def sent(
        self, n_instances: int, *, verify: bool = False, dtype: str = "float64"
    ) -> dict[str, Rows]:
        """Return the rows of instances 1 to `n_instances` by port, no slot twice."""
        generator = np.random.default_rng(1)
        sent: dict[str, Rows] = {}
        for port, spec in self.given.items():
            states = self.states.get(port, one_row)
            state = np.array(
                [(i, *rest) for i in range(1, n_instances + 1) for rest in states(i)], np.int32
            ).reshape(-1, len(spec.schema.names))
            slots = sum(map(len, sent.values())) + np.arange(len(state))
            address = np.stack([np.full(len(state), CALLER), slots], axis=1)
            columns = np.concatenate([address, state, *[state] * verify], axis=1).astype(np.int32)
            payload = {
                name: generator.normal(size=(len(state), *array.shape)).astype(dtype)
                if array.dtype == "float64"
                else generator.integers(0, self.below, (len(state), *array.shape), np.int32)
                for name, array in spec.arrays.items()
            }
            for values in (columns, *payload.values()):
                values.flags.writeable = False
            sent[port] = Rows(columns, payload, state.shape[1])
        return sent


@dataclass(frozen=True)
class Left:
    """A row that left: its address, its state as stamped (under `verify`), its arrays."""

    return_port: int
    slot: int
    origin: list[int]
    payload: dict[str, Array]


def some_gradient(key: Key, left: Left) -> dict[str, Array]:
    """Return dL/d(a row that left): random, and the same in every trial."""
    forms = ((n, a.shape, a.dtype) for n, a in left.payload.items() if a.dtype.kind == "f")
    return dict(_random_arrays(key, *forms))


@lru_cache(maxsize=4096)  # of all rows of some trials: making a generator takes longest
def _random_arrays(
    key: Key, *forms: tuple[str, tuple[int, ...], np.dtype[Any]]
) -> tuple[tuple[str, Array], ...]:
    port, state = key
    generator = np.random.default_rng([zlib.crc32(port.encode()), *state])
    made = [(name, np.asarray(generator.normal(size=shape), dt)) for name, shape, dt in forms]
    for _, array in made:
        array.flags.writeable = False
    return tuple(made)


def no_gradient(key: Key, left: Left) -> None:
    return None


class Trial:
    """A fresh node, what left it and what it answered.

    Attributes:
        left: the rows that left.
        answers: {slot of a row that was sent: its gradient, or None}.
        origins: {slot of a row that was sent: the state that its answer brought back}.
    """

    def __init__(self, case: Case, mode: Mode = Mode.TRAIN, **given: Any) -> None:
        self.node = case.make(**given)
        self.mode = mode
        self.left: dict[Key, Left] = {}
        self.answers: dict[int, dict[str, Array] | None] = {}
        self.origins: dict[int, list[int]] = {}
        self._sent: set[int] = set()

    def send(self, sent: Mapping[str, Rows]) -> Trial:
        """Send the rows of each port at once."""
        for port, rows in sent.items():
            self._sent |= set(rows.columns[:, 1].tolist())
            self._note(self.node.forward(port, rows, self.mode))
        return self

    def send_one_by_one(self, sent: Mapping[str, Rows], *, backwards: bool = False) -> Trial:
        order = [(port, at) for port, rows in sent.items() for at in range(len(rows))]
        for port, at in reversed(order) if backwards else order:
            self.send({port: sent[port].take(np.array([at]))})
        return self

    def answer(self, gradient: Gradient = some_gradient) -> Trial:
        """Answer what left: in one message for each port and set of arrays."""
        messages: dict[Any, dict[Key, dict[str, Array] | None]] = {}
        for key in self.stamped:
            found = gradient(key, self.left[key])
            names = None if found is None else tuple(found)
            messages.setdefault((key[0], names), {})[key] = found
        for message in messages.values():
            self._answer(message)
        return self

    def answer_one_by_one(self, keys: Iterable[Key]) -> Trial:
        for key in keys:
            if self.left[key].return_port != CALLER:
                self._answer({key: some_gradient(key, self.left[key])})
        return self

    @property
    def stamped(self) -> dict[Key, Left]:
        """The rows that left with an address of this node, and so are answered to it."""
        return {key: left for key, left in self.left.items() if left.return_port != CALLER}

    @property
    def passed(self) -> set[int]:
        """Slots of the rows that were sent and left with their own address."""
        return {left.slot for left in self.left.values() if left.return_port == CALLER}

    @property
    def gradients(self) -> dict[str, Array]:
        if not isinstance(self.node, Parameterised):
            return {}
        return {name: np.asarray(gradient) for name, gradient in self.node.gradients.items()}

    @property
    def metrics(self) -> dict[str, tuple[float, int]]:
        found = self.node.take_metrics(self.mode)
        return {name: (metric.total, metric.count) for name, metric in found.items()}

    def assert_done(self) -> None:
        """Every row that was sent is answered, or passed on; nothing is kept."""
        assert set(self.answers) | self.passed == self._sent
        assert not set(self.answers) & self.passed
        self.node.assert_drained()

    def assert_equals(self, other: Trial) -> None:
        """The same rows left, and the same was answered, summed and measured, to rounding."""
        assert self.left.keys() == other.left.keys()
        for key, left in self.left.items():
            assert_close(left.payload, other.left[key].payload, key)
        assert self.answers.keys() == other.answers.keys()
        for slot, gradient in self.answers.items():
            assert (gradient is None) == (other.answers[slot] is None), slot
            assert_close(gradient or {}, other.answers[slot] or {}, slot)
        assert_close(self.gradients, other.gradients, "parameters")
        assert_close(self.metrics, other.metrics, "metrics")

    def assert_equals_where_null_is_zero(self, other: Trial, times: int = 1) -> None:
        """The same answers, where null and a missing array count as zeros, and `times` the
        other's gradients of parameters."""
        assert self.answers.keys() == other.answers.keys()
        for slot in self.answers:
            one, two = self.answers[slot] or {}, other.answers[slot] or {}
            names = {*one, *two}
            filled = ({n: g.get(n, 0.0) for n in names} for g in (one, two))
            assert_close(*filled, slot)
        expected = {name: times * gradient for name, gradient in other.gradients.items()}
        assert_close(self.gradients, expected, "parameters")

    def _answer(self, gradients: Mapping[Key, Mapping[str, Array] | None]) -> None:
        """Answer rows of one port, all with the same arrays, in one message."""
        ((port, _), first), *_ = gradients.items()
        stacked = None
        if first is not None:
            stacked = {n: np.stack([g[n] for g in gradients.values() if g]) for n in first}
            for array in stacked.values():
                array.flags.writeable = False
        slots = np.array([self.left[key].slot for key in gradients], np.int32)
        self._note(self.node.backward(port, slots, stacked))
        self.node.accumulate()

    def _note(self, results: Sequence[Emission | Answer]) -> None:
        for result in results:
            if isinstance(result, Emission):
                self._note_rows(result.port, result.rows)
            else:
                self._note_answer(result)

    def _note_rows(self, port: str, rows: Rows) -> None:
        for at, state in enumerate(rows.state.tolist()):
            key = (port, tuple(state))
            assert key not in self.left, f"two rows left as {key}"
            payload = {name: array[at] for name, array in rows.payload.items()}
            address, origin = rows.addresses[at].tolist(), rows.origin[at].tolist()
            self.left[key] = Left(*address, origin, payload)

    def _note_answer(self, answer: Answer) -> None:
        assert (answer.return_to[:, 0] == CALLER).all()
        for at, (_, slot, *origin) in enumerate(answer.return_to.tolist()):
            assert slot not in self.answers, f"slot {slot} is answered twice"
            found = answer.gradient
            self.answers[slot] = None if found is None else {n: g[at] for n, g in found.items()}
            self.origins[slot] = origin


def assert_close(one: Mapping[str, Any], two: Mapping[str, Any], what: Any) -> None:
    assert one.keys() == two.keys(), what
    for name, value in one.items():
        given, due = np.asarray(value), np.asarray(two[name])
        # What numpy says of a difference is worth ten times the time only where there is one.
        if given.shape != due.shape or not (abs(given - due) <= 1e-12 + 1e-11 * abs(due)).all():
            np.testing.assert_allclose(given, due, rtol=1e-11, atol=1e-12, err_msg=f"{what}")


# ------------------------------------------------------------- what every kind must hold


def claim_gradients_match_differences(case: Case) -> None:
    """dL/d(every float sent and every parameter) equals central differences.

    L is the sum of c * y over all that left, and the metric `loss` of what ended here.
    """
    sent = case.sent(FEW)
    trial = Trial(case).send(sent).answer()
    parameters = {}
    if isinstance(trial.node, Parameterised):
        parameters = {name: array.copy() for name, array in trial.node.parameters.items()}
    arrays = {port: {n: a.copy() for n, a in r.payload.items()} for port, r in sent.items()}

    def loss() -> float:
        again = Trial(case)
        if isinstance(again.node, Parameterised):
            for name, array in parameters.items():
                again.node.parameters[name][...] = array
        again.send({port: Rows(r.columns, arrays[port], r.width) for port, r in sent.items()})
        total = again.metrics.get("loss", (0.0, 0))[0]
        for key, left in again.left.items():
            if left.return_port != CALLER:
                c = some_gradient(key, left)
                total += sum(float((c[name] * left.payload[name]).sum()) for name in c)
        return total

    for port, rows in sent.items():
        for name, array in arrays[port].items():
            if array.dtype.kind != "f":
                continue
            expected = dict(zip(rows.columns[:, 1].tolist(), differences(loss, array), strict=True))
            for slot in expected.keys() - trial.passed:
                found = (trial.answers[slot] or {}).get(name, 0 * expected[slot])
                np.testing.assert_allclose(
                    found, expected[slot], rtol=1e-6, atol=1e-8, err_msg=f"{port} {name}"
                )
    for name, array in parameters.items():
        np.testing.assert_allclose(
            trial.gradients[name], differences(loss, array), rtol=1e-6, atol=1e-8, err_msg=name
        )


def claim_a_large_batch_equals_its_rows_one_by_one(case: Case) -> None:
    """At once, one by one, and one by one backwards: the same rows, the same answers."""
    sent = case.sent(MANY)
    together = Trial(case).send(sent)
    keys = list(together.left)
    together.answer().assert_done()
    for backwards in (False, True):
        single = Trial(case).send_one_by_one(sent, backwards=backwards)
        single.answer_one_by_one(keys[::-1] if backwards else keys).assert_done()
        single.assert_equals(together)


def claim_one_instance_alone_gives_its_share_of_a_batch(case: Case) -> None:
    """One row, where an instance has one."""
    sent = case.sent(FEW)
    among = Trial(case).send(sent).answer()
    for instance in range(1, FEW + 1):
        mine = {port: rows.take(rows.state[:, 0] == instance) for port, rows in sent.items()}
        alone = Trial(case).send({port: rows for port, rows in mine.items() if len(rows)})
        assert alone.left.keys() == {key for key in among.left if key[1][0] == instance}
        for key, left in alone.left.items():
            assert_close(left.payload, among.left[key].payload, key)
        alone.answer().assert_done()
        for slot, gradient in alone.answers.items():
            assert_close(gradient or {}, among.answers[slot] or {}, slot)


def claim_zero_rows_are_nothing(case: Case) -> None:
    """A batch without rows lets nothing leave, keeps nothing and changes nothing later."""
    sent = case.sent(FEW)
    trial = Trial(case)
    for mode in Mode:
        for port, rows in sent.items():
            for result in trial.node.forward(port, rows.take(np.zeros(0, np.int64)), mode):
                if isinstance(result, Emission):
                    spec = trial.node.context.outputs[result.port]
                    empty = {n: (a.dtype, (0, *a.shape)) for n, a in spec.arrays.items()}
                    assert form(result.rows.payload) == empty
                assert not len(result.rows if isinstance(result, Emission) else result.return_to)
            trial.node.assert_drained()
    trial.send(sent).answer().assert_equals(Trial(case).send(sent).answer())


def claim_swapped_answers_use_their_own_rows(case: Case) -> None:
    """Answers one by one, backwards, give the same; each frees what it answered."""
    sent = case.sent(FEW)
    trial = Trial(case).send(sent)
    for key in list(trial.stamped)[::-1]:
        before = trial.node.stash.used
        trial.answer_one_by_one([key])
        assert trial.node.stash.used < before
    trial.assert_equals(Trial(case).send(sent).answer())
    trial.assert_done()


def claim_null_answers_are_passed_on_as_null(case: Case) -> None:
    """Where every answer is null, null is answered, and no gradient row is counted."""
    trial = Trial(case).send(case.sent(FEW))
    at_once = set(trial.answers)
    trial.answer(no_gradient).assert_done()
    assert {slot for slot, g in trial.answers.items() if g is not None} <= at_once
    assert not any(gradient.any() for gradient in trial.gradients.values())
    if isinstance(trial.node, Parameterised):
        assert trial.node.updates.rows == 0


def claim_null_and_missing_arrays_count_as_zero(case: Case) -> None:
    """Null rows among others, and answers that name a subset of the arrays that left."""
    sent = case.sent(FEW + 2)
    left = Trial(case).send(sent).stamped
    names = {name for key in left for name in some_gradient(key, left[key])}
    rows = set(list(left)[::2])
    for without in [*({name} for name in names if len(names) > 1), names]:

        def missing(key: Key, row: Left, without: set[str] = without) -> dict[str, Array] | None:
            gradient = some_gradient(key, row)
            if key in rows:
                gradient = {n: g for n, g in gradient.items() if n not in without}
            return gradient or None

        def zero(key: Key, row: Left, without: set[str] = without) -> dict[str, Array]:
            gradient = some_gradient(key, row)
            return {n: g * (key not in rows or n not in without) for n, g in gradient.items()}

        trial = Trial(case).send(sent).answer(missing)
        trial.assert_done()
        trial.assert_equals_where_null_is_zero(Trial(case).send(sent).answer(zero))


def claim_only_ports_that_want_a_gradient_get_one(case: Case) -> None:
    sent = case.sent(FEW)
    full = Trial(case).send(sent).answer()
    for wanting in ((), *((port,) for port in case.given)):
        trial = Trial(case, wants=wanting).send(sent).answer()
        trial.assert_done()
        for port, rows in sent.items():
            for slot in set(rows.columns[:, 1].tolist()) - trial.passed:
                if port in wanting:
                    assert_close(trial.answers[slot] or {}, full.answers[slot] or {}, slot)
                else:
                    assert trial.answers[slot] is None
        assert_close(trial.gradients, full.gradients, "parameters")


def claim_rows_and_answers_are_as_declared(case: Case) -> None:
    """All arrays that leave, some of those that came for an answer; floats in the run's dtype."""
    for dtype in ("float32", "float64"):
        sent = case.sent(FEW, dtype=dtype)
        trial = Trial(case, dtype=dtype).send(sent).answer()
        for (port, _), left in trial.left.items():
            declared = trial.node.context.outputs[port].arrays
            assert form(left.payload) == {n: (a.dtype, a.shape) for n, a in declared.items()}
        for port, rows in sent.items():
            declared = trial.node.context.inputs[port].arrays
            for slot in set(rows.columns[:, 1].tolist()) - trial.passed:
                answer = trial.answers[slot]
                assert answer is None or answer
                for name, found in form(answer or {}).items():
                    assert found == (dtype, declared[name].shape)


def form(arrays: Mapping[str, Array]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (array.dtype.name, array.shape) for name, array in arrays.items()}


def claim_evaluation_answers_null_and_keeps_nothing(case: Case) -> None:
    """The numbers are those of training, to the bit; a one-to-one node is transparent."""
    sent = case.sent(FEW)
    trained, trial = Trial(case).send(sent), Trial(case, Mode.EVALUATE).send(sent)
    assert trial.left.keys() == trained.left.keys()
    if case.same_in_evaluation:
        for key, left in trained.left.items():
            for name, array in left.payload.items():
                assert array.tolist() == trial.left[key].payload[name].tolist()
    assert trial.metrics == trained.metrics
    if type(trial.node).one_to_one:
        assert not trial.stamped
    trial.answer(no_gradient).assert_done()
    assert set(trial.answers.values()) <= {None}


def claim_verify_brings_states_back(case: Case) -> None:
    """Rows leave with their own state as origin, or pass with that of their sender; answers
    bring back the state of the row that they answer."""
    sent = case.sent(FEW, verify=True)
    states = {
        slot: state
        for rows in sent.values()
        for slot, state in zip(rows.columns[:, 1].tolist(), rows.state.tolist(), strict=True)
    }
    for mode, gradient in ((Mode.TRAIN, some_gradient), (Mode.EVALUATE, no_gradient)):
        trial = Trial(case, mode, verify=True).send(sent)
        for (_, state), left in trial.left.items():
            mine = left.return_port != CALLER
            assert left.origin == (list(state) if mine else states[left.slot])
            if mine:
                origin = np.array([left.origin], np.int32)
                trial.node.check_origin(np.array([left.slot], np.int32), origin)
        trial.answer(gradient).assert_done()
        assert trial.origins == {slot: states[slot] for slot in trial.answers}


def claim_memory_used_again_holds_nothing_old(case: Case) -> None:
    """The same rows, until the stash has been used all over, give the same every time."""
    sent = case.sent(FEW)
    first = Trial(case).send(sent).answer()
    trial, rounds = Trial(case), MANY // FEW + 1
    for n in range(rounds):
        trial.left, trial.answers = {}, {}
        trial.send(sent).answer(no_gradient if n % 2 else some_gradient).assert_done()
    trial.assert_equals_where_null_is_zero(first, times=(rounds + 1) // 2)


def claim_inputs_are_not_kept(case: Case) -> None:
    """What the sender does to its memory after the forward changes no answer."""
    sent = case.sent(FEW)
    trial = Trial(case)
    for port, rows in sent.items():
        payload = {name: array.copy() for name, array in rows.payload.items()}
        trial.send({port: Rows(rows.columns, payload, rows.width)})
        for array in payload.values():
            array[...] = 0
    trial.answer()
    full = Trial(case).send(sent).answer()
    trial.assert_equals_where_null_is_zero(full)


def claim_stale_rows_are_differentiated_at_the_weights_that_are_asked_for(case: Case) -> None:
    """Rows of two versions, answered in one message after a third one was made.

    `stashed`: as a fresh node with the weights of each row's forward would, `recompute`:
    as one with the weights of now. No past weights are held then.
    """
    if not Registry().load(case.kind).parameterised:
        return
    (port, whole), *_ = case.sent(4).items()
    sent = {i: {port: whole.take(whole.state[:, 0] == i)} for i in range(1, 5)}
    for which in (BackwardWeights.STASHED, BackwardWeights.RECOMPUTE):
        trial = Trial(case, training={"backward_weights": which})
        at_forward: dict[int, dict[str, Array]] = {}
        for instance in range(1, 5):
            at_forward[instance] = parameters_of(trial)
            trial.send(sent[instance])
            if instance % 2 == 0:  # answered at once, and a step follows
                keys = [key for key in trial.left if key[1][0] == instance]
                trial.answer_one_by_one(keys)
                for key in keys:
                    del trial.left[key]
                trial.node.step_for(1)
        versions, reads = trial.node.weights.versions, trial.node.read_backward(True)
        held = 2 if reads and versions is not None else 0
        if versions is not None:
            assert (versions.rows, versions.held) == (2 * len(sent[1][port]), held)
        trial.answer().assert_done()
        if versions is not None:
            assert (versions.held, versions.peak) == (0, held)
            at = [trial.node.parameters[name].nbytes for name in reads]
            assert versions.peak_bytes == held * sum(at)
        total = {name: np.zeros_like(g) for name, g in trial.gradients.items()}
        for instance in (1, 3):
            stashed = which is BackwardWeights.STASHED
            weights = at_forward[instance] if stashed else parameters_of(trial)
            fresh = Trial(case)
            for name, array in weights.items():
                fresh.node.parameters[name][...] = array
            fresh.send(sent[instance]).answer()
            for slot, gradient in fresh.answers.items():
                assert_close(trial.answers[slot] or {}, gradient or {}, (which, slot))
            for name, gradient in fresh.gradients.items():
                total[name] += gradient
        assert_close(trial.gradients, total, which)
        assert trial.node.staleness.counts.tolist() == [2, 1, 1]


def claim_stale_rows_count_by_their_share_and_are_answered_in_full(case: Case) -> None:
    """Of rows in one message the stalest are dropped, some count half, and the others whole."""
    if not Registry().load(case.kind).parameterised:
        return
    compensation = {
        "predict": "none", "horizon": "measured", "predict_after": 0, "step_size": "by_row",
        "anneal_over": None, "drop_beyond": 3,
    }  # fmt: skip
    (port, whole), *_ = case.sent(3).items()
    sent = {i: {port: whole.take(whole.state[:, 0] == i)} for i in range(1, 4)}
    for which in BackwardWeights:
        trial = Trial(case, training={"backward_weights": which, "compensation": compensation})
        for instance, updates in ((1, 4), (2, 2), (3, 0)):
            trial.send(sent[instance])
            trial.node.before_overwriting()
            trial.node.version += updates  # whose steps were 0
        trial.answer()
        total = {name: np.zeros_like(g) for name, g in trial.gradients.items()}
        for instance, share in ((1, 0.0), (2, 0.5), (3, 1.0)):
            fresh = Trial(case).send(sent[instance]).answer()
            for slot, gradient in fresh.answers.items():
                assert_close(trial.answers[slot] or {}, gradient or {}, (which, slot))
            for name, gradient in fresh.gradients.items():
                total[name] += share * gradient
        assert_close(trial.gradients, total, which)
        assert trial.node.remedies.dropped == len(sent[1][port])
        trial.assert_done()


def parameters_of(trial: Trial) -> dict[str, Array]:
    return {name: array.copy() for name, array in trial.node.parameters.items()}


def claim_unknown_slots_are_refused(case: Case) -> None:
    """Every output port refuses slots never issued, and second answers."""
    sent = case.sent(FEW)
    for port in {port: None for port, _ in Trial(case).send(sent).stamped}:
        node = case.make()

        def emit(node: Node = node, port: str = port) -> Rows:
            results = [r for p, rows in sent.items() for r in node.forward(p, rows, Mode.TRAIN)]
            (rows,) = [r.rows for r in results if isinstance(r, Emission) and r.port == port]
            return rows

        claim_duplicate_and_unknown_slots_are_refused(node, emit, port)


CLAIMS = (
    claim_gradients_match_differences,
    claim_a_large_batch_equals_its_rows_one_by_one,
    claim_one_instance_alone_gives_its_share_of_a_batch,
    claim_zero_rows_are_nothing,
    claim_swapped_answers_use_their_own_rows,
    claim_null_answers_are_passed_on_as_null,
    claim_null_and_missing_arrays_count_as_zero,
    claim_only_ports_that_want_a_gradient_get_one,
    claim_rows_and_answers_are_as_declared,
    claim_evaluation_answers_null_and_keeps_nothing,
    claim_verify_brings_states_back,
    claim_memory_used_again_holds_nothing_old,
    claim_inputs_are_not_kept,
    claim_stale_rows_are_differentiated_at_the_weights_that_are_asked_for,
    claim_unknown_slots_are_refused,
)
