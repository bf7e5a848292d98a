"""The two models of trees as wholes: gradients, metrics, and trees of any shape and depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import graph_models
import numpy as np
import pytest
from kinds import differences

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.trees.tree_fields import tree_fields
from amp_runtime.errors import ShapeMismatchError
from amp_runtime.graph import Graph
from amp_runtime.models import build_model
from amp_runtime.nodes.updates import Schedule
from amp_runtime.reference import Reference
from workers.registry import Registry

N_WORDS, N_CLASSES = graph_models.N_TOKENS, graph_models.N_CLASSES
Parameters = dict[str, dict[str, np.ndarray]]


def graph_over(
    data: Dataset, dtype: str = "float64", update_every: int = 100, **given: Any
) -> Graph:
    fields = {name: field.spec for name, field in data.fields.items()}
    training = {"optimizer": {"name": "sgd", "lr": 1.0}, "update_every": update_every}
    return Graph(Registry(), fields=fields, dtype=dtype, training=training, **given)


MODELS: Mapping[str, Callable[[Graph], None]] = {
    "tree_lstm": lambda graph: build_model(
        graph,
        "tree_lstm",
        {"hidden": 2, "embedding": 2, "vocabulary": N_WORDS, "classes": N_CLASSES},
    ),
    "child_sum": lambda graph: build_model(
        graph,
        "child_sum",
        {"hidden": 2, "embedding": 2, "types": N_WORDS, "classes": N_CLASSES},
    ),
}
EXAMPLES: Mapping[str, Callable[..., Iterator[dict[str, Any]]]] = {
    "tree_lstm": graph_models.trees,
    "child_sum": graph_models.wide_trees,
}


def run(
    model: str,
    data: Dataset,
    *,
    dtype: str = "float64",
    parameters: Parameters | None = None,
    update_every: int = 100,
    **settings: Any,
) -> Reference:
    """Run one epoch, whose only update is that of left-overs if `update_every` is more."""
    graph = graph_over(data, dtype, update_every)
    MODELS[model](graph)
    made = Reference(
        graph.build(),
        Registry(),
        data,
        data.subset(np.arange(0)),
        ControllerSettings(**{"max_epochs": 1, "update_every": update_every, **settings}),
        parameters=parameters,
    )
    made.run()
    return made


def parameters_of(made: Reference) -> Parameters:
    return {
        node.name: {name: array.copy() for name, array in node.parameters.items()}
        for node in made.host.parameterised()
    }


# --------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("model", MODELS)
def test_gradients_through_the_whole_loop_equal_finite_differences(model):
    data = Dataset.from_examples(list(EXAMPLES[model]("train", 3, train=6))).astype("float64")
    generator = np.random.default_rng(1)
    began = parameters_of(run(model, data, max_epochs=0))
    began = {
        node: {name: generator.normal(0, 0.7, a.shape) for name, a in arrays.items()}
        for node, arrays in began.items()
    }

    def loss() -> float:
        return step().results[0].metrics["loss"]

    def step() -> Reference:
        return run(model, data, parameters=began, schedule=Schedule.SYNCHRONOUS)

    # sgd with lr 1: the one step of the epoch is the gradient of the mean loss.
    ended = parameters_of(step())
    for node, arrays in began.items():
        for name, array in arrays.items():
            gradient, at = array - ended[node][name], array.copy()
            for _ in range(2):  # along random directions: fewer runs than a component each
                direction, change = generator.normal(size=array.shape), np.zeros(1)

                def along(array=array, at=at, direction=direction, change=change) -> float:
                    array[...] = at + change[0] * direction
                    return loss()

                (expected,) = differences(along, change, eps=1e-5)
                array[...] = at
                assert abs(expected) > 1e-4, f"{node}.{name} has no gradient"
                assert (gradient * direction).sum() == pytest.approx(expected, rel=1e-6), name


# ----------------------------------------------------------------------- trees of any shape


def binary(parent: np.ndarray, **more: Any) -> dict[str, Any]:
    """Return an example for `tree_lstm`: words and labels go round."""
    tree = tree_fields(parent)
    leaf = np.flatnonzero(tree["n_children"] == 0)
    return {
        "token": leaf % N_WORDS,
        "leaf": leaf,
        "label": np.arange(len(parent)) % N_CLASSES,
        **{name: tree[name] for name in ("parent", "side", "is_root")},
        **more,
    }


def chain(n_leaves: int) -> np.ndarray:
    """Return the parents of a binary tree that is as deep as can be: 2 * n_leaves - 1 nodes.

    Leaves 0 and 1 have branch 2, which has branch 4 with leaf 3, and so on.
    """
    node = np.arange(2 * n_leaves - 1)
    parent = node + np.where(node % 2, 1, 2)
    parent[-1] = -1
    return parent


def balanced(n_leaves: int) -> np.ndarray:
    """Return the parents of a binary tree that is as flat as can be: 2 * n_leaves - 1 nodes."""
    heap = (np.arange(2 * n_leaves - 1) - 1) // 2  # node 0 is the root
    heap[0] = -1
    return heap


def wide(parent: np.ndarray) -> dict[str, Any]:
    """Return an example for `child_sum`: types go round."""
    return {"type": np.arange(len(parent)) % N_WORDS, "label": 1, **tree_fields(parent)}


N = 5001
"""Leaves of a binary tree of 10,001 nodes."""
SHAPES = {
    "chain, tree_lstm": ("tree_lstm", binary(chain(N))),
    "balanced, tree_lstm": ("tree_lstm", binary(balanced(N))),
    "balanced, child_sum": ("child_sum", wide(balanced(N))),
    "star, child_sum": ("child_sum", wide(np.r_[-1, np.zeros(9_999, np.int64)])),
}


@pytest.mark.timeout(600)  # a chain is gone through node by node: 10 s of an idle core
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_96_97_trees_of_10000_nodes_train_and_their_rows_are_kept_only_while_in_flight(shape):
    model, example = SHAPES[shape]
    n_trees = 1 if shape.startswith("chain") else 3
    data = Dataset.from_examples([example] * n_trees)
    made = run(model, data, dtype="float32", update_every=1, max_active_keys=1)
    assert made.results[0].metrics["loss"] > 0
    for node in made.host.parameterised():
        assert node.version == n_trees
        assert all(np.isfinite(array).all() for array in node.parameters.values())
    made.host.assert_invariants()
    # One row for each node or edge of the one tree in flight, however many trees came.
    n_nodes = len(example["parent"])
    peaks = [report.stash_peak for report in made.host.report().nodes.values()]
    assert n_nodes // 2 <= max(peaks) <= 2 * n_nodes


def test_row_95_a_tree_of_one_word_goes_through_the_leaf_alone():
    data = Dataset.from_examples([binary(np.array([-1]))] * 3)
    made = run("tree_lstm", data, update_every=3)
    versions = {node.name: node.version for node in made.host.parameterised()}
    assert versions == {"embedding": 1, "leaf": 1, "logits": 1, "branch": 0}
    assert made.results[0].examples == 3
    alone = run("child_sum", Dataset.from_examples([wide(np.array([-1]))] * 3), update_every=3)
    versions = {node.name: node.version for node in alone.host.parameterised()}
    assert versions == {"embedding": 1, "cell": 1, "logits": 1, "forget": 0}


def test_row_100_an_unknown_word_has_an_embedding_like_any_other():
    # Word 0 stands for all unknown ones: no other row of the table changes.
    one = binary(np.array([-1]), token=[0])
    made = run("tree_lstm", Dataset.from_examples([one]), max_epochs=0)
    before = parameters_of(made)["embedding"]["table"]
    after = parameters_of(run("tree_lstm", Dataset.from_examples([one])))["embedding"]["table"]
    assert (before != after).any(axis=1).tolist() == [True] + [False] * (N_WORDS - 1)


# ------------------------------------------------------------------- metrics and vectors


def roots(labels: list[int]) -> Dataset:
    """Return trees of two words whose nodes all have one label."""
    return Dataset.from_examples(
        [binary(np.array([2, 2, -1]), label=[label] * 3) for label in labels]
    )


@pytest.mark.parametrize(
    ("classes", "labels", "of_all", "of_root", "of_halves"),
    [
        # The model always answers with the highest class.
        (5, [4, 3, 2, 1, 4], 2 / 5, 2 / 5, 3 / 4),  # the neutral root counts in no half
        (2, [1, 0, 0], 1 / 3, 1 / 3, 1 / 3),
        (3, [2, 1, 1, 0], 1 / 4, 1 / 4, 1 / 2),
        (1, [0], 1, 1, None),  # one class has no halves
    ],
)
def test_accuracies_are_of_all_nodes_of_roots_and_of_halves(
    classes, labels, of_all, of_root, of_halves
):
    data = roots(labels)
    graph = graph_over(data)
    build_model(graph, "tree_lstm", {"hidden": 2, "vocabulary": N_WORDS, "classes": classes})
    made = Reference(
        graph.build(), Registry(), data, data, ControllerSettings(max_epochs=1, update_every=100)
    )
    for node in made.host.parameterised():
        if node.name == "logits":
            node.parameters["weight"][...] = 0
            node.parameters["bias"][...] = np.arange(classes)
    made.run()
    expected = {"accuracy": of_all, "accuracy_root": of_root}
    if of_halves is not None:
        expected["accuracy_binary"] = of_halves
    got = dict(made.results[0].metrics)
    del got["loss"]
    assert got == pytest.approx(expected)


def test_roots_are_told_from_other_nodes():
    data = Dataset.from_examples([binary(np.array([2, 2, -1]), label=[0, 0, 1])])
    graph = graph_over(data)
    build_model(graph, "tree_lstm", {"hidden": 2, "vocabulary": N_WORDS, "classes": 2})
    made = Reference(graph.build(), Registry(), data, data, ControllerSettings(max_epochs=1))
    for node in made.host.parameterised():
        if node.name == "logits":
            node.parameters["weight"][...], node.parameters["bias"][...] = 0, [0, 1]
    made.run()
    assert made.results[0].metrics["accuracy"] == pytest.approx(1 / 3)
    assert made.results[0].metrics["accuracy_root"] == 1


VECTORS = np.arange(N_WORDS * 3, dtype=np.float32).reshape(N_WORDS, 3)


def test_the_embedding_of_words_begins_with_pre_trained_vectors():
    graph = graph_over(roots([0]), vectors={"token": VECTORS})
    build_model(graph, "tree_lstm", {"vocabulary": N_WORDS, "classes": 2})
    assert graph.parameters["embedding"]["table"].tolist() == VECTORS.tolist()
    assert graph.build().nodes[0].outputs["y"].arrays["x"].shape == (3,)


def test_words_that_no_training_tree_holds_begin_as_zeros():
    graph = graph_over(roots([0]), entries={"token": N_WORDS}, unseen={"token": [0, 2]})
    build_model(graph, "tree_lstm", {"classes": 2})
    assert graph.build().nodes[0].options["zero"] == [0, 2]


def test_vectors_of_another_width_than_was_asked_for_are_refused():
    graph = graph_over(roots([0]), vectors={"token": VECTORS})
    with pytest.raises(ShapeMismatchError, match=r"'embedding' is 4, .* hold 3 numbers; leave"):
        build_model(graph, "tree_lstm", {"vocabulary": N_WORDS, "classes": 2, "embedding": 4})
