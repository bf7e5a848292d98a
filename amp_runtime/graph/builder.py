"""Building a model: nodes, ports, edges, state columns; `build()` checks it all.

graph = Graph(kinds, fields=dataset_fields, batch=100)
graph.state(step=4)                                 # a column of 4 bits
tokens = graph.input("tokens", each="tokens", state={"step": POSITION}, payload={"x": "tokens"})
embedded = graph.add("embedding", "embedding", tokens, entries=14, features=128)
...
wiring = graph.build()
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from amp_runtime.checking.rules import ConfigProblemsError, Problem, below
from amp_runtime.errors import (
    BadNameError,
    BadOptionError,
    GraphError,
    OccupiedPortError,
    UnknownKindError,
    UnknownOptionError,
    UnknownPortError,
    nearest,
)
from amp_runtime.graph.asking import asking, ports_said
from amp_runtime.graph.draft import Draft, InPort, OutPort
from amp_runtime.graph.example_fields import ExampleFields
from amp_runtime.graph.handles import NodeHandle, source_of, target_of
from amp_runtime.graph.inputs import GivenInput, input_spec, is_whole, zeros
from amp_runtime.graph.replicas import replicated
from amp_runtime.graph.training_options import (
    TRAINING_OPTIONS,
    override_problems,
    training_options,
)
from amp_runtime.graph.wired import check_connected, wired
from amp_runtime.graph.wiring import CONTROLLER_NODE, InputSpec, PerExample, Wiring
from amp_runtime.nodes.node import Kinds, Node
from amp_runtime.rows.spec import (
    EXAMPLE,
    INSTANCE,
    INSTANCE_KEY_BITS,
    MAX_KEY_BITS,
    POSITION,
    Array,
    ArraySpec,
    StateSchema,
)

NO_STATE: Mapping[str, str | int] = MappingProxyType({})
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")

__all__ = ["POSITION", "Graph", "NodeHandle", "OutPort", "PerExample", "zeros"]


class Graph:
    """A model under construction.

    Args:
        kinds: finds node classes.
        fields: {field: spec} of the data set's examples.
        entries: {field: how many values}, of fields of ids with a vocabulary.
        unseen: {field: those of its values that no training example holds}.
        vectors: {field: [values, features]}, pre-trained vectors of the values of such fields.
        scales: {field: {metric: factor of an absolute error of its values}}.
        batch: examples per instance.
        dtype: `float32` or `float64`, of parameters and floating payloads.
        training: defaults of `optimizer`, `update_every`, `min_update_frequency`.
        overrides: {node name: {option: value}}, stronger than what the builder says.

    Attributes:
        problems: of the overrides of the nodes so far.
        parameters: {node: {parameter: array}} of nodes that do not begin with drawn ones.
    """

    def __init__(
        self,
        kinds: Kinds,
        *,
        fields: Mapping[str, ArraySpec],
        entries: Mapping[str, int] | None = None,
        unseen: Mapping[str, Sequence[int]] | None = None,
        vectors: Mapping[str, Array] | None = None,
        scales: Mapping[str, Mapping[str, float]] | None = None,
        batch: int = 1,
        dtype: str = "float32",
        training: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.fields = dict(fields)
        self._examples = ExampleFields(
            fields, entries or {}, unseen or {}, vectors or {}, scales or {}, dtype
        )
        self.batch = batch
        self.dtype = dtype
        self._kinds = kinds
        self._training = dict(training or {})
        self._overrides = {name: dict(options) for name, options in (overrides or {}).items()}
        self.problems: list[Problem] = []
        self.parameters: dict[str, dict[str, Array]] = {}
        self._columns: dict[str, int] = {}
        self._inputs: list[InputSpec] = []
        self._drafts: list[Draft] = []
        self._edges: list[tuple[OutPort, InPort]] = []

    # ---- what a model's builder calls

    def entries(self, field: str) -> int:
        """Return how many values a field of ids takes: entries of an embedding, classes.

        Raises:
            GraphError: no such field, or the data source does not say.
        """
        return self._examples.entries(field)

    def unseen(self, field: str) -> tuple[int, ...]:
        """Return the ids among a field's values that no training example holds, if known.

        Raises:
            GraphError: no such field.
        """
        return self._examples.unseen(field)

    def vectors(self, field: str) -> Array | None:
        """Return pre-trained vectors of a field's values, [values, features], if there are any.

        Raises:
            GraphError: no such field.
        """
        return self._examples.vectors(field)

    def scales(self, field: str) -> Mapping[str, float]:
        """Return {metric: factor of an absolute error of a field's values}, {} if none is told.

        Raises:
            GraphError: no such field.
        """
        return self._examples.scales(field)

    def begin(self, node: NodeHandle, **parameters: Array) -> None:
        """Let a node begin with these parameters, all it has, and not with drawn ones.

        Raises:
            GraphError: it has no parameters, or an array is not of finite numbers.
        """
        draft = node.draft
        if not draft.cls.parameterised:
            raise GraphError("has no parameters to begin with", where=draft.where)
        given = {}
        for parameter, array in parameters.items():
            try:
                with np.errstate(over="ignore"):  # found in the next line
                    given[parameter] = np.ascontiguousarray(array, self.dtype)
                fault = "" if np.isfinite(given[parameter]).all() else "holds a value not finite"
            except (TypeError, ValueError) as error:
                fault = f"is no array of numbers: {error}"
            if fault:
                raise GraphError(f"begins with a {parameter!r} that {fault}", where=draft.where)
        self.parameters[draft.name] = given

    def state(self, **bits: int) -> None:
        """Declare the model's state columns: name = bits that its values need."""
        for name, width in bits.items():
            if name in (INSTANCE, EXAMPLE) or name in self._columns:
                raise GraphError(f"state column {name!r} exists already")
            if name.startswith("@"):
                raise GraphError(f"state column {name!r}: names with @ are ours; take another")
            if not is_whole(width) or not 1 <= width <= 31:
                raise GraphError(f"state column {name!r}: {width!r} bits, not 1 to 31")
            self._columns[name] = int(width)
        if self._schema().key_bits > MAX_KEY_BITS:
            raise GraphError(
                f"the state {self._schema()} takes {self._schema().key_bits} bits, "
                f"more than {MAX_KEY_BITS}",
                fix="declare fewer bits, or fewer columns",
            )

    def input(
        self,
        name: str,
        *,
        each: str,
        state: Mapping[str, str | int] = NO_STATE,
        payload: Mapping[str, str | zeros],
        at_least: int = 0,
    ) -> OutPort:
        """Declare rows that the controller injects.

        Args:
            each: a field: one row per element; or `PerExample`: one row per example.
            state: for every declared column a field of as many elements, `POSITION`
                (0, 1, ... within the example) or a fixed int; none where the model has no state.
            payload: {array: field of as many elements, or `zeros(shape)`}.
            at_least: how many rows each example must bring: one without would be refused.
        """
        where = f"input {name!r}"
        self._check_name(name, where)
        given = GivenInput(each, state, payload, at_least)
        self._inputs.append(
            input_spec(
                name, given, self._schema(), tuple(self._columns), self._examples, self.dtype
            )
        )
        return OutPort(CONTROLLER_NODE, name)

    def add(
        self, kind: str, name: str, *sources: OutPort | NodeHandle, **options: Any
    ) -> NodeHandle:
        """Add a node of `kind`; `sources` are drawn to its input ports in order.

        Raises:
            UnknownKindError, UnknownOptionError, BadOptionError, BadNameError: as named.
        """
        where = f"node {name!r} (kind {kind})"
        self._check_name(name, where)
        if not isinstance(kind, str):
            raise UnknownKindError(
                f"a kind is text, not {kind!r:.80}",
                where=where,
                fix="name it, as in 'linear' or 'package.module:Class'",
            )
        cls = self._kinds.load(kind, where=where)
        overrides = self._fitting_overrides(name, kind, cls, options)
        training = training_options(cls, self._training, (options, overrides), where)
        # Imported here: functions on states stand beside a builder, so workers import
        # this module too, and have no use for pydantic.
        from amp_runtime.checking.options import validate_options

        merged = {k: v for k, v in {**options, **overrides}.items() if k not in TRAINING_OPTIONS}
        try:
            with asking(cls, "Options", where):
                validated = validate_options(cls.Options, merged, where=where)
        except UnknownOptionError as error:
            too = f"it also takes {', '.join(TRAINING_OPTIONS)}" if cls.parameterised else ""
            raise type(error)(error.what, where=where, fix=too) from error.__cause__
        try:
            with asking(cls, "check_training", where):
                cls.check_training(validated, training)
        except BadOptionError as error:
            raise error.at(where) from None
        draft = Draft(
            name,
            kind,
            cls,
            validated,
            training,
            where,
            ports_said(cls, "input_ports", validated, where),
            ports_said(cls, "output_ports", validated, where),
        )
        self._drafts.append(draft)
        handle = NodeHandle(self._drafts, len(self._drafts) - 1)
        if len(sources) > len(draft.inputs):
            raise UnknownPortError(
                f"{len(sources)} inputs are drawn to its ports {list(draft.inputs)}", where=where
            )
        for source, port in zip(sources, draft.inputs, strict=False):
            self.connect(source, handle.port(port))
        return handle

    def connect(self, source: OutPort | NodeHandle, target: InPort | NodeHandle) -> None:
        """Draw an edge; a node handle stands for its only port.

        Raises:
            OccupiedPortError: the input port has an edge already.
            GraphError: what is drawn is no port, or one of another graph.
        """
        out = source_of(source, self._drafts, target)
        into = target_of(target, self._drafts, source)
        if any(t == into for _, t in self._edges):
            raise OccupiedPortError(
                f"input port {into.port!r} is drawn to twice",
                where=self._drafts[into.node].where,
                fix="merge the edges with a phi",
            )
        self._edges.append((out, into))

    def _fitting_overrides(
        self, name: str, kind: str, cls: type[Node], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the overrides of a node, without those that are wrong: `build` tells of these."""
        overrides = self._overrides.get(name, {})
        if not overrides:
            return {}
        wrong = override_problems(kind, cls, self._training, options, overrides)
        self.problems += below(("nodes", name), wrong)
        if any(not problem.path for problem in wrong):
            return {}
        return {k: v for k, v in overrides.items() if k not in {p.path[0] for p in wrong}}

    # ---- checks and the result

    def build(self) -> Wiring:
        """Check the graph and return it as a `Wiring`.

        Raises:
            ConfigProblemsError: all overrides that are wrong.
            GraphError: a subclass names the check that failed.
        """
        names = [draft.name for draft in self._drafts]
        for unknown in (name for name in self._overrides if name not in names):
            said = f"no node {unknown!r} in the model{nearest(unknown, names)}"
            fix = f"its nodes are {', '.join(names)}"
            self.problems.append(Problem(("nodes", unknown), f"{said}; {fix}", unknown=True))
        if self.problems:
            raise ConfigProblemsError.of(self.problems, "")
        if not self._drafts and not self._inputs:
            raise GraphError("the model has no nodes", fix="let its builder call graph.add")
        check_connected(self._drafts, self._edges, self._inputs)
        self._insert_bcasts()
        return replicated(
            wired(self._drafts, self._edges, self._inputs, self._examples, self.dtype, self.batch)
        )

    def _schema(self) -> StateSchema:
        columns = [(INSTANCE, INSTANCE_KEY_BITS)]
        if self.batch > 1:
            columns.append((EXAMPLE, (self.batch - 1).bit_length()))
        return StateSchema((*columns, *self._columns.items()))

    def _check_name(self, name: str, where: str) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise BadNameError(
                f"{name!r} is not a valid name",
                where=where,
                fix="use 1 to 41 characters a-z, 0-9, _ and -, starting with a letter or digit",
            )
        if name in {d.name for d in self._drafts} | {i.name for i in self._inputs}:
            raise BadNameError(f"the name {name!r} is taken", where=where)

    def _insert_bcasts(self) -> None:
        """Put a bcast behind each output that is drawn more than once."""
        targets: dict[OutPort, list[InPort]] = {}
        for out, into in self._edges:
            targets.setdefault(out, []).append(into)
        for out, many in targets.items():
            if len(many) == 1:
                continue
            source = out.port if out.node < 0 else self._drafts[out.node].name
            if out.node >= 0 and len(self._drafts[out.node].outputs) > 1:
                source = f"{source[:20]}-{re.sub('[^a-z0-9_-]', '-', out.port.lower())}"
            name = self._free_name(f"{source[:30]}-bcast")
            self._edges = [(o, i) for o, i in self._edges if o != out]
            ports = tuple(f"y{n}" for n in range(len(many)))
            bcast = self.add("bcast", name, out, outputs=ports)
            for port, into in zip(ports, many, strict=True):
                self.connect(bcast[port], into)

    def _free_name(self, stem: str) -> str:
        """Return `stem`, or `stem-2`, ... where that is taken."""
        taken = {d.name for d in self._drafts} | {i.name for i in self._inputs}
        names = (stem, *(f"{stem}-{n}" for n in range(2, len(taken) + 3)))
        return next(name for name in names if name not in taken)
