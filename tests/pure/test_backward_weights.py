"""What each `backward_weights` answers, worked by hand; `claims` holds every kind to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from kinds import floats, make, only, rows, slots

from amp_runtime.errors import InvariantError, NodeError
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.remedies.backward_weights import BackwardWeights

LIVE, STASHED, RECOMPUTE = BackwardWeights


@dataclass(frozen=True)
class NoOptions:
    pass


class Square(Parameterised):
    """y = (weight * x)^2: its backward reads what it kept, the input, and the weight twice."""

    kind = "square"
    Options = NoOptions

    @classmethod
    def infer(cls, options, inputs, dtype):
        return {"y": inputs["x"]}

    def __init__(self, context):
        super().__init__(context)
        self.terms = []

    def initial_parameters(self, generator):
        return {"weight": [3.0], "unused": [0.0]}

    def compute(self, payload):
        product = payload["x"] * self.parameters["weight"]
        return {"x": product * product}, {"x": payload["x"], "product": product}

    def backpropagate(self, saved, gradient, wants_input):
        to_product = 2 * saved["product"] * gradient["x"]
        self.terms.append((to_product * saved["x"]).sum())
        return {"x": to_product * self.parameters["weight"]}

    def add_gradients(self, into):
        into["weight"] += sum(self.terms)
        self.terms.clear()


class Forgetful(Square):
    def read_backward(self, wants_input):
        return ("unused",)


class LateReader(Square):
    def add_gradients(self, into):
        into["weight"] += self.parameters["weight"]


def square(which, cls=Square):
    return make(
        f"{__name__}:{cls.__name__}",
        floats(1),
        name="square",
        optimizer={"name": "sgd", "lr": 1.0},
        training={"backward_weights": which},
    )


def overwrite(node, value):
    """Let an update make `weight` what is given."""
    node.gradients["weight"][...] = node.parameters["weight"] - value
    node.updates.rows = 1
    node.step_for(1)
    assert node.parameters["weight"].tolist() == [value]


# Forward at weight 3 with x = 2; backward of dL/dy = 1 at weight 5. y = w^2 x^2:
# dy/dx = 2 w^2 x, dy/dw = 2 w x^2. Live mixes: the product 6 of then, the weight 5 of now.
WORKED = {
    LIVE: (2 * 6 * 5.0, 2 * 6 * 2.0),
    STASHED: (2 * 9 * 2.0, 2 * 3 * 4.0),
    RECOMPUTE: (2 * 25 * 2.0, 2 * 5 * 4.0),
}


@pytest.mark.parametrize("which", BackwardWeights)
def test_a_stale_row_is_differentiated_as_worked_by_hand(which):
    node = square(which)
    emitted = only(node.forward("x", rows(x=[[2.0]]), 0))
    assert emitted.payload["x"].tolist() == [[36.0]]
    overwrite(node, 5.0)
    answer = only(node.backward("y", slots(emitted), {"x": rows(x=[[1.0]]).payload["x"]}))
    node.accumulate()
    to_x, to_weight = WORKED[which]
    assert answer.gradient["x"].tolist() == [[to_x]]
    assert node.gradients["weight"].tolist() == [to_weight]
    assert node.staleness.counts.tolist() == [0, 1]
    node.assert_drained()


def test_recompute_keeps_the_inputs_and_nothing_that_the_forward_made():
    live, recompute = square(LIVE), square(RECOMPUTE)
    for node in (live, recompute):
        node.forward("x", rows(x=[[2.0]]), 0)
    assert set(live.stash._columns) - set(recompute.stash._columns) == {"x", "product"}
    assert set(recompute.stash._columns) - set(live.stash._columns) == {"x.x", "state"}


def test_a_null_answer_lets_go_of_its_version_too():
    node = square(STASHED)
    first = only(node.forward("x", rows(x=[[2.0]]), 0))
    overwrite(node, 5.0)
    assert node.weights.versions.held == 1
    node.backward("y", slots(first), None)
    node.accumulate()
    assert (node.weights.versions.rows, node.weights.versions.held) == (0, 0)
    assert node.weights.versions.peak_bytes == 2 * 8  # nothing says what is not read: both


def test_a_version_that_is_held_at_a_barrier_is_told():
    node = square(STASHED)
    node.weights.versions.refer(0, 2)
    overwrite(node, 5.0)
    with pytest.raises(InvariantError, match=r"node 'square'.*2 rows refer .* 1 copies are held"):
        node.assert_drained()


@pytest.mark.parametrize("cls", [Forgetful, LateReader])
def test_a_kind_that_reads_what_is_not_kept_is_told_where_the_weights_are_stashed(cls):
    for which in (LIVE, STASHED):
        node = square(which, cls)
        emitted = only(node.forward("x", rows(x=[[2.0]]), 0))

        def answer(node=node, emitted=emitted):
            node.backward("y", slots(emitted), {"x": rows(x=[[1.0]]).payload["x"]})
            node.accumulate()
            node.apply_left_over()

        if which is LIVE:
            answer()
            continue
        with pytest.raises(NodeError, match=r"node 'square'.*parameter 'weight' is read in the"):
            answer()
        assert sorted(node.parameters) == ["unused", "weight"]  # the live ones are back


@pytest.mark.parametrize("wants", [True, False])
def test_the_kinds_keep_of_past_weights_what_an_input_gradient_needs(wants):
    def held(kind, given, **options):
        node = make(
            kind,
            given,
            wants=["x"] if wants else [],
            training={"backward_weights": STASHED},
            **options,
        )
        return set(node.weights.versions.names)

    assert held("linear", floats(2), features=3) == ({"weight"} if wants else set())
    assert held("layer_norm", floats(2)) == ({"gain"} if wants else set())
    tokens = replace(floats(), arrays={"x": replace(floats().arrays["x"], dtype="int32")})
    assert held("embedding", tokens, entries=20_000, features=128) == set()
