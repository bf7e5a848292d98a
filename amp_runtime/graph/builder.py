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
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from amp_runtime.checking.rules import ConfigProblemsError, Problem, below
from amp_runtime.errors import (
    BadNameError,
    BadOptionError,
    GraphError,
    OccupiedPortError,
    ShapeMismatchError,
    UnconnectedPortError,
    UnknownKindError,
    UnknownOptionError,
    UnknownPortError,
    nearest,
)
from amp_runtime.graph.asking import asking, check_array, load_said, names_said, ports_said
from amp_runtime.graph.checks import check_branches, check_cycles, check_paths
from amp_runtime.graph.draft import Draft, InPort, OutPort, infer
from amp_runtime.graph.replicas import replicated
from amp_runtime.graph.training_options import (
    TRAINING_OPTIONS,
    override_problems,
    plain_options,
    training_options,
)
from amp_runtime.graph.wiring import (
    CONTROLLER_NODE,
    Edge,
    InputSpec,
    NodeSpec,
    PerExample,
    Wiring,
    fields_of,
)
from amp_runtime.names import state_function, structure_fields
from amp_runtime.nodes.node import Kinds, Node
from amp_runtime.rows.spec import (
    EXAMPLE,
    INSTANCE,
    INSTANCE_KEY_BITS,
    MAX_KEY_BITS,
    POSITION,
    Array,
    ArraySpec,
    PortSpec,
    StateSchema,
)

NO_STATE: Mapping[str, str | int] = MappingProxyType({})
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")

__all__ = ["POSITION", "Graph", "NodeHandle", "OutPort", "PerExample", "zeros"]


