"""Recurrent networks over sequences of tokens or of vectors: a class for each, or for each step.

The default, of one layer: the last state is classified.

tokens -> embedding ----------------+
                                    v
start -> loop (phi) ---------> joined (concat) -> linear-1 -> step (isu) -> more (cond)
          ^                                                                  |      |
          +--------------------------- yes ----------------------------------+      no
                                                                                    v
                                                                    linear-2 -> loss

A row's state is the step of its sequence. A second direction walks the same rows from the last
step to the first: it begins with a step that is their number, and steps back before each cell.

start-back -> loop-back -> step-back (isu) -> joined-back -> cell-back -> more-back (cond)
                 ^                                                          |      no
                 +--------------------------- yes --------------------------+

What the directions make of one step meets by its state (concat), and so a layer gives the next
one rows of the same states as it was given; each goes on as soon as a step is there.
"""

from __future__ import annotations

from typing import Annotated, Literal

from amp_runtime.errors import GraphError, ShapeMismatchError
from amp_runtime.graph import POSITION, Graph, NodeHandle, OutPort, PerExample, zeros
from amp_runtime.limits import Ge, Gt, Le, Lt
from amp_runtime.models.embedded import embedded
from amp_runtime.names import needs
from amp_runtime.rows.spec import Array, Columns
from amp_runtime.rows.structure import StructureArena

Positive = Annotated[int, Gt(0)]

TOKENS, VALUES = "tokens", "values"
PLAIN = ("relu", "tanh")
# A function on states declares the field that it reads, so each field has its own.
_HAS_MORE = {TOKENS: "has_more", VALUES: "has_more_values"}
_N_STEPS = {TOKENS: "n_tokens", VALUES: "n_values"}


def build(
    graph: Graph,
    *,
    cell: Literal["relu", "tanh", "lstm", "gru"] = "relu",
    hidden: Positive = 128,
    layers: Positive = 1,
    bidirectional: bool = False,
    readout: Literal["last", "mean", "max", "every"] = "last",
    embedding: Positive | None = None,
    vocabulary: Positive | None = None,
    classes: Positive | None = None,
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0,
    step_bits: Annotated[int, Ge(1), Le(31)] = 12,
) -> None:
    """Build the network over fields `tokens` (int32) or `values` (vectors of floats).

    Args:
        graph: over `tokens` or `values`, an element a step, one at least; and `label`, one a
            sequence, or one a step with readout `every`.
        cell: `relu` and `tanh` are the plain network, h = relu(W [x, h] + b).
        hidden: width of the state, of each direction.
        layers: how many lie one above the other, each over the states of the one below.
        bidirectional: whether each layer goes over the steps from the last to the first too;
            the states of both directions lie side by side.
        readout: what is classified: the `last` state of the top layer (of each direction),
            the `mean` or `max` of the states of all steps, feature by feature, or `every` one.
        embedding: width of a token's embedding; none: that of pre-trained vectors, with which
            it then begins, or 128 without such.
        vocabulary: tokens are 0 to vocabulary - 1; none: as the source says.
        classes: labels are 0 to classes - 1; none: as the source says.
        dropout: share of the features that each layer above the first, and the readout, do not
            see in training.
        step_bits: sequences hold up to 2**step_bits - 1 steps.
    Raises:
        GraphError: the data have neither field, or both; `embedding` or `vocabulary` of vectors.
    Source: AMPNet, arXiv:1705.09786, list reduction; two directions: Schuster, Paliwal, IEEE
        Transactions on Signal Processing 45(11), 1997.
    """
    field = _field_of_steps(graph, embedding, vocabulary)
    graph.state(step=step_bits)
    given = graph.input(
        field, each=field, state={"step": POSITION}, payload={"x": field}, at_least=1
    )
    steps: OutPort | NodeHandle = given
    if field == TOKENS:
        steps = embedded(graph, given, field, vocabulary, embedding)
    # What the paper's network calls its two linears: parameters are drawn by name.
    is_simple = cell in PLAIN and layers == 1 and not bidirectional
    cell_name, logits_name = ("linear-1", "linear-2") if is_simple else ("cell", "logits")
    walks = _Walks(graph, field, cell, cell_name, hidden)

    for number in range(1, layers + 1):
        suffix = f"-{number}" if layers > 1 else ""
        if dropout and number > 1:
            steps = graph.add("dropout", f"dropout{suffix}", steps, rate=dropout)
        ends = number == layers and readout == "last"
        steps = walks.layer(steps, suffix, bidirectional=bidirectional, ends=ends)
    if readout in ("mean", "max"):
        steps = graph.add(
            "group",
            "pooled",
            steps,
            reduce=readout,
            key=f"{__name__}:whole_sequence",
            count=f"{__name__}:{_N_STEPS[field]}",
            columns={},
        )
    if dropout:
        steps = graph.add("dropout", "dropout", steps, rate=dropout)
    features = graph.entries("label") if classes is None else classes
    logits = graph.add("linear", logits_name, steps, features=features)
    index = "step" if readout == "every" else None
    graph.add("softmax_cross_entropy", "loss", logits, label="label", index=index)


