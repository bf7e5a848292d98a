"""Predictions: by rows from the nodes, by examples and in order to whoever writes them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import f64, floats, make, only, rows, spec, structure
from scripted import Delivery, ScriptedRun
from wirings import POSITION, chain, examples, new_graph, recurrent, tokens_chain

from amp_runtime.control.predicted import NodePredictions, Predicted
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Split, StageResult
from amp_runtime.data.about import Unit
from amp_runtime.errors import LifecycleError, NodeError, OutputError, WireError
from amp_runtime.graph.ends import prediction_forms, without_labels
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import PREDICTION_BYTES, NodeHost
from amp_runtime.nodes.end import PredictionForm
from amp_runtime.nodes.loss import Loss
from amp_runtime.nodes.node import Evaluation
from amp_runtime.output.predictions import PredictionWriter, ValidationPredictions, plain_values
from amp_runtime.predicting import example_form
from amp_runtime.reference import Reference
from amp_runtime.rows.message import Mode, Rows
from amp_runtime.rows.spec import ArraySpec
from amp_runtime.wire.protocol import Barrier, Predictions
from workers.registry import Registry

TRAIN = examples([1, 4, 2, 7, 3, 3, 5])
GIVEN = examples([2, 3, 1, 6, 2, 4, 1, 5], seed=1)
SETTINGS = ControllerSettings(update_every=3, max_epochs=3, seed=5)
PREDICTING = replace(SETTINGS, evaluate=Split.FILE, evaluation=Evaluation.PREDICTIONS)


def trained(wiring: Any) -> Any:
    return Reference(wiring, Registry(), TRAIN, TRAIN, SETTINGS).run().parameters


def unlabelled(dataset: Any, *labels: str) -> Any:
    fields = {n: f for n, f in dataset.fields.items() if n not in (labels or ("label",))}
    return replace(dataset, fields=fields)


def predicted(wiring: Any, parameters: Any, given: Any = GIVEN, **options: Any) -> list[Predicted]:
    """Return the pieces of predictions from examples without labels."""
    found: list[Predicted] = []
    data = unlabelled(given)
    made = Reference(
        without_labels(wiring, Registry()), Registry(), data, data,
        replace(PREDICTING, **options), parameters=parameters, on_predicted=found.append,
    )  # fmt: skip
    made.run()
    return found


def joined(pieces: Sequence[Predicted], node: str = "loss") -> NodePredictions:
    ends = np.cumsum([p.n_examples for p in pieces]).tolist()
    assert [p.first for p in pieces] == [0, *ends[:-1]]  # without a gap
    all_of = [p.nodes[node] for p in pieces]
    return NodePredictions(
        np.concatenate([p.counts for p in all_of]),
        {n: np.concatenate([p.state[n] for p in all_of]) for n in all_of[0].state},
        {n: np.concatenate([p.arrays[n] for p in all_of]) for n in all_of[0].arrays},
    )


def softmax(logits: Any) -> Any:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


# ------------------------------------------------------------------------- through a graph


def test_probabilities_are_those_of_the_parameters_and_need_no_labels():
    parameters = trained(chain())
    found = joined(predicted(chain(), parameters))
    weight, bias = (parameters["linear"][name] for name in ("weight", "bias"))
    logits = GIVEN.field("vector").values @ weight + bias
    np.testing.assert_allclose(found.arrays["probabilities"], softmax(logits), rtol=1e-14)
    assert found.arrays["label"].tolist() == logits.argmax(axis=1).tolist()
    assert found.counts.tolist() == [1] * len(GIVEN)


@pytest.mark.parametrize("delivery", list(Delivery))
def test_whatever_arrives_first_predictions_are_in_the_order_of_examples(delivery):
    """Many in flight, several workers: each example's own rows, in the order of its steps."""
    for model in (recurrent, tokens_chain):
        wiring = without_labels(model(batch=3), Registry())
        parameters = trained(model())
        expected = joined(predicted(model(), parameters, max_active_keys=1))
        data = unlabelled(GIVEN)
        for seed in range(4):
            made = ScriptedRun.of(
                wiring, data, data, replace(PREDICTING, max_active_keys=8),
                [1 + i % 3 for i in range(len(wiring.nodes))],
                seed=seed, delivery=delivery, parameters=parameters,
            )  # fmt: skip
            made.run()
            found = joined(made.predicted)
            assert found.counts.tolist() == expected.counts.tolist()
            assert found.state["step"].tolist() == expected.state["step"].tolist()
            for name, array in expected.arrays.items():
                assert (found.arrays[name] == array).all()  # to the last bit