@dataclass(frozen=True, slots=True)
class zeros:  # noqa: N801 - reads as a function where it is used
    """A payload of an input: zeros of the given feature shape, in the run's dtype."""

    shape: tuple[int, ...] | int


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_mapping(what: str, given: object, where: str) -> None:
    """Assert that an argument of `Graph.input` is a mapping from names."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise GraphError(f"its {what} is {given!r:.80}, not a dict by name", where=where)


class NodeHandle:
    """A node while the graph is being built: `handle["port"]` is an output port."""

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self._number = number

    def __getitem__(self, port: str) -> OutPort:
        draft = self._graph._drafts[self._number]
        _check_port(port, draft.outputs, "output", draft.where)
        return OutPort(self._number, port)

    def port(self, name: str) -> InPort:
        """Return input port `name`, to connect it later (a loop's way back)."""
        draft = self._graph._drafts[self._number]
        _check_port(name, draft.inputs, "input", draft.where)
        return InPort(self._number, name)


def _check_port(name: str, ports: tuple[str, ...], way: str, where: str) -> None:
    if name not in ports:
        raise UnknownPortError(
            f"no {way} port {name!r}{nearest(name, ports)}",
            where=where,
            fix=f"its {way} ports are {list(ports)}",
        )


class Graph:
    """A model under construction.

    Args:
        kinds: finds node classes.
        fields: {field: spec} of the data set's examples.
        entries: {field: how many values}, of fields of ids with a vocabulary.
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
        vectors: Mapping[str, Array] | None = None,
        scales: Mapping[str, Mapping[str, float]] | None = None,
        batch: int = 1,
        dtype: str = "float32",
        training: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.fields = dict(fields)
        self._entries = dict(entries or {})
        self._vectors = dict(vectors or {})
        self._scales = dict(scales or {})
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
        spec = self._field(field, "")
        if field not in self._entries:
            raise GraphError(
                f"the data source does not say how many values field {field!r} ({spec}) takes",
                fix="set it as an option of the model",
            )
        return self._entries[field]

    def vectors(self, field: str) -> Array | None:
        """Return pre-trained vectors of a field's values, [values, features], if there are any.

        Raises:
            GraphError: no such field.
        """
        self._field(field, "")
        return self._vectors.get(field)

    def scales(self, field: str) -> Mapping[str, float]:
        """Return {metric: factor of an absolute error of a field's values}, {} if none is told.

        Raises:
            GraphError: no such field.
        """
        self._field(field, "")
        return self._scales.get(field, {})

    def begin(self, node: NodeHandle, **parameters: Array) -> None:
        """Let a node begin with these parameters, all it has, and not with drawn ones.

        Raises:
            GraphError: it has no parameters, or an array is not of finite numbers.
        """
        draft = self._drafts[node._number]
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
            if not _is_whole(width) or not 1 <= width <= 31:
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
        _check_mapping("state", state, where)
        _check_mapping("payload", payload, where)
        schema = self._schema()
        missing = [c for c in self._columns if c not in state]
        unknown = [c for c in state if c not in self._columns]
        if missing or unknown:
            raise GraphError(
                f"state columns {sorted(state)} do not match those declared "
                f"{sorted(self._columns)}",
                where=where,
            )
        arrays: dict[str, ArraySpec] = {}
        sources: dict[str, str | None] = {}
        for array, source in payload.items():
            if isinstance(source, zeros):
                given = source.shape
                shape = (given,) if isinstance(given, int) else tuple(given)
                arrays[array], sources[array] = ArraySpec(shape, self.dtype), None
            else:
                arrays[array], sources[array] = self._field(source, where), source
            check_array(f"array {array!r}", arrays[array], where)
        if each != PerExample:
            self._field(each, where)
            if each not in self.fields:
                raise GraphError(f"{each!r} has no elements", where=where, fix="use PerExample")
        for column, value in state.items():
            if not isinstance(value, str) and not _is_whole(value):
                raise GraphError(
                    f"state column {column!r} is given {value!r:.80}",
                    where=where,
                    fix="give a field, POSITION or a whole number",
                )
            if isinstance(value, str) and value != POSITION:
                found = self._field(value, where)
                if found != ArraySpec((), "int32"):
                    raise ShapeMismatchError(
                        f"state column {column!r} takes whole numbers, one a row, but field "
                        f"{value!r} is {found}",
                        where=where,
                    )
        spec = PortSpec(arrays, schema)
        plain = {c: v if isinstance(v, str) else int(v) for c, v in state.items()}
        self._inputs.append(InputSpec(name, each, plain, sources, spec, at_least))
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
        handle = NodeHandle(self, len(self._drafts) - 1)
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
        self._check_end(source, OutPort, 'handle["port"]', f"an edge to {target!r:.80}")
        self._check_end(target, InPort, 'handle.port("port")', f"an edge from {source!r:.80}")
        out = self._only_output(source) if isinstance(source, NodeHandle) else source
        into = self._only_input(target) if isinstance(target, NodeHandle) else target
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
        self._check_connected()
        self._insert_bcasts()
        inputs, outputs = infer(self._drafts, self._edges, self._inputs, self.dtype)
        nodes = []
        for number, draft in enumerate(self._drafts):
            needed = self._needed_fields(draft, inputs[number])
            nodes.append(
                NodeSpec(
                    name=draft.name,
                    kind=draft.kind,
                    options=plain_options(draft.options),
                    inputs=inputs[number],
                    outputs=outputs[number],
                    fields=needed,
                    training=draft.training,
                    transparent=draft.cls.transparent,
                    one_to_one=draft.cls.one_to_one,
                    parameterised=draft.cls.parameterised,
                    is_end=draft.cls.is_end,
                    load=load_said(draft.cls, draft.options, inputs[number], draft.where),
                )
            )
        edges = tuple(Edge(o.node, o.port, i.node, i.port) for o, i in self._edges)
        wiring = Wiring(
            nodes=tuple(nodes),
            inputs=tuple(self._inputs),
            edges=edges,
            fields={name: self._field(name, "") for name in fields_of(nodes)},
            dtype=self.dtype,
            batch=self.batch,
        )
        changing = frozenset(
            number
            for number, (node, port) in enumerate(wiring.input_ports)
            if (cls := self._drafts[node].cls).changes_state and port not in cls.keeps_state
        )
        check_paths(wiring)
        check_cycles(wiring, changing)
        check_branches(wiring, changing)
        return replicated(wiring)

    def _check_end(self, end: object, cls: type, written: str, what: str) -> None:
        """Assert that an end of an edge is a port of `cls`, or a node, of this graph."""
        foreign = isinstance(end, NodeHandle) and end._graph is not self
        if foreign or not isinstance(end, NodeHandle | cls):
            raise GraphError(
                f"{what}: {end!r:.80} is {'of another graph' if foreign else 'no such end'}",
                fix=f"draw from what graph.input, graph.add or handle[...] return; here: {written}",
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

    def _field(self, name: str, where: str) -> ArraySpec:
        if not isinstance(name, str):
            raise GraphError(f"{name!r:.80} is no field: a field is text", where=where)
        if name.startswith("len(") and name.endswith(")"):
            self._field(name[4:-1], where)
            return ArraySpec((), "int32")
        if name not in self.fields:
            raise GraphError(
                f"the data have no field {name!r}{nearest(name, self.fields)}",
                where=where,
                fix=f"their fields are {', '.join(sorted(self.fields))}",
            )
        spec = self.fields[name]
        return spec if spec.dtype == "int32" else ArraySpec(spec.shape, self.dtype)

    def _only_output(self, handle: NodeHandle) -> OutPort:
        draft = self._drafts[handle._number]
        if len(draft.outputs) != 1:
            raise UnknownPortError(
                f"has output ports {list(draft.outputs)}, so name one",
                where=draft.where,
                fix="write handle['port']",
            )
        return OutPort(handle._number, draft.outputs[0])

    def _only_input(self, handle: NodeHandle) -> InPort:
        draft = self._drafts[handle._number]
        if len(draft.inputs) != 1:
            raise UnknownPortError(
                f"has input ports {list(draft.inputs)}, so name one",
                where=draft.where,
                fix="write handle.port('port')",
            )
        return InPort(handle._number, draft.inputs[0])

    def _check_connected(self) -> None:
        drawn_to = {into for _, into in self._edges}
        drawn_from = {out for out, _ in self._edges}
        for number, draft in enumerate(self._drafts):
            for port in draft.inputs:
                if InPort(number, port) not in drawn_to:
                    raise UnconnectedPortError(
                        f"nothing is drawn to input port {port!r}", where=draft.where
                    )
            for port in draft.outputs:
                if OutPort(number, port) not in drawn_from:
                    raise UnconnectedPortError(
                        f"output port {port!r} leads nowhere",
                        where=draft.where,
                        fix="connect it, to a sink if nobody needs its rows",
                    )
        for spec in self._inputs:
            if OutPort(CONTROLLER_NODE, spec.name) not in drawn_from:
                raise UnconnectedPortError("leads nowhere", where=f"input {spec.name!r}")

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

    def _needed_fields(self, draft: Draft, inputs: Mapping[str, PortSpec]) -> tuple[str, ...]:
        cls = draft.cls
        needed = list(names_said(cls, "fields", draft.options, draft.where))
        for name in names_said(cls, "state_functions", draft.options, draft.where):
            needed += structure_fields(state_function(name, draft.where))
        fields = {field: self._field(field, draft.where) for field in needed}
        try:
            with asking(cls, "check_fields", draft.where):
                cls.check_fields(draft.options, inputs, fields)
        except ShapeMismatchError as error:
            raise error.at(draft.where) from None
        return tuple(fields)
