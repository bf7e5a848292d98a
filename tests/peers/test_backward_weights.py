"""Every update of a delayed chain is PyTorch's gradient at the weights that were recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scripted import Delivery, ScriptedRun
from wirings import PerExample, examples, new_graph

pytest.importorskip("torch", reason="PyTorch is not installed (make peers)")

import torch
from torch.nn.functional import cross_entropy

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.nodes.updates import Schedule
from amp_runtime.remedies.backward_weights import BackwardWeights

pytestmark = pytest.mark.peers
LR, N_EXAMPLES, ROWS_PER_UPDATE = 0.5, 40, 3
NODES = {1: ("last",), 2: ("first", "last"), 3: ("first", "middle", "last")}
Weights = dict[str, torch.Tensor]


def chain(n_nodes: int, which: BackwardWeights) -> Wiring:
    """Return vector -> n_nodes - 1 times a linear with tanh -> one with sigmoid -> loss."""
    training = {
        "optimizer": {"name": "sgd", "lr": LR},
        "min_update_frequency": ROWS_PER_UPDATE,
        "backward_weights": which,
        "compensation": "none",
    }
    graph = new_graph(training=training)
    out: Any = graph.input("x", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    for node in NODES[n_nodes][:-1]:
        out = graph.add("linear", node, out, features=3, activation="tanh")
    out = graph.add("linear", "last", out, features=2, activation="sigmoid")
    graph.add("softmax_cross_entropy", "loss", out)
    return graph.build()


class Record:
    """What a run did: weights by node and version, and the versions that each row met.

    Attributes:
        forward, backward: {node: {instance: version}}; a row's gradient is of the update that
            ends the version of its backward.
    """

    def __init__(self, run: ScriptedRun, patch: pytest.MonkeyPatch) -> None:
        self.weights: dict[str, dict[int, Weights]] = defaultdict(dict)
        self.forward: dict[str, dict[int, int]] = defaultdict(dict)
        self.backward: dict[str, dict[int, int]] = defaultdict(dict)
        self.divisors: dict[str, list[float]] = defaultdict(list)
        self.versions_in_a_batch = 0
        self._nodes = [node for host in run.hosts.values() for node in host.parameterised()]
        real = Parameterised.differentiate

        def differentiate(node: Parameterised, kept: Any, gradient: Any, wants: bool) -> Any:
            for version, instance in kept["lineage"].tolist():
                self.forward[node.name][instance] = version
                self.backward[node.name][instance] = node.version
            met = len(np.unique(kept["lineage"][:, 0]))
            self.versions_in_a_batch = max(self.versions_in_a_batch, met)
            return real(node, kept, gradient, wants)

        real_step = Parameterised._step

        def step(node: Parameterised, divisor: float, **how: Any) -> None:
            self.divisors[node.name].append(divisor)
            real_step(node, divisor, **how)

        patch.setattr(Parameterised, "differentiate", differentiate)
        patch.setattr(Parameterised, "_step", step)
        run.after_event = self.look
        self.look()

    def look(self) -> None:
        for node in self._nodes:
            if node.version not in self.weights[node.name]:
                arrays = {n: torch.tensor(a) for n, a in node.parameters.items()}
                self.weights[node.name][node.version] = arrays

    def at(self, node: str, version: int) -> Weights:
        """Return the weights of a version, to be differentiated by."""
        return {n: w.clone().requires_grad_() for n, w in self.weights[node][version].items()}


def layer(node: str, x: torch.Tensor, weights: Weights) -> torch.Tensor:
    y = x @ weights["weight"] + weights["bias"]
    return torch.sigmoid(y) if node == "last" else torch.tanh(y)


def gradients(
    record: Record, instance: int, nodes: tuple[str, ...], x: torch.Tensor, label: torch.Tensor
) -> dict[BackwardWeights, dict[str, Weights]]:
    """Return what one row should add to each node's gradient, by setting."""
    then = {node: record.at(node, record.forward[node][instance]) for node in nodes}
    inputs, y = {}, x
    for node in nodes:
        inputs[node] = y
        y = layer(node, y, then[node])
    loss = cross_entropy(y[None], label[None])
    (delta,) = torch.autograd.grad(loss, y, retain_graph=True)
    loss.backward()
    stashed = {node: {n: w.grad for n, w in then[node].items()} for node in nodes}
    recomputed = {}
    for node in reversed(nodes):
        now = record.at(node, record.backward[node][instance])
        stale = inputs[node].detach().requires_grad_()
        found = torch.autograd.grad(layer(node, stale, now), [*now.values(), stale], delta)
        recomputed[node] = dict(zip(now, found[:-1], strict=True))
        delta = found[-1]
    return {BackwardWeights.STASHED: stashed, BackwardWeights.RECOMPUTE: recomputed}


