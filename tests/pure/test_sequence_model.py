"""The recurrent model in all its variants: gradients, directions, lengths, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kinds import differences
from scripted import Delivery, ScriptedRun
from sequence_models import N_CLASSES, N_FEATURES, N_TOKENS, VARIANTS, sequences

from amp_runtime.control.predicted import Predicted
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Split
from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import AmpError, DataError, GraphError, ShapeMismatchError
from amp_runtime.graph import Graph
from amp_runtime.graph.wiring import Wiring
from amp_runtime.models import build_model
from amp_runtime.nodes.node import Evaluation
from amp_runtime.nodes.updates import Schedule
from amp_runtime.predicting import without_labels
from amp_runtime.reference import Reference
from workers.registry import Registry

Parameters = dict[str, dict[str, np.ndarray]]


def build(data: Dataset, options: dict[str, Any], dtype: str = "float64", batch: int = 1) -> Wiring:
    vocabularies = data.about.vocabularies
    graph = Graph(
        Registry(),
        fields={name: field.spec for name, field in data.fields.items()},
        entries={name: len(words) for name, words in vocabularies.items()},
        dtype=dtype,
        batch=batch,
        # sgd with lr 1: a step is the gradient of the mean loss.
        training={"optimizer": {"name": "sgd", "lr": 1.0}, "update_every": 100},
    )
    build_model(graph, "rnn", {"hidden": 2, **options})
    return graph.build()


def run(
    wiring: Wiring, data: Dataset, parameters: Parameters | None = None, **settings: Any
) -> Reference:
    """Run one epoch, whose only update is that at its end."""
    made = Reference(
        wiring,
        Registry(),
        data.astype(wiring.dtype),
        data.subset(np.arange(0)),
        ControllerSettings(**{"max_epochs": 1, "update_every": 100, **settings}),
        parameters=parameters,
    )
    made.run()
    return made


def parameters_of(made: Reference) -> Parameters:
    return {
        node.name: {name: array.copy() for name, array in node.parameters.items()}
        for node in made.host.parameterised()
    }


def of(steps: Any, label: Any = 0, **more: Any) -> Dataset:
    """Return one sequence of tokens."""
    made = Dataset.from_examples([{"tokens": steps, "label": label, **more}])
    words = {"tokens": ("a", "b", "c"), "label": ("no", "yes")}
    return Dataset(made.fields, len(made), about=About(words))


# --------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_through_the_whole_loop_equal_finite_differences(name):
    options, of_data = VARIANTS[name]
    data = sequences("train", 3, train=5, longest=4, **of_data)
    wiring = build(data, options)
    generator = np.random.default_rng(1)
    began = {
        node: {name: generator.normal(0, 0.7, a.shape) for name, a in arrays.items()}
        for node, arrays in parameters_of(run(wiring, data, max_epochs=0)).items()
    }

    def step() -> Reference:
        return run(wiring, data, began, schedule=Schedule.SYNCHRONOUS)

    ended = parameters_of(step())
    for node, arrays in began.items():
        for name, array in arrays.items():
            gradient, at = array - ended[node][name], array.copy()
            # Along a random direction: fewer runs than for every component.
            direction, change = generator.normal(size=array.shape), np.zeros(1)

            def along(array=array, at=at, direction=direction, change=change) -> float:
                array[...] = at + change[0] * direction
                return step().results[0].metrics["loss"]

            (expected,) = differences(along, change, eps=1e-5)
            array[...] = at
            assert abs(expected) > 1e-6, f"{node}.{name} has no gradient"
            assert (gradient * direction).sum() == pytest.approx(expected, rel=1e-5), name


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("name", ["relu-both-ways", "lstm-tagger", "gru-values-max"])
def test_whatever_arrives_first_an_update_is_the_same(name, delivery):
    options, of_data = VARIANTS[name]
    data = sequences("train", 3, train=9, **of_data).astype("float64")
    wiring = build(data, options, batch=2)
    settings = {"schedule": Schedule.SYNCHRONOUS, "max_active_keys": 3, "verify": True}
    expected = parameters_of(run(wiring, data, **settings))
    made = ScriptedRun.of(
        wiring, data, data.subset(np.arange(0)),
        ControllerSettings(max_epochs=1, update_every=100, **settings),
        [1 + n % 3 for n in range(len(wiring.nodes))], seed=7, delivery=delivery,
    )  # fmt: skip
    found = made.run().parameters
    for node, arrays in expected.items():
        for array, values in arrays.items():
            np.testing.assert_allclose(found[node][array], values, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------ directions and readouts


def counting(**options: Any) -> Callable[[list[int]], list[Any]]:
    """Return what a network predicts whose state is, in both directions, 10 * state + token."""
    given = of([0])
    wiring = build(given, {"hidden": 1, "embedding": 1, **options})
    parameters = parameters_of(run(wiring, given, max_epochs=0))
    for name, arrays in parameters.items():
        for array in arrays.values():
            array[...] = 0
        if name == "embedding":
            arrays["table"][...] = [[0], [1], [2]]
        elif name.startswith(("cell", "linear-1")):
            arrays["weight"][...] = [[1], [10]]
    logits = parameters.get("linear-2") or parameters["logits"]
    logits["weight"][:, 0] = 1
    if len(logits["weight"]) == 2:
        logits["weight"][1] = [0, 1]
        logits["weight"][0] = [1, 0]

    def logits_of(tokens: list[int]) -> list[Any]:
        found: list[Predicted] = []
        data = of(tokens)
        data = Dataset({"tokens": data.fields["tokens"]}, 1)
        Reference(
            without_labels(wiring, Registry()), Registry(), data, data,
            ControllerSettings(evaluate=Split.FILE, evaluation=Evaluation.PREDICTIONS),
            parameters=parameters, on_predicted=found.append,
        ).run()  # fmt: skip
        (piece,) = found
        p = piece.nodes["loss"].arrays["probabilities"]
        # What the first logit has more than the second.
        return np.round(np.log(p[:, 0] / p[:, 1]), 6).tolist()

    return logits_of


def test_the_last_state_has_read_the_steps_in_their_order():
    assert counting()([1, 2, 0]) == [120]


def test_two_directions_read_from_either_end():
    # Logits are the state forward, and the state backward.
    assert counting(bidirectional=True)([1, 2, 0]) == [120 - 21]


def test_a_tagger_sees_at_each_step_what_was_before_it_and_what_is_behind():
    every = counting(bidirectional=True, readout="every")
    assert every([1, 2, 0]) == [1 - 21, 12 - 2, 120 - 0]


def test_the_mean_and_the_maximum_are_over_all_steps():
    assert counting(readout="mean")([1, 0, 2]) == pytest.approx([(1 + 10 + 102) / 3], rel=1e-6)
    assert counting(readout="max", bidirectional=True)([1, 0, 2]) == [102 - 201]


def test_a_tagger_tells_a_label_for_each_step_of_each_sequence():
    options, of_data = VARIANTS["lstm-tagger"]
    data = sequences("train", 3, train=7, **of_data)
    wiring = build(data, options, batch=2)
    made = run(wiring, data, max_epochs=0)
    found: list[Predicted] = []
    bare = Dataset({"tokens": data.fields["tokens"]}, len(data))
    Reference(
        without_labels(wiring, Registry()), Registry(), bare, bare,
        ControllerSettings(evaluate=Split.FILE, evaluation=Evaluation.PREDICTIONS),
        parameters=parameters_of(made), on_predicted=found.append,
    ).run()  # fmt: skip
    counts = data.fields["tokens"].counts
    (piece,) = found
    told = piece.nodes["loss"]
    assert told.counts.tolist() == counts.tolist()
    assert told.state["step"].tolist() == [step for n in counts for step in range(n)]
    assert told.arrays["label"].shape == (counts.sum(),)
    # A loss is the sum over the steps of a sequence, an accuracy the share of all steps.
    measured = run(wiring, data, parameters_of(made), evaluate=Split.TRAIN).results[0].metrics
    label = data.fields["label"].values
    probability = told.arrays["probabilities"][np.arange(len(label)), label]
    assert measured["accuracy"] == pytest.approx((told.arrays["label"] == label).mean())
    assert measured["loss"] == pytest.approx(-np.log(probability).sum() / len(data))


# ------------------------------------------------------------------------------- lengths


@pytest.mark.slow
@pytest.mark.timeout(600)  # steps of one sequence go one after another
@pytest.mark.parametrize(
    ("options", "each"),
    [({"cell": "lstm"}, False), ({"cell": "gru", "bidirectional": True, "readout": "every"}, True)],
)
def test_a_sequence_of_10000_steps_trains_beside_one_of_a_single_step(options, each):
    long = np.arange(10_000) % N_TOKENS
    label = [long % N_CLASSES, [1]] if each else [2, 1]
    examples = [{"tokens": long, "label": label[0]}, {"tokens": [3], "label": label[1]}]
    data = Dataset.from_examples(examples)
    small = {"embedding": 2, "vocabulary": N_TOKENS, "classes": N_CLASSES, "step_bits": 14}
    wiring = build(data, {**small, **options}, dtype="float32")
    before = parameters_of(run(wiring, data, max_epochs=0))
    made = run(wiring, data, schedule=Schedule.SYNCHRONOUS)
    assert made.results[0].examples == 2
    made.host.assert_invariants()
    for node, arrays in parameters_of(made).items():
        for name, array in arrays.items():
            assert np.isfinite(array).all()
            assert (array != before[node][name]).any(), node


def test_a_sequence_without_a_step_is_refused_by_number():
    data = Dataset.from_examples(
        [{"tokens": [1], "label": 0}, {"tokens": [], "label": 1}], where="here"
    )
    wiring = build(data, {"vocabulary": 3, "classes": 2})
    said = "here: example 1 has 0 rows in field 'tokens', but input 'tokens' needs 1 at least"
    with pytest.raises(DataError, match=said):
        run(wiring, data)


def test_a_tag_too_few_is_named():
    data = of([1, 2, 0], label=[1, 0])
    wiring = build(data, {"readout": "every"})
    with pytest.raises(AmpError, match="element 2 of structure field 'label', which has 2"):
        run(wiring, data)


# ------------------------------------------------------------------------------- the graph


def names(data: Dataset, **options: Any) -> set[str]:
    return {node.name for node in build(data, options).nodes}


def test_the_default_is_the_network_of_the_paper():
    wanted = {"embedding", "loop", "joined", "linear-1", "step", "more", "linear-2", "loss"}
    assert names(of([0])) == wanted


def test_dropout_stands_below_each_layer_but_the_first_and_before_the_readout():
    found = names(of([0]), layers=3, dropout=0.3)
    assert {name for name in found if "dropout" in name} == {"dropout-2", "dropout-3", "dropout"}
    assert not any("dropout" in name for name in names(of([0]), layers=3))


def test_an_embedding_of_tokens_begins_with_pre_trained_vectors():
    data = of([0])
    graph = Graph(
        Registry(),
        fields={name: field.spec for name, field in data.fields.items()},
        entries={"tokens": 3, "label": 2},
        vectors={"tokens": np.arange(6.0).reshape(3, 2)},
        training={"optimizer": {"name": "sgd", "lr": 1.0}},
    )
    build_model(graph, "rnn", {"cell": "gru"})
    assert graph.parameters["embedding"]["table"].tolist() == [[0, 1], [2, 3], [4, 5]]


VALUES = Dataset.from_examples([{"values": np.zeros((2, N_FEATURES)), "label": 0}])


@pytest.mark.parametrize(
    ("data", "options", "error", "said"),
    [
        (Dataset.from_examples([{"x": 1, "label": 0}]), {}, GraphError, "neither field 'tokens'"),
        (of([0], values=[[0.5]]), {}, GraphError, "both fields 'tokens' and 'values'"),
        (
            Dataset.from_examples([{"values": [0.5, 1.5], "label": 0}]),
            {},
            ShapeMismatchError,
            r"field 'values' is float64\[rows\], not floats \[rows, features\]; .*\[0.1\]",
        ),
        (
            Dataset.from_examples([{"tokens": [0.5, 1.5], "label": 0}]),
            {},
            ShapeMismatchError,
            r"field 'tokens' is float64\[rows\], not int32\[rows\]",
        ),
        (VALUES, {"embedding": 3}, GraphError, "'embedding' is of tokens, but the steps are vec"),
        (VALUES, {"vocabulary": 3}, GraphError, "'vocabulary' is of tokens"),
        (VALUES, {}, GraphError, "does not say how many values field 'label'"),
    ],
)
def test_data_that_do_not_fit_are_refused(data, options, error, said):
    with pytest.raises(error, match=said):
        build(data, options)
