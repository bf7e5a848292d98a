"""What PyTorch makes of any graph: the oracle of the random ones.

The rows of one example walk through the specification of the graph, one by one: a row's
state is a dict, its payload are tensors, and autograd keeps what the way back needs. No
batch, slot, stash or class of ours takes part; the masks of dropout do. A kind is one function:

    @kind
    def <kind>(walk, node, port, row) -> [(output port, row), ...]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from amp_runtime.data.dataset import Dataset
from amp_runtime.graph import POSITION, PerExample
from amp_runtime.graph.wiring import CONTROLLER_NODE, InputSpec, NodeSpec, Wiring
from amp_runtime.nodes.generators import node_key
from tests.peers.torch_models import peer_of
from workers.dropout import keep_mask

Parameters = Mapping[str, Mapping[str, np.ndarray]]
State = dict[str, int]


Delay = Callable[[str, int, int], int]
"""(node, steps so far, instance): see `train_steps`."""


@dataclass(frozen=True)
class Row:
    state: State
    payload: dict[str, torch.Tensor]

    @property
    def x(self) -> torch.Tensor:
        """The only array of the payload."""
        (x,) = self.payload.values()
        return x

    def become(self, x: torch.Tensor) -> Row:
        return Row(self.state, {"x": x})


@dataclass
class Walk:
    """One example on its way.

    Attributes:
        parameters: {node: {parameter: tensor}}.
        fields: {field: [elements, *shape]} of this example.
        seed: of the run, in training; in evaluation None.
        born: (instance, example within it).
        waiting: {(node, state): {port: row}} of joins.
        loss: the sum of all losses.
    """

    parameters: Mapping[str, Mapping[str, torch.Tensor]]
    fields: Mapping[str, np.ndarray]
    seed: int | None
    born: Sequence[int]
    waiting: dict[Any, dict[str, Row]] = field(default_factory=dict)
    loss: torch.Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))

    def through(self, wiring: Wiring) -> torch.Tensor:
        """Return the loss of the example once all its rows have come to an end."""
        target = {(e.source, e.source_port): (e.target, e.target_port) for e in wiring.edges}
        leaving = [(CONTROLLER_NODE, i.name, r) for i in wiring.inputs for r in self.injected(i)]
        while leaving:
            source, output, row = leaving.pop()
            number, port = target[source, output]
            node = wiring.nodes[number]
            leaving += [(number, *left) for left in KINDS[node.kind](self, node, port, row)]
        assert not self.waiting, "rows wait in a join for others that do not exist"
        return self.loss

    def injected(self, given: InputSpec) -> list[Row]:
        n_rows = 1 if given.each == PerExample else len(self.fields[given.each])
        return [
            Row(
                {column: self._column(what, n) for column, what in given.state.items()},
                {
                    array: torch.zeros(given.spec.arrays[array].shape, dtype=torch.float64)
                    if name is None
                    else torch.tensor(self.fields[name][n])
                    for array, name in given.payload.items()
                },
            )
            for n in range(n_rows)
        ]

    def _column(self, what: str | int, n: int) -> int:
        if what == POSITION:
            return n
        return what if isinstance(what, int) else int(self.fields[what][n])

    # ---- what kinds ask for

    def call(self, function: str, state: State) -> Any:
        """Return what a function on states says of one row."""
        module, name = function.split(":")
        columns = {column: np.array([value]) for column, value in state.items()}
        return getattr(import_module(module), name)(columns, self)

    def changed(self, node: NodeSpec, function: str, state: State) -> State:
        """Return the state that a row leaves with, in the columns of the node's output."""
        found = {name: int(v[0]) for name, v in self.call(function, state).items()}
        (spec,) = node.outputs.values()
        return {name: v for name, v in (state | found).items() if name in spec.schema.index}

    def number(self, given: int | str, state: State) -> int:
        """Return what an option says that is a number, or a function of one row."""
        return given if isinstance(given, int) else int(self.call(given, state)[0])

    def take(self, name: str, columns: Mapping[str, Any], index: Any = 0) -> np.ndarray:
        """Stand in for a structure arena: return element `index` of a field, [1, *shape]."""
        if name.startswith("len("):
            return np.array([len(self.fields[name[4:-1]])])
        return self.fields[name][np.broadcast_to(index, 1)]

    def joined(self, node: NodeSpec, port: str, row: Row) -> dict[str, Row]:
        """Return what has come with this state on all ports, in their order; {} until then."""
        key = (node.name, *sorted(row.state.items()))
        rows = self.waiting.setdefault(key, {})
        assert port not in rows, f"two rows with one state at {node.name!r}, port {port!r}"
        rows[port] = row
        if len(rows) < len(node.inputs):
            return {}
        del self.waiting[key]
        return {name: rows[name] for name in node.inputs}