def test_rows_of_an_example_come_by_their_state():
    found = joined(predicted(tokens_chain(), trained(tokens_chain())))
    assert found.counts.tolist() == [2, 3, 1, 6, 2, 4, 1, 5]
    assert found.state["step"].tolist() == [i for n in found.counts for i in range(n)]


def test_what_waits_to_be_complete_is_bounded_and_handed_on_in_pieces():
    parameters = trained(tokens_chain())
    whole = joined(predicted(tokens_chain(), parameters))
    pieces = predicted(tokens_chain(), parameters, max_active_keys=2, most_prediction_bytes=100)
    assert len(pieces) == 1  # nodes keep predictions that are small: the controller knows of none
    many = examples([200] * 60, seed=2)
    few = predicted(tokens_chain(), parameters, many, most_prediction_bytes=1 << 30)
    pieces = predicted(
        tokens_chain(), parameters, many, max_active_keys=2, most_prediction_bytes=PREDICTION_BYTES
    )
    assert len(few) == 1
    assert len(pieces) > 1
    for name, array in joined(few).arrays.items():
        assert (joined(pieces).arrays[name] == array).all()
    assert whole.counts.tolist() == GIVEN.field("tokens").counts.tolist()


def test_a_run_may_keep_the_predictions_of_its_own_validation():
    found: list[Predicted] = []
    made = Reference(
        chain(), Registry(), TRAIN, GIVEN, replace(SETTINGS, evaluation=Evaluation.BOTH),
        on_predicted=found.append,
    )  # fmt: skip
    parameters = made.run().parameters
    assert [p.n_examples for p in found] == [len(GIVEN)] * SETTINGS.max_epochs
    assert made.results[-1].metrics.keys() == {"loss", "accuracy"}
    again = predicted(chain(), parameters)
    for name, array in joined(again).arrays.items():
        assert (joined(found[-1:]).arrays[name] == array).all()


def test_evaluating_predicts_nothing_and_predicting_measures_nothing():
    found: list[Predicted] = []
    parameters = trained(chain())
    for evaluation in Evaluation:
        settings = replace(PREDICTING, evaluation=evaluation)
        made = Reference(
            chain(), Registry(), GIVEN, GIVEN, settings,
            parameters=parameters, on_predicted=found.append,
        )  # fmt: skip
        made.run()
        assert bool(found) == evaluation.predicts
        assert bool(made.results[0].metrics) == evaluation.measures
        found.clear()


def test_an_example_none_of_whose_rows_ends_has_no_predictions():
    parameters = trained(tokens_chain())
    data = examples([2, 0, 1], seed=3)
    found = joined(predicted(tokens_chain(batch=3), parameters, data))
    assert found.counts.tolist() == [2, 0, 1]


# ---------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("kind", "options", "widths"),
    [
        ("linear", {"features": 10}, {"x": 128}),
        ("linear", {"features": 1}, {"x": 300}),
        ("gru", {}, {"x": 64, "h": 128}),
        ("lstm", {}, {"x": 64, "h": 128, "c": 128}),
        ("forget", {}, {"x": 64, "h": 128, "c": 128}),
    ],
)
def test_in_evaluation_a_row_does_not_depend_on_those_beside_it(kind, options, widths, dtype):
    node = make(kind, spec(*((n, (w,), dtype) for n, w in widths.items())), dtype=dtype, **options)
    generator = np.random.default_rng(0)
    given = {n: generator.normal(size=(300, w)).astype(dtype) for n, w in widths.items()}

    def outputs(chosen):
        columns = np.zeros((len(chosen), 4), np.int32)
        payload = {name: array[chosen] for name, array in given.items()}
        return only(node.forward("x", Rows(columns, payload, 2), Mode.EVALUATE)).payload

    whole = outputs(np.arange(300))
    for n in (1, 2, 15, 16, 17, 100):
        chosen = generator.permutation(300)[:n]
        for name, array in outputs(chosen).items():
            assert (array == whole[name][chosen]).all(), (name, n)


