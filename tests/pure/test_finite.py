"""Updates whose gradient is not finite are not applied, and a run with many is over."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import f64, floats, make, only, rows, slots, spec, structure
from wirings import PerExample, chain, examples, new_graph

from amp_runtime.control.recovery import Failure, Recovery, RecoverySettings
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.errors import DivergedError
from amp_runtime.nodes.finite import WINDOW, NotApplied, are_finite
from amp_runtime.nodes.updates import UpdatePolicy
from amp_runtime.reference import Reference
from amp_runtime.rows.message import Mode, Rows
from workers.linear import Linear
from workers.registry import Registry

NAN, INF = float("nan"), float("inf")


def linear(nan_limit=10, dtype="float64", **training):
    return make(
        "linear",
        spec(("x", (2,), dtype)),
        features=1,
        dtype=dtype,
        updates=UpdatePolicy(min_update_frequency=2, nan_limit=nan_limit),
        optimizer={"name": "adam", "lr": 0.1},
        training=training,
    )


def give(node, *gradients, instance=1, dtype="float64"):
    """Give one gradient row after another; return the answers."""
    found = []
    for gradient in gradients:
        given = rows(instance=[instance], x=[[2.0, 3.0]])
        given = Rows(given.columns, {"x": given.payload["x"].astype(dtype)}, 2)
        emitted = only(node.forward("x", given, Mode.TRAIN))
        found += node.backward("y", slots(emitted), {"x": f64([[gradient]]).astype(dtype)})
        node.accumulate()
    return found


def everything(node):
    arrays = [
        *node.parameters.values(),
        *(a for s in node.optimizer.state.values() for a in s.values()),
    ]
    return [array.copy() for array in arrays]


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("training", [{}, {"clip": {"norm": 1.0}}, {"clip": {"value": 1.0}}])
def test_rows_132_133_an_update_with_a_nan_or_an_inf_changes_nothing_and_is_counted(bad, training):
    node, twin = linear(**training), linear(**training)
    give(node, 1.0, 0.5)
    give(twin, 1.0, 0.5)
    before = everything(node)
    (whole, answer) = give(node, 1.0, bad, instance=7)
    assert same(everything(node), before)
    assert (node.version, node.not_applied.count) == (1, 1)
    assert node.not_applied.first == "update 2 of instance 7"
    # what goes on to other nodes is as it always was
    assert np.isfinite(whole.gradient["x"]).all()
    assert answer.gradient["x"].shape == (1, 2)
    # and nothing of it is left for the next
    give(node, 0.25, 0.5)
    give(twin, 0.25, 0.5)
    assert same(everything(node), everything(twin))
    assert node.version == 2


def test_row_133_a_sum_that_overflows_float32_is_not_applied():
    node = linear(dtype="float32")
    give(node, 1.0, 0.5, dtype="float32")
    before = everything(node)
    with np.errstate(over="ignore"):
        give(node, 1.5e38, 1.5e38, dtype="float32")
    assert same(everything(node), before)
    assert node.not_applied.count == 1
    # finite, but an optimiser squares it
    with np.errstate(over="ignore"):
        give(node, 1e30, 1e30, dtype="float32")
    assert same(everything(node), before)
    assert node.not_applied.count == 2


def test_row_132_the_rows_of_a_table_are_looked_at_too():
    node = make(
        "embedding",
        spec(("x", (), "int32")),
        entries=50,
        features=2,
        updates=UpdatePolicy(min_update_frequency=2),
    )
    before = node.parameters["table"].copy()
    for gradient in ([1.0, NAN], [1.0, 2.0]):
        emitted = only(node.forward("x", rows(x=[7]), Mode.TRAIN))
        node.backward("y", slots(emitted), {"x": f64([gradient])})
        node.accumulate()
    assert np.array_equal(node.parameters["table"], before)
    assert node.not_applied.first == "update 1 of instance 1"


def test_row_132_one_more_than_nan_limit_ends_the_run_and_says_what_to_do():
    node = linear(nan_limit=2)
    for instance in (3, 4):
        give(node, NAN, NAN, instance=instance)
    give(node, 1.0, 1.0)
    with pytest.raises(DivergedError) as caught:
        give(node, NAN, 1.0, instance=9)
    line = caught.value.line()
    assert line.startswith("AMP-E412: node 'linear-1'")
    assert "3 of the last 4 updates were not finite" in line
    assert "the first that of update 1 of instance 3, the last that of update 4 of" in line
    assert "training.optimizer.lr" in line
    assert "training.nan_limit" in line
    assert caught.value.exit_code == 70


def test_a_parameter_that_is_not_finite_itself_is_named():
    node = linear(nan_limit=0)
    node.parameters["weight"][0, 0] = NAN
    with pytest.raises(DivergedError, match="parameter 'weight' is not finite itself"):
        give(node, NAN, 1.0)


def test_what_lies_further_back_than_the_window_counts_no_more():
    noted = NotApplied(1, "here")
    noted.add(1, [], {})
    noted.add(1 + WINDOW, [np.array([3, 5], np.int32), np.array([4], np.int32)], {})
    assert (noted.count, noted.first) == (2, "update 1")
    with pytest.raises(DivergedError, match="update 150 of instances 4 to 6"):
        noted.add(150, [np.array([6, 4], np.int32)], {})


def test_what_was_not_applied_is_known_after_a_stop():
    node, other = linear(nan_limit=1), linear(nan_limit=1)
    give(node, NAN, 1.0)
    other.restore(node.save())
    assert (other.not_applied.count, other.not_applied.first) == (1, "update 1 of instance 1")
    with pytest.raises(DivergedError, match="2 of the last 2 updates"):
        give(other, NAN, 1.0)


@pytest.mark.parametrize(
    ("values", "finite"),
    [
        ([1.0, -2.0], True),
        ([], True),
        ([0.0, NAN], False),
        ([INF, -INF], False),
        ([1e19, 1.0], True),
        ([2e19, 1.0], False),
    ],
)
def test_a_gradient_is_finite_as_long_as_its_squares_can_be_summed(values, finite):
    assert are_finite([np.ones(3, np.float32), np.array(values, np.float32)]) is finite


class NanAtTwelve(Linear):
    """A gradient is NaN, once."""

    def backpropagate(self, saved, gradient, wants_input):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 12:
            gradient = {name: array * NAN for name, array in gradient.items()}
        return super().backpropagate(saved, gradient, wants_input)


def run(wiring, n_examples=40):
    settings = ControllerSettings(update_every=2, max_epochs=2)
    made = Reference(wiring, Registry(), examples([1] * n_examples), examples([1] * 3), settings)
    made.run()
    return made


def with_nan():
    graph = new_graph(training={"update_every": 2})
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    suspect = graph.add(f"{__name__}:NanAtTwelve", "suspect", vector, features=2)
    graph.add("softmax_cross_entropy", "loss", suspect)
    return graph.build()


def test_a_run_with_one_nan_goes_on_and_reports_it():
    ended = run(with_nan())
    report = ended.host.report().nodes["suspect"]
    assert report.not_applied == 1
    assert report.not_finite.startswith("update ")
    assert " of instance" in report.not_finite
    assert report.updates > 10
    assert np.isfinite(ended.host.parameterised()[0].parameters["weight"]).all()
    assert all(np.isfinite(result.metrics["loss"]) for result in ended.results)


def test_a_loss_that_is_not_finite_names_the_instances_that_came_so():
    arena = structure({i: {"y": [[0.0]]} for i in (1, 2, 3)})
    node = make("squared_error", floats(1), target="y", arena=arena)
    given = rows(instance=[1, 2, 3], x=[[1.0], [NAN], [2.0]])
    node.forward("x", given, Mode.TRAIN)
    assert node.not_finite == "the loss of instance 2 came not finite"
    assert np.isnan(node.take_metrics(Mode.TRAIN)["loss"].total)


def test_a_node_that_has_diverged_is_not_started_again():
    recovery = Recovery(RecoverySettings())
    error = DivergedError("training has diverged")
    with pytest.raises(DivergedError, match=r"training has diverged$"):
        recovery.next([Failure(error, 1, raised=True)], frozenset(), 0.0)


def test_a_chain_that_trains_well_applies_all_its_updates():
    ended = run(chain())
    assert all(node.not_applied == 0 for node in ended.host.report().nodes.values())