def _field_of_steps(graph: Graph, embedding: int | None, vocabulary: int | None) -> str:
    """Return which field holds the steps of a sequence.

    Raises:
        GraphError, ShapeMismatchError: as `build`.
    """
    found = [name for name in (TOKENS, VALUES) if name in graph.fields]
    if len(found) != 1:
        raise GraphError(
            f"the data have both fields {TOKENS!r} and {VALUES!r}"
            if found
            else f"the data have neither field {TOKENS!r} nor {VALUES!r}",
            fix="a sequence is of whole numbers, `tokens`, or of vectors of floats, `values`",
        )
    (field,) = found
    spec = graph.fields[field]
    is_int = spec.dtype == "int32"
    if (len(spec.shape), is_int) != ((0, True) if field == TOKENS else (1, False)):
        wanted = "int32[rows]" if field == TOKENS else "floats [rows, features]"
        raise ShapeMismatchError(
            f"field {field!r} is {spec}, not {wanted}",
            fix="a step is one whole number in `tokens`, or a list of floats in `values`: [0.1]",
        )
    for name, option in (("embedding", embedding), ("vocabulary", vocabulary)):
        if field == VALUES and option is not None:
            raise GraphError(
                f"option {name!r} is of tokens, but the steps are vectors",
                fix=f"leave model.{name} out",
            )
    return field


class _Walks:
    """Adds cells that go over the steps of a sequence, in either direction.

    Args:
        field: what holds the steps.
        name: of the node of the cell; a suffix tells layers and directions apart.
    """

    def __init__(self, graph: Graph, field: str, cell: str, name: str, hidden: int) -> None:
        self._graph = graph
        self._field = field
        self._cell = cell
        self._name = name
        self._hidden = hidden

    def layer(
        self, steps: OutPort | NodeHandle, suffix: str, *, bidirectional: bool, ends: bool
    ) -> OutPort | NodeHandle:
        """Add a layer over `steps`; return its states.

        Args:
            ends: whether only the last state of each direction is wanted; else those of all
                steps leave, each with the state of its step.
        """
        add, sides = self._graph.add, {"forward": suffix}
        if bidirectional:
            sides["backward"] = f"{suffix}-back"
        made = []
        for side, own in sides.items():
            walk = self._forward if side == "forward" else self._backward
            every, last = walk(steps, own)
            if not ends:
                add("sink", f"done{own}", last)
            elif len(sides) > 1 and side == "forward":
                # It leaves behind the last step, the other before the first: to meet there.
                last = add("isu", f"met{own}", last, update=f"{__name__}:first_step")["y"]
            made.append(self._states(last if ends else every, own))
        if len(made) == 1:
            return made[0]
        return add("concat", f"both{suffix}", *made, inputs=tuple(sides))

    def _forward(self, steps: OutPort | NodeHandle, suffix: str) -> tuple[OutPort, OutPort]:
        """Add what goes from step 0 on; return the states of all steps, and the last."""
        graph = self._graph
        loop = self._loop(suffix, 0)
        cell = self._step(steps, loop, suffix)
        stepped = graph.add("isu", f"step{suffix}", cell, update=f"{__name__}:next_step")
        choose = f"{__name__}:{_HAS_MORE[self._field]}"
        more = graph.add("cond", f"more{suffix}", stepped, choose=choose)
        graph.connect(more["yes"], loop.port("again"))
        return cell["y"], more["no"]

    def _backward(self, steps: OutPort | NodeHandle, suffix: str) -> tuple[OutPort, OutPort]:
        """Add what goes from the last step to step 0; return as `_forward` does."""
        graph = self._graph
        loop = self._loop(suffix, f"len({self._field})")
        stepped = graph.add("isu", f"step{suffix}", loop, update=f"{__name__}:previous_step")
        cell = self._step(steps, stepped, suffix)
        more = graph.add("cond", f"more{suffix}", cell, choose=f"{__name__}:has_previous")
        graph.connect(more["yes"], loop.port("again"))
        return cell["y"], more["no"]

    def _loop(self, suffix: str, first: int | str) -> NodeHandle:
        """Add the phi that merges a state of zeros, at step `first`, with those that come again."""
        arrays = {"lstm": ("h", "c"), "gru": ("h",)}.get(self._cell, ("x",))
        start = self._graph.input(
            f"start{suffix}",
            each=PerExample,
            state={"step": first},
            payload=dict.fromkeys(arrays, zeros((self._hidden,))),
        )
        return self._graph.add("phi", f"loop{suffix}", start, inputs=("start", "again"))

    def _step(self, steps: OutPort | NodeHandle, before: NodeHandle, suffix: str) -> NodeHandle:
        """Add the cell, and what brings a step and the state before it together."""
        add, joined, name = self._graph.add, f"joined{suffix}", f"{self._name}{suffix}"
        if self._cell in PLAIN:
            both = add("concat", joined, steps, before, inputs=("token", "hidden"))
            return add("linear", name, both, features=self._hidden, activation=self._cell)
        # The port of a single array names it; {h, c} keep their names.
        port = "h" if self._cell == "gru" else "state"
        return add(self._cell, name, add("join", joined, steps, before, inputs=("x", port)))

    def _states(self, source: OutPort, suffix: str) -> OutPort:
        """Return the output by which the h of a cell leaves."""
        if self._cell != "lstm":
            return source
        return self._graph.add("take", f"hidden{suffix}", source, arrays=("h",))["y"]


def next_step(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] + 1}


def previous_step(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] - 1}


def first_step(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": 0 * columns["step"]}


def has_previous(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] > 0


def whole_sequence(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {}


@needs("len(tokens)")
def has_more(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] < structure.take("len(tokens)", columns)


@needs("len(values)")
def has_more_values(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] < structure.take("len(values)", columns)


@needs("len(tokens)")
def n_tokens(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("len(tokens)", columns)


@needs("len(values)")
def n_values(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("len(values)", columns)