def test_probabilities_of_a_class_are_those_worked_by_hand():
    node = make("softmax_cross_entropy", floats(3), name="loss", evaluation=Evaluation.PREDICTIONS)
    node.forward("x", rows([1, 2], x=np.log([[1.0, 2.0, 1.0], [8.0, 1.0, 1.0]])), Mode.EVALUATE)
    state, arrays = node.predicted.take()
    assert state[:, 0].tolist() == [1, 2]
    assert arrays["label"].tolist() == [1, 0]
    np.testing.assert_allclose(arrays["probabilities"], [[0.25, 0.5, 0.25], [0.8, 0.1, 0.1]])
    assert node.predicted.take() is None


def test_probabilities_of_the_rows_of_an_example_are_those_worked_by_hand():
    arena = structure({1: {"n": [2]}, 2: {"n": [3]}})
    node = make(
        "softmax_over_rows", floats(1), name="loss", arena=arena, count="n", index="step",
        evaluation=Evaluation.PREDICTIONS,
    )  # fmt: skip
    node.forward("x", rows([2, 1, 2], [2, 1, 0], x=np.log([[5.0], [1.0], [4.0]])), Mode.EVALUATE)
    assert node.predicted.take() is None
    node.forward("x", rows([1, 2], [0, 1], first_slot=3, x=np.log([[3.0], [1.0]])), Mode.EVALUATE)
    state, arrays = node.predicted.take()
    by_row = dict(zip(map(tuple, state.tolist()), arrays["probability"], strict=True))
    assert by_row == pytest.approx(
        {(1, 0): 0.75, (1, 1): 0.25, (2, 0): 0.4, (2, 1): 0.1, (2, 2): 0.5}
    )
    assert dict(zip(state[:, 0].tolist(), arrays["label"].tolist(), strict=True)) == {1: 0, 2: 2}


def test_predictions_of_targets_are_what_stands_in_their_place():
    squared = make("squared_error", floats(2), name="loss", target="wanted")
    assert squared.predictions(rows(1, x=[[3.0, -1.0]]))["wanted"].tolist() == [[3, -1]]
    sigmoid = make("sigmoid_cross_entropy", floats(2), name="loss", target="wanted")
    found = sigmoid.predictions(rows(1, x=[[np.log(3), -np.log(3)]]))
    assert found["wanted"].tolist() == [[1, 0]]
    np.testing.assert_allclose(found["probabilities"], [[0.75, 0.25]])


def test_a_sink_predicts_where_it_is_asked_to():
    for asked in (False, True):
        graph = new_graph()
        vector = graph.input("v", each="vector", state={"step": POSITION}, payload={"x": "vector"})
        graph.add("softmax_cross_entropy", "loss", graph.add("linear", "l", vector, features=2))
        graph.add("sink", "end", vector, predict=asked)
        wiring = graph.build()
        assert ("end" in prediction_forms(wiring, Registry())) == asked
        (piece,) = predicted(wiring, trained(wiring))
        vectors = piece.nodes["end"].arrays.get("x", np.zeros((0, 2)))
        assert vectors.tolist() == (GIVEN.field("vector").values.tolist() if asked else [])


class OwnLoss(Loss):
    """A user's: says nothing of predictions."""

    def measure(self, rows, wants_gradient):
        return {}, dict(rows.payload) if wants_gradient else None


class BadLoss(OwnLoss):
    def predictions(self, rows):
        return {"y": np.array(["a"] * len(rows))}


def test_a_loss_of_ones_own_predicts_what_it_is_given():
    graph = new_graph()
    vector = graph.input("v", each="vector", state={"step": POSITION}, payload={"x": "vector"})
    graph.add(f"{__name__}:OwnLoss", "loss", graph.add("linear", "linear", vector, features=2))
    wiring = graph.build()
    parameters = trained(wiring)
    found = joined(predicted(wiring, parameters)).arrays["x"]
    weight, bias = (parameters["linear"][name] for name in ("weight", "bias"))
    np.testing.assert_allclose(found, GIVEN.field("vector").values @ weight + bias, rtol=1e-14)