def largest_differences(
    record: Record, nodes: tuple[str, ...], vectors: Any, labels: Any
) -> Mapping[BackwardWeights, float]:
    """Return how far the updates are from those of each setting, relative to the largest."""
    worst: dict[BackwardWeights, float] = defaultdict(float)
    rows = [
        gradients(record, i, nodes, torch.tensor(vectors[i]), torch.tensor(labels[i]).long())
        for i in range(N_EXAMPLES)
    ]
    for node in nodes:
        assert sorted(record.backward[node]) == list(range(N_EXAMPLES))
        for version in range(len(record.weights[node]) - 1):
            mine = [i for i, now in record.backward[node].items() if now == version]
            before, after = (record.weights[node][v] for v in (version, version + 1))
            for name in before:
                found = (before[name] - after[name]) / LR * record.divisors[node][version]
                for which in (BackwardWeights.STASHED, BackwardWeights.RECOMPUTE):
                    wanted = sum(rows[i][which][node][name] for i in mine)
                    off = (found - wanted).abs().max() / wanted.abs().max()
                    worst[which] = max(worst[which], off.item())
    return worst


@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("which", [BackwardWeights.STASHED, BackwardWeights.RECOMPUTE])
@pytest.mark.parametrize("n_nodes", NODES)
def test_each_update_of_a_delayed_chain_is_the_gradient_that_is_asked_for(
    n_nodes, which, delivery, monkeypatch
):
    wiring, train = chain(n_nodes, which), examples([1] * N_EXAMPLES, seed=4)
    given = ControllerSettings(
        schedule=Schedule.ASYNCHRONOUS, max_active_keys=9, seed=11, verify=True, max_epochs=1
    )
    peers = list(range(1, len(wiring.nodes) + 1))
    run = ScriptedRun.of(wiring, train, examples([1]), given, peers, seed=2, delivery=delivery)
    run.row_by_row = True
    record = Record(run, monkeypatch)
    run.run()
    order = train.order(given.seed, 1)
    vectors = train.gather("vector", order).values
    labels = train.gather("label", order).values
    off = largest_differences(record, NODES[n_nodes], vectors, labels)
    other = next(o for o in off if o is not which)
    assert off[which] < 1e-12
    assert off[other] > 1e-3  # the delay makes a difference
    if n_nodes > 1 and delivery is Delivery.ONE_PEER_STARVES:
        assert record.versions_in_a_batch > 1
    for host in run.hosts.values():
        host.assert_invariants()
        for node in host.parameterised():
            assert node.staleness.mean > 0
            report = host.report().nodes[node.name]
            if node.weights.versions is None:
                assert report.weight_copies_peak is None
                continue
            copies = report.weight_copies_peak
            needs = node.read_backward(node.name != NODES[n_nodes][0])
            assert (copies is not None and copies > 0) == bool(needs)
            assert copies is not None
            assert copies <= given.max_active_keys // ROWS_PER_UPDATE + 1
            held = node.weights.versions
            assert (held.rows, held.held) == (0, 0)
            one = sum(node.parameters[name].nbytes for name in needs)
            assert report.weight_copies_peak_bytes == copies * one