def loss_and_gradients(
    wiring: Wiring, parameters: Parameters, examples: Dataset, seed: int | None = None
) -> tuple[float, Parameters]:
    """Return the mean loss per example, and its gradient for every parameter.

    Args:
        seed: of the run, for its first epoch of training; None: evaluation.
    """
    tensors = {
        node: {name: torch.tensor(a, requires_grad=True) for name, a in arrays.items()}
        for node, arrays in parameters.items()
    }
    loss = torch.zeros((), dtype=torch.float64)
    order = np.arange(len(examples)) if seed is None else examples.order(seed, 1)
    for at, number in enumerate(order):
        fields = {name: examples.gather(name, number[None]).values for name in examples.fields}
        walk = Walk(tensors, fields, seed, divmod(at, wiring.batch))
        loss = loss + walk.through(wiring) / len(examples)
    if loss.requires_grad:
        loss.backward()
    return loss.item(), {
        node: {name: _gradient(tensor) for name, tensor in some.items()}
        for node, some in tensors.items()
    }


def train_steps(
    wiring: Wiring,
    parameters: Parameters,
    examples: Dataset,
    steps: Sequence[Sequence[tuple[int, int, int]]],
    seed: int,
    delay: Delay = lambda node, version, instance: 0,
) -> Parameters:
    """Take a step on the mean loss of each of `steps`, each node by an optimiser of its own.

    Args:
        steps: of each example of a step its number in `examples`, its instance, and its
            number within that.
        delay: steps since the parameters that a node's gradient is taken at; before there
            were as many, at the first.
    Returns:
        The parameters.
    """
    tensors = {
        node: {name: torch.tensor(a, requires_grad=True) for name, a in arrays.items()}
        for node, arrays in parameters.items()
    }
    lazy = {node.name for node in wiring.nodes if node.options.get("sparse") == "lazy"}
    steppers = []
    for node in wiring.nodes:
        if node.parameterised:
            cls, options = peer_of(node.training["optimizer"], lazy=node.name in lazy)
            steppers.append(cls(tensors[node.name].values(), **options))
    past: list[dict[str, dict[str, torch.Tensor]]] = []
    for version, step in enumerate(steps):
        past.append(
            {
                node: {
                    name: tensor.detach().clone().requires_grad_() for name, tensor in some.items()
                }
                for node, some in tensors.items()
            }
        )
        for number, *born in step:
            chosen = np.array([number])
            fields = {name: examples.gather(name, chosen).values for name in examples.fields}
            used = {
                node: past[max(version - delay(node, version, born[0]), 0)][node]
                for node in tensors
            }
            (Walk(used, fields, seed, born).through(wiring) / len(step)).backward()
        for node, some in tensors.items():
            for name, tensor in some.items():
                found = [of[node][name].grad for of in past if of[node][name].grad is not None]
                tensor.grad = sum(found[1:], found[0]) if found else None
                for of in past:
                    of[node][name].grad = None
        for table in (tensors[node]["table"] for node in lazy):
            table.grad = table.grad.to_sparse(1)
        for stepper in steppers:
            stepper.step()
    return {
        node: {name: tensor.detach().numpy() for name, tensor in some.items()}
        for node, some in tensors.items()
    }


def _gradient(tensor: torch.Tensor) -> np.ndarray:
    return np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()


# -------------------------------------------------------------------------------- kinds

Leaving = Sequence[tuple[str, Row]]
Kind = Callable[[Walk, NodeSpec, str, Row], Leaving]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    KINDS[function.__name__] = function
    return function