def test_predictions_of_another_form_are_refused_by_name():
    node = make(f"{__name__}:BadLoss", floats(2), name="loss", evaluation=Evaluation.BOTH)
    with pytest.raises(NodeError, match=r"node 'loss' .*returned 'y' as <U1\[1\], which is not"):
        node.forward("x", rows(1, x=[[1.0, 2.0]]), Mode.EVALUATE)


# --------------------------------------------------------------------------------- records


def test_records_of_predictions_are_of_a_bounded_size_and_hold_each_row_once():
    wiring = without_labels(chain(), Registry())
    host = NodeHost(wiring, Registry(), HostSettings([1, 1], evaluation=Evaluation.PREDICTIONS), 1)
    loss = host.nodes[1]
    n = 50_000
    state = np.arange(2 * n, dtype=np.int32).reshape(n, 2)
    loss.predicted.add(state[:9], {"y": state[:9] * 2.0})
    assert host.take_predictions() == []  # so few wait for more, or for a barrier
    loss.predicted.add(state[9:], {"y": state[9:] * 2.0})
    records = host.take_predictions()
    assert len(records) >= n * 24 // PREDICTION_BYTES
    for record in records:
        assert sum(array.nbytes for array in record.arrays.values()) <= PREDICTION_BYTES
    assert (np.concatenate([r.arrays["#state"] for r in records]) == state).all()
    assert (np.concatenate([r.arrays["y"] for r in records]) == state * 2.0).all()
    assert host.take_predictions(0) == []


def test_a_barrier_is_acknowledged_behind_the_predictions():
    wiring = without_labels(chain(), Registry())
    host = NodeHost(wiring, Registry(), HostSettings([1, 1], evaluation=Evaluation.PREDICTIONS), 1)
    host.nodes[1].predicted.add(np.zeros((1, 2), np.int32), {})
    assert [r.verb for r in host.on_record(Barrier(1))] == ["predictions", "acknowledged"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": f64([1])}, r"#state is 'missing'"),
        ({"#state": f64([[1]])}, r"#state is 'float64\[1, 1\]'"),
        ({"#state": np.zeros((0, 2), np.int32)}, "of one row or more"),
        ({"#state": np.zeros((2, 2), np.int32), "y": f64([1])}, r"y is \[1\]; .*\[2, ...\]"),
    ],
)
def test_a_record_of_predictions_has_states_and_an_entry_for_each(arrays, message):
    with pytest.raises(WireError, match=message):
        Predictions(0, "loss", arrays).check()


def test_predictions_of_a_node_that_was_not_asked_are_refused():
    made = ScriptedRun.of(chain(), TRAIN, GIVEN, SETTINGS, [1, 1])
    made.run()
    record = Predictions(0, "loss", {"#state": np.zeros((1, 2), np.int32)})
    with pytest.raises(LifecycleError):
        made.controller.on_record(record, 0.0)


# ----------------------------------------------------------------------------------- fields


def test_an_example_needs_what_goes_through_the_graph_and_no_label():
    wiring = without_labels(recurrent(), Registry())
    assert "label" not in wiring.fields
    form = example_form(wiring)
    assert form.fields == {"tokens": ArraySpec((), "int32")}
    assert form.alike == [["tokens"]]
    assert form.fault({"tokens": 0}) == "has 0 elements in 'tokens', but needs 1 at least"
    assert example_form(without_labels(chain(), Registry())).single == ["vector"]


# ----------------------------------------------------------------------------------- output


def told(form: PredictionForm, given: NodePredictions, n: int, words: Any = None) -> list[Any]:
    stream = io.StringIO()
    PredictionWriter(stream, {"loss": form}, words or {}).write(Predicted(3, n, {"loss": given}))
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_one_row_an_example_is_told_without_lists_and_with_its_word():
    given = NodePredictions(
        np.array([1, 1]),
        {"step": np.array([4, 5])},
        {"label": np.array([1, 0], np.int32), "probabilities": f64([[0.25, 0.75], [1, 0]])},
    )
    form = PredictionForm(per_row=False, ids={"label": "label"})
    assert told(form, given, 2, {"label": ["no", "yes"]}) == [
        {"example": 3, "label": 1, "label_word": "yes", "probabilities": [0.25, 0.75]},
        {"example": 4, "label": 0, "label_word": "no", "probabilities": [1, 0]},
    ]


