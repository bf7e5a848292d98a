"""Any list of small numbers is a model: loops, choices, joins, branches, losses.

A recipe is a list of steps (what, which stream, which other, width). Streams are outputs
of nodes with the set of states that their rows have (`Domain`); streams of one domain may
be joined. A stream may be used again and again: the builder puts a bcast there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from amp_runtime.data.dataset import Dataset
from amp_runtime.graph import POSITION, Graph, NodeHandle, OutPort, PerExample, zeros
from amp_runtime.graph.wiring import Wiring
from amp_runtime.names import needs
from amp_runtime.rows.spec import Array, ArraySpec, Columns
from amp_runtime.rows.structure import StructureArena
from workers.registry import Registry

Step = tuple[int, int, int, int]
Out = OutPort | NodeHandle

FIELDS = {
    "tokens": ArraySpec((), "int32"),
    "points": ArraySpec((2,), "float64"),
    "vector": ArraySpec((2,), "float64"),
    "chances": ArraySpec((2,), "float64"),
    "label": ArraySpec((), "int32"),
    "labels": ArraySpec((), "int32"),
    "times": ArraySpec((), "int32"),
    "which": ArraySpec((), "int32"),
}
ELEMENTWISE = ("relu", "tanh", "sigmoid", "softmax", "dropout")
N_TOKENS, N_CLASSES = 6, 3


@dataclass(frozen=True)
class Domain:
    """Which states rows have: one per `step` of `steps`, visited so often, marked or not."""

    steps: str  # "each token", "each time", "start" or "end"
    visited: int = 0
    marks: str = "0"


@dataclass
class Stream:
    out: Out
    width: int
    domain: Domain
    used: bool = False


@dataclass
class Maker:
    """Interprets a recipe; `graph` is what comes of it."""

    graph: Graph
    streams: list[Stream] = field(default_factory=list)
    n_nodes: int = 0
    n_losses: int = 0

    def name(self, kind: str) -> str:
        self.n_nodes += 1
        return f"{kind}-{self.n_nodes}"

    def put(self, out: Out, width: int, domain: Domain) -> Stream:
        stream = Stream(out, width, domain)
        self.streams.append(stream)
        return stream

    def take(self, which: int, *, like: Stream | None = None) -> Stream:
        """Return one of the streams, of the domain of `like`."""
        fitting = [s for s in self.streams if like is None or s.domain == like.domain]
        stream = fitting[which % len(fitting)]
        stream.used = True
        return stream

    def linear(self, out: Out, width: int, which: int = 0) -> NodeHandle:
        activation = (None, "tanh", "relu", "sigmoid")[which % 4]
        name = self.name("linear")
        options = {"features": width, "activation": activation, "bias": which % 3 != 2}
        return self.graph.add("linear", name, out, **options)

    # ---- steps

    def add_linear(self, a: int, b: int, width: int) -> None:
        stream = self.take(a)
        self.put(self.linear(stream.out, width, b), width, stream.domain)

    def add_elementwise(self, a: int, b: int, width: int) -> None:
        stream = self.take(a)
        kind = ELEMENTWISE[(b + width) % len(ELEMENTWISE)]
        self.put(self.graph.add(kind, self.name(kind), stream.out), stream.width, stream.domain)

    def add_lstm(self, a: int, b: int, width: int) -> None:
        self.cell("lstm", ("x", "h", "c"), a, b, width)

    def add_gru(self, a: int, b: int, width: int) -> None:
        self.cell("gru", ("x", "h"), a, b, width)

    def cell(self, kind: str, names: tuple[str, ...], a: int, b: int, width: int) -> None:
        """join -> cell -> take, of one of the arrays that leave -> linear, for its name"""
        x = self.take(a)
        others = [
            self.linear(self.take(b + n, like=x).out, width, b + n) for n in range(1, len(names))
        ]
        joined = self.graph.add("join", self.name("join"), x.out, *others, inputs=names)
        cell = self.graph.add(kind, self.name(kind), joined)
        chosen = names[1 + b % (len(names) - 1)]
        taken = self.graph.add("take", self.name("take"), cell, arrays=(chosen,))
        self.put(self.linear(taken, width, b), width, x.domain)

    def add_concat(self, a: int, b: int, width: int) -> None:
        one = self.take(a)
        two = self.take(b, like=one)
        self.put(self.concat(one.out, two.out), one.width + two.width, one.domain)

    def concat(self, one: Out, two: Out) -> NodeHandle:
        return self.graph.add("concat", self.name("concat"), one, two, inputs=("a", "b"))

    def add_diamond(self, a: int, b: int, width: int) -> None:
        """cond -> (linear | itself) -> phi"""
        stream = self.take(a)
        function = ("is_odd", "has_label_one", "has_many_tokens")[b % 3]
        cond = self.graph.add(
            "cond", self.name("cond"), stream.out, choose=f"{__name__}:{function}"
        )
        no = self.linear(cond["no"], stream.width, b)
        yes = cond["yes"] if width % 2 else self.linear(cond["yes"], stream.width, b + 1)
        phi = self.graph.add("phi", self.name("phi"), no, yes, inputs=("no", "yes"))
        self.put(phi, stream.width, stream.domain)

    def add_recurrence(self, a: int, b: int, width: int) -> None:
        """A loop over the tokens, which joins the state with a stream of tokens."""
        starts = [s for s in self.streams if s.domain == Domain("start")]
        tokens = [s for s in self.streams if s.domain == Domain("each token")]
        start, token = starts[a % len(starts)], tokens[b % len(tokens)]
        start.used = token.used = True
        loop = self.graph.add("phi", self.name("loop"), start.out, inputs=("start", "again"))
        joined = self.concat(token.out, loop)
        state = self.linear(joined, start.width, b)
        step = self.graph.add("isu", self.name("isu"), state, update=f"{__name__}:next_step")
        more = self.graph.add("cond", self.name("cond"), step, choose=f"{__name__}:has_more_tokens")
        self.graph.connect(more["yes"], loop.port("again"))
        self.put(more["no"], start.width, Domain("end"))

    def add_visits(self, a: int, b: int, width: int) -> None:
        """A loop that each row passes as often as its example says, with a residual or not."""
        fitting = [s for s in self.streams if s.domain.visited == 0]
        stream = fitting[a % len(fitting)]
        stream.used = True
        loop = self.graph.add("phi", self.name("loop"), stream.out, inputs=("start", "again"))
        body = self.linear(loop, stream.width, b)
        if width % 2:
            body = self.linear(self.concat(loop, body), stream.width, b + 1)
        step = self.graph.add("isu", self.name("isu"), body, update=f"{__name__}:next_visit")
        more = self.graph.add("cond", self.name("cond"), step, choose=f"{__name__}:has_more_visits")
        self.graph.connect(more["yes"], loop.port("again"))
        self.put(more["no"], stream.width, replace(stream.domain, visited=1))

    def add_marked(self, a: int, b: int, width: int) -> None:
        """A bcast whose branches meet in a phi, with other states: twice the rows."""
        fitting = [s for s in self.streams if s.domain.marks == "0"]
        stream = fitting[a % len(fitting)]
        stream.used = True
        marked = self.graph.add("isu", self.name("isu"), stream.out, update=f"{__name__}:mark")
        other = self.linear(marked, stream.width, b) if b % 2 else marked
        phi = self.graph.add("phi", self.name("phi"), stream.out, other, inputs=("old", "new"))
        self.put(phi, stream.width, replace(stream.domain, marks="01"))

    def add_loss(self, a: int, b: int, width: int) -> None:
        stream = self.take(a)
        self.loss(stream, per_token=b % 2 == 1 and stream.domain.steps == "each token")

    def loss(self, stream: Stream, *, per_token: bool = False) -> None:
        stream.used = True
        self.n_losses += 1
        logits = self.linear(stream.out, N_CLASSES)
        options = {"label": "labels", "index": "step"} if per_token else {}
        self.graph.add("softmax_cross_entropy", self.name("loss"), logits, **options)

    def add_sink(self, a: int, b: int, width: int) -> None:
        self.graph.add("sink", self.name("sink"), self.take(a).out)

    def add_split(self, a: int, b: int, width: int) -> None:
        """Both parts are streams."""
        fitting = [s for s in self.streams if s.width > 1]
        stream = fitting[a % len(fitting)]
        stream.used = True
        sizes = {"a": 1 + b % (stream.width - 1)}
        sizes["b"] = stream.width - sizes["a"]
        split = self.graph.add("split", self.name("split"), stream.out, outputs=sizes)
        for port, size in sizes.items():
            self.put(split[port], size, stream.domain)

    def add_flatmap(self, a: int, b: int, width: int) -> None:
        """One row an example becomes one for each token, or as many as it says: maybe none."""
        fitting = [s for s in self.streams if s.domain.steps in ("start", "end")]
        stream = fitting[a % len(fitting)]
        stream.used = True
        steps, count = (("each token", "n_tokens"), ("each time", "n_times"))[b % 2]
        rows = self.graph.add(
            "flatmap",
            self.name("flatmap"),
            stream.out,
            count=f"{__name__}:{count}",
            state=f"{__name__}:to_position",
        )
        self.put(rows, stream.width, replace(stream.domain, steps=steps))

    def add_group(self, a: int, b: int, width: int) -> None:
        """The rows of an example become one; a start announces it, where there may be none."""
        fitting = [s for s in self.streams if s.domain.steps.startswith("each")]
        stream = fitting[a % len(fitting)]
        domain = replace(stream.domain, steps="start")
        starts = [s for s in self.streams if s.domain == domain]
        may_be_none = stream.domain.steps == "each time"
        sources, announced = [stream], False
        if may_be_none or b % 2:
            if not starts:
                return
            sources, announced = [stream, starts[width % len(starts)]], True
        for source in sources:
            source.used = True
        group = self.graph.add(
            "group",
            self.name("group"),
            *(source.out for source in sources),
            reduce=("sum", "mean", "max")[b % 3],
            key=f"{__name__}:to_start",
            count=f"{__name__}:{'n_times' if may_be_none else 'n_tokens'}",
            position=f"{__name__}:step_of" if a % 2 else None,
            announced=announced,
        )
        self.put(group, stream.width, domain)

    def add_pairs(self, a: int, b: int, width: int) -> None:
        """The marked and the unmarked row become one, or change places."""
        fitting = [s for s in self.streams if s.domain.marks == "01"]
        if not fitting:
            return
        stream = fitting[a % len(fitting)]
        stream.used = True
        pairs = self.graph.add(
            "group",
            self.name("group"),
            stream.out,
            reduce="stack",
            count=2,
            key=f"{__name__}:unmark",
            position=f"{__name__}:{('mark_of', 'other_mark')[width % 2]}",
        )
        if b % 2:
            self.put(self.linear(pairs, width), width, replace(stream.domain, marks="0"))
            return
        rows = self.graph.add("ungroup", self.name("ungroup"), pairs, state=f"{__name__}:remark")
        self.put(rows, stream.width, stream.domain)

    def add_loss_over_rows(self, a: int, b: int, width: int) -> None:
        """Which of its tokens an example means."""
        domain = ("each token", "0")
        fitting = [s for s in self.streams if (s.domain.steps, s.domain.marks) == domain]
        stream = fitting[a % len(fitting)]
        stream.used = True
        self.n_losses += 1
        logits = self.linear(stream.out, 1, b)
        self.graph.add(
            "softmax_over_rows",
            self.name("loss"),
            logits,
            count="len(tokens)",
            index="step",
            label="which",
        )

    def add_alike(self, a: int, b: int, width: int) -> None:
        """The sum or the product of two streams of one width."""
        one = self.take(a)
        fitting = [s for s in self.streams if (s.domain, s.width) == (one.domain, one.width)]
        two = fitting[b % len(fitting)]
        two.used = True
        kind = ("add", "multiply")[width % 2]
        both = self.graph.add(kind, self.name(kind), one.out, two.out, inputs=("a", "b"))
        self.put(both, one.width, one.domain)

    def add_layer_norm(self, a: int, b: int, width: int) -> None:
        stream = self.take(a)
        # A large eps: where features lie close together, differences are of no use.
        norm = self.graph.add("layer_norm", self.name("layer-norm"), stream.out, eps=0.1)
        self.put(norm, stream.width, stream.domain)

    def add_pad(self, a: int, b: int, width: int) -> None:
        stream = self.take(a)
        wider = stream.width + b
        pad = self.graph.add("pad", self.name("pad"), stream.out, features=wider)
        self.put(pad, wider, stream.domain)

    def add_target_loss(self, a: int, b: int, width: int) -> None:
        """Two features against targets of the example, or of its token."""
        stream = self.take(a)
        self.n_losses += 1
        outputs = self.linear(stream.out, 2, b)
        kind, options = "sigmoid_cross_entropy", {"target": "chances"}
        if b % 2:
            per_token = stream.domain.steps == "each token"
            kind = "squared_error"
            options = {"target": "points", "index": "step"} if per_token else {"target": "vector"}
        self.graph.add(kind, self.name("loss"), outputs, **options)


STEPS = (
    Maker.add_linear, Maker.add_elementwise, Maker.add_lstm, Maker.add_gru, Maker.add_concat,
    Maker.add_diamond, Maker.add_recurrence, Maker.add_visits, Maker.add_marked, Maker.add_loss,
    Maker.add_sink, Maker.add_split, Maker.add_flatmap, Maker.add_group, Maker.add_pairs,
    Maker.add_loss_over_rows, Maker.add_alike, Maker.add_layer_norm, Maker.add_target_loss,
    Maker.add_pad,
)  # fmt: skip


def build(
    recipe: Sequence[Step],
    *,
    batch: int = 1,
    lr: float = 0.1,
    update_every: int = 3,
    backward_weights: str = "live",
    **averaging: Any,
) -> Wiring:
    """Return the model of a recipe, in float64.

    Args:
        averaging: `replicas` of each node with parameters, and how they are averaged.
    """
    sgd = {"name": "sgd", "lr": lr, "momentum": 0.5}
    training = {
        "optimizer": sgd,
        "update_every": update_every,
        "backward_weights": backward_weights,
        **averaging,
    }
    graph = Graph(Registry(), fields=FIELDS, batch=batch, dtype="float64", training=training)
    graph.state(step=4, visit=3, mark=1)
    maker, still = Maker(graph), {"visit": 0, "mark": 0}
    tokens = graph.input(
        "tokens", each="tokens", state={"step": POSITION, **still}, payload={"x": "tokens"}
    )
    embedding = graph.add("embedding", "embedding", tokens, entries=N_TOKENS, features=2)
    maker.put(embedding, 2, Domain("each token"))
    start = graph.input(
        "start", each=PerExample, state={"step": 0, **still}, payload={"x": zeros((2,))}
    )
    maker.put(start, 2, Domain("start"))
    vector = graph.input(
        "vector", each=PerExample, state={"step": 0, **still}, payload={"x": "vector"}
    )
    maker.put(vector, 2, Domain("start"))
    points = graph.input(
        "points", each="tokens", state={"step": POSITION, **still}, payload={"x": "points"}
    )
    maker.put(points, 2, Domain("each token"))
    for what, a, b, width in recipe:
        STEPS[what % len(STEPS)](maker, a, b, width)
    if not maker.n_losses or not maker.streams[-1].used:
        maker.loss(maker.streams[-1])
    for stream in maker.streams:
        if not stream.used:
            graph.add("sink", maker.name("sink"), stream.out)
    return graph.build()


def examples(n: int, seed: int, *, longest: int = 4) -> Dataset:
    """Return random examples of 1 to `longest` tokens."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest + 1, n)
    total = int(lengths.sum())
    return Dataset.from_columns(
        {
            "tokens": (generator.integers(0, N_TOKENS, total), lengths),
            "points": (generator.normal(size=(total, 2)), lengths),
            "vector": (generator.normal(size=(n, 2)), np.ones(n, np.int64)),
            "chances": (generator.random((n, 2)), np.ones(n, np.int64)),
            "label": generator.integers(0, N_CLASSES, n),
            "labels": (generator.integers(0, N_CLASSES, total), lengths),
            "times": generator.integers(0, 4, n),
            "which": generator.integers(0, lengths),
        }
    )


# ---------------------------------------------------------------- functions on states


def is_odd(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] % 2 == 1


@needs("label")
def has_label_one(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("label", columns) == 1


@needs("len(tokens)")
def has_many_tokens(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("len(tokens)", columns) > 2


@needs("len(tokens)")
def has_more_tokens(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] < structure.take("len(tokens)", columns)


@needs("times")
def has_more_visits(columns: Columns, structure: StructureArena) -> Array:
    return columns["visit"] < structure.take("times", columns)


def next_step(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] + 1}


def next_visit(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"visit": columns["visit"] + 1}


def mark(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"mark": columns["mark"] * 0 + 1}


@needs("len(tokens)")
def n_tokens(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("len(tokens)", columns)


@needs("times")
def n_times(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("times", columns)


def to_position(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns[POSITION]}


def to_start(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] * 0}


def step_of(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"]


def unmark(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"mark": columns["mark"] * 0}


def remark(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"mark": columns[POSITION]}


def mark_of(columns: Columns, structure: StructureArena) -> Array:
    return columns["mark"]


def other_mark(columns: Columns, structure: StructureArena) -> Array:
    return 1 - columns["mark"]