@kind
def embedding(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", row.become(walk.parameters[node.name]["table"][row.x]))]


@kind
def linear(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    parameters = walk.parameters[node.name]
    y = row.x.reshape(-1) @ parameters["weight"]
    if node.options["bias"]:
        y = y + parameters["bias"]
    if node.options["activation"]:
        y = getattr(torch, node.options["activation"])(y)
    return [("y", row.become(y))]


@kind
def layer_norm(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    gain, bias = (walk.parameters[node.name][name] for name in ("gain", "bias"))
    y = functional.layer_norm(row.x, row.x.shape, gain, bias, node.options["eps"])
    return [("y", row.become(y))]


@kind
def relu(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", row.become(torch.relu(row.x)))]


@kind
def pad(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    ((name, x),) = row.payload.items()
    y = functional.pad(x, (0, node.options["features"] - len(x)))
    return [("y", Row(row.state, {name: y}))]


@kind
def tanh(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", row.become(torch.tanh(row.x)))]


@kind
def sigmoid(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", row.become(torch.sigmoid(row.x)))]


@kind
def softmax(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", row.become(torch.softmax(row.x, -1)))]


@kind
def dropout(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    """The masks are ours: of the seed, the name and the whole state."""
    if walk.seed is None:
        return [("y", row)]
    columns = node.inputs["x"].schema.names
    state = {**dict(zip(("instance", "example"), walk.born, strict=True)), **row.state}
    values = np.array([[state[column] for column in columns]], np.int32)
    rate = node.options["rate"]
    mask = keep_mask(node_key(walk.seed, node.name), values, row.x.numel(), rate)
    return [("y", row.become(row.x * torch.tensor(mask.reshape(row.x.shape)) / (1 - rate)))]


@kind
def join(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    payload = {}
    for name, part in walk.joined(node, port, row).items():
        payload |= {name: part.x} if len(part.payload) == 1 else part.payload
    return [("y", Row(row.state, payload))] if payload else []


@kind
def take(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", Row(row.state, {name: row.payload[name] for name in node.options["arrays"]}))]


@kind
def lstm(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    weight, bias = (walk.parameters[node.name][name] for name in ("weight", "bias"))
    x, h, c = (row.payload[name][None] for name in ("x", "h", "c"))
    of_x, of_h = weight.T.split([x.shape[1], h.shape[1]], dim=1)
    h, c = torch.lstm_cell(x, (h, c), of_x, of_h, bias, torch.zeros_like(bias))
    return [("y", Row(row.state, {"h": h[0], "c": c[0]}))]


def cell(
    walk: Walk, node: NodeSpec, inputs: list[torch.Tensor], memories: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return h and c of an LSTM cell: gates i, one f for each of `memories`, g, o."""
    weight, bias = (walk.parameters[node.name][name] for name in ("weight", "bias"))
    i, *f, g, o = (torch.cat(inputs) @ weight + bias).chunk(3 + len(memories))
    c = torch.sigmoid(i) * torch.tanh(g)
    for gate, memory in zip(f, memories, strict=True):
        c = c + torch.sigmoid(gate) * memory
    return {"h": torch.sigmoid(o) * torch.tanh(c), "c": c}


@kind
def tree_lstm_leaf(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", Row(row.state, cell(walk, node, [row.x], [])))]


@kind
def tree_lstm_branch(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    own = [row.payload["x"]] if "x" in row.payload else []
    inputs, memories = [*row.payload["h"], *own], list(row.payload["c"])
    return [("y", Row(row.state, cell(walk, node, inputs, memories)))]


@kind
def child_sum_lstm(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    x, h, c = (row.payload[name] for name in ("x", "h", "c"))
    weight, bias = (walk.parameters[node.name][name] for name in ("weight", "bias"))
    i, g, o = (torch.cat([x, h]) @ weight + bias).chunk(3)
    c = c + torch.sigmoid(i) * torch.tanh(g)
    return [("y", Row(row.state, {"h": torch.sigmoid(o) * torch.tanh(c), "c": c}))]


@kind
def forget(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    x, h, c = (row.payload[name] for name in ("x", "h", "c"))
    weight, bias = (walk.parameters[node.name][name] for name in ("weight", "bias"))
    gate = torch.sigmoid(torch.cat([x, h]) @ weight + bias)
    return [("y", Row(row.state, {"h": h, "c": gate * c}))]


@kind
def gru(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    weight, bias, bias_h = (walk.parameters[node.name][n] for n in ("weight", "bias", "bias_h"))
    x, h = (row.payload[name][None] for name in ("x", "h"))
    of_x, of_h = weight.T.split([x.shape[1], h.shape[1]], dim=1)
    by_h = torch.cat([torch.zeros(2 * len(bias_h), dtype=bias_h.dtype), bias_h])
    return [("y", Row(row.state, {"h": torch.gru_cell(x, h, of_x, of_h, bias, by_h)[0]}))]


@kind
def concat(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    parts = walk.joined(node, port, row)
    return [("y", row.become(torch.cat([p.x for p in parts.values()])))] if parts else []


@kind
def add(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    parts = walk.joined(node, port, row)
    x = [part.x for part in parts.values()]
    return [("y", row.become(torch.stack(x).sum(0)))] if parts else []


@kind
def multiply(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    parts = walk.joined(node, port, row)
    x = [part.x for part in parts.values()]
    return [("y", row.become(torch.stack(x).prod(0)))] if parts else []


@kind
def bcast(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [(output, row) for output in node.outputs]


@kind
def cond(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    (chosen,) = walk.call(node.options["choose"], row.state)
    return [(list(node.outputs)[int(chosen)], row)]


@kind
def phi(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", row)]


@kind
def isu(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return [("y", Row(walk.changed(node, node.options["update"], row.state), row.payload))]


@kind
def split(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    parts = torch.split(row.x, list(node.options["outputs"].values()))
    (name,) = row.payload
    return [(o, Row(row.state, {name: x})) for o, x in zip(node.outputs, parts, strict=True)]


def children(walk: Walk, node: NodeSpec, row: Row, count: int) -> list[State]:
    """Return the states of the rows that a fan-out makes of one."""
    numbered = [row.state | {POSITION: number} for number in range(count)]
    return [walk.changed(node, node.options["state"], state) for state in numbered]


@kind
def flatmap(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    count = walk.number(node.options["count"], row.state)
    return [("y", Row(state, row.payload)) for state in children(walk, node, row, count)]


@kind
def ungroup(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    count = len(row.x)
    if node.options["count"] is not None:
        count = walk.number(node.options["count"], row.state)
    states = children(walk, node, row, count)
    return [("y", Row(state, {"x": row.x[n]})) for n, state in enumerate(states)]


@kind
def group(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    options, state = node.options, row.state
    if port == "x":
        state = walk.changed(node, options["key"], row.state)
    key = (node.name, *sorted(state.items()))
    rows = walk.waiting.setdefault(key, {})
    place: Any = port
    if port == "x":
        by_position = options["position"] is not None
        place = (
            walk.number(options["position"], row.state) if by_position else [*row.state.values()]
        )
        place = f"x {place}"
    assert place not in rows, f"two rows for {place!r} of a group at {node.name!r}"
    rows[place] = row
    members = [rows[place].payload for place in sorted(rows) if place != "key"]
    expected = walk.number(options["count"], state)
    if len(members) < expected or (options["announced"] and "key" not in rows):
        return []
    del walk.waiting[key]
    passed = {leaves: rows["key"].payload[name] for name, leaves in options["passes"].items()}
    reduce, reduced = REDUCED[options["reduce"]], {}
    for name, array in node.outputs["y"].arrays.items():
        if name not in passed:
            of_all = [member[name] for member in members]
            none = torch.zeros(array.shape, dtype=torch.float64)
            reduced[name] = reduce(torch.stack(of_all)) if of_all else none
    return [("y", Row(state, {**reduced, **passed}))]


def first_maximum(x: torch.Tensor) -> torch.Tensor:
    """Return the maximum over the first axis; of equal ones the first has the gradient."""
    first = torch.from_numpy(x.detach().numpy().argmax(axis=0))
    return x.gather(0, first[None])[0]


REDUCED: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "stack": lambda x: x,
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "max": first_maximum,
}


@kind
def sink(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    return []


def target(walk: Walk, node: NodeSpec, row: Row, option: str) -> torch.Tensor:
    """Return what a loss compares a row with."""
    index = node.options["index"]
    at = 0 if index is None else row.state[index]
    return torch.tensor(walk.fields[node.options[option]][at])


@kind
def softmax_cross_entropy(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    walk.loss = walk.loss + functional.cross_entropy(row.x, target(walk, node, row, "label").long())
    return []


@kind
def squared_error(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    wanted = target(walk, node, row, "target").reshape(row.x.shape)
    walk.loss = walk.loss + functional.mse_loss(row.x, wanted, reduction="sum")
    return []


@kind
def sigmoid_cross_entropy(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    wanted = target(walk, node, row, "target").reshape(row.x.shape)
    walk.loss = walk.loss + functional.binary_cross_entropy_with_logits(
        row.x, wanted, reduction="sum"
    )
    return []


@kind
def softmax_over_rows(walk: Walk, node: NodeSpec, port: str, row: Row) -> Leaving:
    rows = walk.waiting.setdefault(node.name, {})
    number = row.state[node.options["index"]]
    assert str(number) not in rows, f"two rows of number {number} at {node.name!r}"
    rows[str(number)] = row
    if len(rows) == int(walk.take(node.options["count"], {})[0]):
        logits = torch.cat([rows[str(n)].x for n in range(len(rows))])
        label = torch.tensor(walk.fields[node.options["label"]][0]).long()
        walk.loss = walk.loss + functional.cross_entropy(logits, label)
        del walk.waiting[node.name]
    return []