def test_rows_are_told_as_lists_and_what_they_share_once():
    given = NodePredictions(
        np.array([2, 0, 1]),
        {"node": np.array([0, 1, 0])},
        {"label": np.array([1, 1, 0]), "probability": f64([0.25, 0.75, 1])},
    )
    assert told(PredictionForm(of_example=("label",)), given, 3) == [
        {"example": 3, "node": [0, 1], "label": 1, "probability": [0.25, 0.75]},
        {"example": 4, "node": [], "label": [], "probability": []},
        {"example": 5, "node": [0], "label": 0, "probability": [1]},
    ]


def test_several_nodes_stand_below_their_names():
    stream = io.StringIO()
    one = NodePredictions(np.array([1]), {}, {"x": f64([2])})
    forms_of = {"a": PredictionForm(per_row=False), "b": PredictionForm()}
    PredictionWriter(stream, forms_of, {}).write(Predicted(0, 1, {"a": one, "b": one}))
    assert json.loads(stream.getvalue()) == {"example": 0, "a": {"x": 2}, "b": {"x": [2]}}


def test_what_was_standardised_is_told_in_its_unit_too_and_examples_by_what_they_were():
    stream = io.StringIO()
    given = NodePredictions(np.array([1, 1]), {}, {"target": np.array([[0.5], [-1]], np.float32)})
    writer = PredictionWriter(
        stream,
        {"loss": PredictionForm(per_row=False)},
        {},
        {"smiles": ["O", "C", "N"]},
        {"target": Unit("debye", 2.5, 0.2)},
    )
    writer.write(Predicted(1, 2, {"loss": given}))
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"example": 1, "smiles": "C", "target": [0.5], "target_debye": [2.6]},
        {"example": 2, "smiles": "N", "target": [-1], "target_debye": [2.3]},
    ]


def test_numbers_read_back_as_they_are():
    wide = np.array([0.1, 1 / 3, 1e-300])
    assert plain_values(wide) == wide.tolist()
    narrow = np.array([[0.1, 1 / 3]], np.float32)
    assert plain_values(narrow) == [[0.1, 0.33333334]]
    assert plain_values(np.array([np.nan, np.inf, 1.5])) == [None, None, 1.5]


# ------------------------------------------------------------------ of a run's validation


def validated(saved: ValidationPredictions, value: int, *, complete: bool = True) -> None:
    """Let a validation of two examples predict `value`, in two pieces."""
    one = NodePredictions(np.array([1]), {}, {"x": np.array([value])})
    for first in range(2):
        saved.write(Predicted(first, 1, {"sink": one}))
    saved.end_stage(StageResult(Split.VALID, 1, 0.1, 2, {}, None, complete))


def test_of_validations_the_last_complete_one_is_kept(tmp_path):
    file = tmp_path / "predictions.jsonl"
    saved = ValidationPredictions(file, {"sink": PredictionForm(per_row=False)}, {})
    saved.end_stage(StageResult(Split.TRAIN, 1, 0.1, 9, {}, None))
    assert not file.exists()
    for value in (3, 4):
        validated(saved, value)
    text = '{"example": 0, "x": 4}\n{"example": 1, "x": 4}\n'
    assert file.read_text() == text
    validated(saved, 5, complete=False)
    saved.write(Predicted(0, 1, {"sink": NodePredictions(np.array([0]), {}, {})}))
    saved.close()
    assert file.read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["predictions.jsonl"]


def test_predictions_that_cannot_be_written_end_the_run_by_name(tmp_path):
    saved = ValidationPredictions(tmp_path / "nowhere" / "a", {}, {})
    with pytest.raises(OutputError, match="nowhere/a: cannot write: No such file"):
        saved.write(Predicted(0, 1, {}))


def test_a_full_disk_is_named_with_what_to_do():
    with Path("/dev/full").open("w") as stream:
        writer = PredictionWriter(stream, {}, {})
        with pytest.raises(OutputError, match=r"/dev/full: cannot write .*; free some space"):
            writer.write(Predicted(0, 1, {}))
        with suppress(OSError):  # what is buffered cannot be written either
            stream.close()
