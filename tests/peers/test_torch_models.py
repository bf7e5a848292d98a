"""The oracle itself: against loops written out in numpy, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make peers)")

from amp_runtime.data import load_split
from tests.peers.torch_models import (
    LIST_REDUCTION_SHAPES,
    MLP,
    ListReductionRNN,
    loss_and_gradients,
    random_parameters,
    train_steps,
)

SMALL_MLP = {"linear-1": (5, 7), "linear-2": (7, 7), "linear-3": (7, 3)}


def cross_entropy(logits, label):
    return np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label]


def list_reduction_batches(n_batches, size=20):
    data = load_split("list_reduction", "train", 0, {"train": n_batches * size})
    for i in range(n_batches):
        rows = data.gather("tokens", np.arange(i * size, (i + 1) * size))
        labels = data.gather("label", np.arange(i * size, (i + 1) * size)).values
        yield np.split(rows.values, np.cumsum(rows.counts)[:-1]), labels


def test_rnn_loss_is_that_of_one_example_at_a_time():
    p = random_parameters(LIST_REDUCTION_SHAPES, seed=1)
    ((sequences, labels),) = list_reduction_batches(1)
    total = 0.0
    for tokens, label in zip(sequences, labels, strict=True):
        h = np.zeros(128)
        for token in tokens:
            x = np.concatenate([p["embedding"]["table"][token], h])
            h = np.maximum(x @ p["linear-1"]["weight"] + p["linear-1"]["bias"], 0)
        total += cross_entropy(h @ p["linear-2"]["weight"] + p["linear-2"]["bias"], label)
    loss, _ = loss_and_gradients(ListReductionRNN, p, (sequences, labels))
    assert loss == pytest.approx(total / len(labels), rel=1e-12)


def test_mlp_loss_is_the_layers_written_out():
    p = random_parameters(SMALL_MLP, seed=1)
    random = np.random.default_rng(0)
    x, labels = random.normal(size=(4, 5)), np.array([0, 1, 2, 0])
    y = x
    for i in (1, 2, 3):
        y = (y if i == 1 else np.maximum(y, 0)) @ p[f"linear-{i}"]["weight"]
        y = y + p[f"linear-{i}"]["bias"]
    expected = np.mean([cross_entropy(row, label) for row, label in zip(y, labels, strict=True)])
    loss, _ = loss_and_gradients(MLP, p, (x, labels))
    assert loss == pytest.approx(expected, rel=1e-12)


def test_one_step_of_sgd_goes_against_the_gradient_and_leaves_its_input_alone():
    p = random_parameters(SMALL_MLP, seed=1)
    before = {node: {name: a.copy() for name, a in arrays.items()} for node, arrays in p.items()}
    batch = (np.ones((4, 5)), np.array([0, 1, 2, 0]))
    _, gradients = loss_and_gradients(MLP, p, batch)
    after = train_steps(MLP, p, [batch], "sgd", {"lr": 0.1, "momentum": 0.9})
    for node, arrays in before.items():
        for name, array in arrays.items():
            assert np.array_equal(p[node][name], array)
            assert np.allclose(after[node][name], array - 0.1 * gradients[node][name], atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_lowers_the_loss_of_a_batch(dtype):
    p = random_parameters(LIST_REDUCTION_SHAPES, seed=1)
    (batch,) = list_reduction_batches(1)
    trained = train_steps(ListReductionRNN, p, [batch] * 30, "adam", {"lr": 0.001}, dtype)
    assert {a.dtype.name for arrays in trained.values() for a in arrays.values()} == {dtype}
    before, _ = loss_and_gradients(ListReductionRNN, p, batch)
    after, _ = loss_and_gradients(ListReductionRNN, trained, batch)
    assert after < before / 2
