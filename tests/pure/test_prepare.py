"""A config to a checked graph, data and settings."""

from __future__ import annotations

import sys

import pytest

from amp_runtime.checking.rules import ConfigProblemsError
from amp_runtime.config.schema import load_config
from amp_runtime.errors import AmpError, BadOptionError, ConfigError, DataError, GraphError
from amp_runtime.nodes.node import Evaluation
from amp_runtime.prepare import prepare, prepare_file
from workers.registry import Registry

SOURCE = """
def examples(split, seed, *, width: int = 3):
    n = 2 if split == "train" else width
    yield {"pixels": [[0.5] * n], "label": 1}
"""
CONFIG = """
name: small
model: {builder: mlp, hidden: [4], classes: 2}
data: {source: "prepare_source:examples", width: 2}
training: {optimizer: {name: sgd, lr: 0.1}}
"""


@pytest.fixture
def config_file(tmp_path, monkeypatch):
    (tmp_path / "prepare_source.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "prepare_source", raising=False)
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG)
    return path


TWO_LOSSES = """
from workers.softmax_cross_entropy import SoftmaxCrossEntropy

class Silent(SoftmaxCrossEntropy):
    metrics = ()

def build(graph, *, kind: str = "softmax_cross_entropy"):
    from amp_runtime.graph import PerExample
    x = graph.input("x", each=PerExample, state={}, payload={"x": "pixels"})
    for name in ("a", "b"):
        logits = graph.add("linear", f"to_{name}", x, features=2)
        graph.add(kind, name, logits, label="label")
"""

SILENT = """
def build(graph):
    from amp_runtime.graph import PerExample
    x = graph.input("x", each=PerExample, state={}, payload={"x": "pixels"})
    graph.add("sink", "sink", x)
"""


def test_options_of_builder_and_source_reach_them_lists_as_tuples(config_file):
    prepared = prepare(load_config(config_file), Registry())
    assert [n.name for n in prepared.wiring.nodes] == ["linear-1", "linear-2", "loss"]
    assert prepared.wiring.nodes[0].inputs["x"].arrays["x"].shape == (2,)
    assert prepared.wiring.nodes[0].options["features"] == 4


def test_validation_examples_of_another_shape_are_refused(config_file):
    config = load_config(config_file, ["data.width=5"])
    with pytest.raises(
        DataError,
        match=r"small.yaml:4: .*split valid: field 'pixels' is float32\[rows, 5\], but .*rows, 2",
    ):
        prepare(config, Registry())


def test_fields_that_do_not_fit_an_input_are_refused_before_a_run_with_their_line(config_file):
    source = config_file.with_name("prepare_source.py")
    source.write_text(source.read_text().replace('"pixels": [', '"pixels": 2 * ['))
    with pytest.raises(DataError, match=r"small.yaml:4: .*example 0 has 2 rows in field 'pixels'"):
        prepare(load_config(config_file), Registry())


SEVERAL = """
def examples(split, seed, *, n: int = 1):
    yield {"x": [[0.5, 1.0]], "label": 1, "chances": [[1.0, 0.0]], "points": [[0.5, 1.0]]}
    yield {"x": [[0.5, 1.0]], "label": [1] * n, "chances": [[1.0, 0.0]] * n,
           "points": [[0.5, 1.0]] * n}

def build(graph, *, kind: str):
    from amp_runtime.graph import PerExample
    x = graph.input("x", each=PerExample, state={}, payload={"x": "x"})
    logits = graph.add("linear", "logits", x, features=2)
    options = {
        "softmax_cross_entropy": {"label": "label"},
        "sigmoid_cross_entropy": {"target": "chances"},
        "squared_error": {"target": "points"},
    }[kind]
    graph.add(kind, "loss", logits, **options)
"""


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("softmax_cross_entropy", "label"),
        ("sigmoid_cross_entropy", "chances"),
        ("squared_error", "points"),
    ],
)
@pytest.mark.parametrize("n", [0, 3])
def test_of_several_labels_none_is_taken_unless_the_loss_says_which(
    config_file, monkeypatch, kind, field, n
):
    (config_file.parent / "several.py").write_text(SEVERAL)
    monkeypatch.delitem(sys.modules, "several", raising=False)
    settings = [f"model={{builder: 'several:build', kind: {kind}}}"]
    prepare_file(config_file, [*settings, "data={source: 'several:examples'}"], Registry())
    settings += [f"data={{source: 'several:examples', n: {n}}}"]
    said = (
        rf"example 1 has {n} elements in field '{field}', of which node 'loss' \(kind {kind}\) "
        "takes one; give one; or, .*`index`"
    )
    with pytest.raises(DataError, match=said):
        prepare_file(config_file, settings, Registry())


def test_a_source_without_training_examples_is_named(config_file):
    source = config_file.with_name("prepare_source.py")
    source.write_text(
        SOURCE.replace("    n = 2", "    if split == 'train':\n        return\n    n = 2")
    )
    with pytest.raises(DataError, match=r"examples', split train: gave no examples to train on"):
        prepare(load_config(config_file), Registry())


def test_an_override_of_a_node_that_is_not_there_is_named(config_file):
    config = load_config(config_file, ["nodes.linear-3.features=2"])
    with pytest.raises(
        ConfigError, match=r"linear-3.features=2': nodes.linear-3: no node 'linear-3'.*linear-1"
    ):
        prepare(config, Registry())


def test_a_target_that_is_no_metric_of_the_model_is_refused(config_file):
    bound = "training.target.at_least=0.9"
    config = load_config(config_file, ["training.target.metric=acuracy", bound])
    with pytest.raises(ConfigError, match=r"metric=acuracy'.*no metric 'acuracy'.*'accuracy'"):
        prepare(config, Registry())
    prepare(load_config(config_file, ["training.target.metric=accuracy", bound]), Registry())


def test_metrics_of_several_losses_are_targets_by_node(config_file, monkeypatch):
    (config_file.parent / "two_losses.py").write_text(TWO_LOSSES)
    monkeypatch.delitem(sys.modules, "two_losses", raising=False)

    def prepared(metric, *options):
        target = f"training.target={{metric: {metric}, at_least: 0.9}}"
        model = "model={builder: 'two_losses:build'}"
        return prepare(load_config(config_file, [model, target, *options]), Registry())

    for metric in ("loss", "a.loss", "b.accuracy"):
        assert prepared(metric).settings.target.metric == metric
    with pytest.raises(ConfigError, match=r"its metrics are loss, a\.loss, a\.accuracy, b"):
        prepared("accuracy")
    # A kind that does not say what it measures may measure anything.
    assert prepared("f1", "model.kind=two_losses:Silent").settings.target.metric == "f1"


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("data.widht=5", "override 'data.widht=5': data.widht: data source .* no option 'widht'"),
        (
            "model.hiden=[4]",
            r"override 'model.hiden=\[4\]': model.hiden: model builder 'mlp' has no option",
        ),
        (
            "model.builder=mpl",
            "override 'model.builder=mpl': model.builder: no model builder 'mpl'",
        ),
        (
            "nodes.linear-1.lr=0.1",
            "override 'nodes.linear-1.lr=0.1': nodes.linear-1.lr: unknown option of kind linear "
            r"\(valid: features, .*it also takes",
        ),
        (
            "training.optimizer={name: adma}",
            "override 'training.optimizer=.*unknown optimizer 'adma'",
        ),
        ("data.path=x", "override 'data.path=x'"),
    ],
)
def test_an_error_names_the_override_that_caused_it(config_file, override, place):
    with pytest.raises(AmpError, match=place):
        prepare(load_config(config_file, [override]), Registry())


def test_an_error_in_the_file_names_the_line_of_its_key(config_file):
    config_file.write_text(CONFIG.replace("width: 2", "widht: 2"))
    with pytest.raises(AmpError, match=r"small.yaml:4: data.widht: data source.*no option 'widht'"):
        prepare(load_config(config_file), Registry())


ALL_WRONG = """
name: small
model:
  builder: mlp
  hiden: [4]
  classes: two
data:
  source: "prepare_source:examples"
  widht: 2
training:
  optimizer:
    name: sgd
    lr: -1
    momentun: 0.9
nodes:
  linear-1:
    featurs: 3
    optimizer: {name: adma}
  linear-9: {features: 2}
  loss: {update_every: 5}
"""


def test_options_of_source_builder_optimizer_and_nodes_are_reported_together(config_file):
    config_file.write_text(ALL_WRONG)
    with pytest.raises(ConfigProblemsError) as raised:
        prepare(load_config(config_file), Registry())
    found = [str(p).partition("small.yaml:")[2] for p in raised.value.problems]
    starts = [
        "5: model.hiden: model builder 'mlp' has no option 'hiden' (did you mean 'hidden'?)",
        "6: model.classes: must be a whole number (above 0), not 'two' (model builder 'mlp')",
        "9: data.widht: data source 'prepare_source:examples' has no option 'widht'",
        "13: training.optimizer.lr: must be a number (above 0), not -1",
        "14: training.optimizer.momentun: unknown option of optimizer sgd (did you mean 'mom",
        "17: nodes.linear-1.featurs: unknown option of kind linear (did you mean 'features'?)",
        "18: nodes.linear-1.optimizer.name: unknown optimizer 'adma' (did you mean 'adam'?)",
        "20: nodes.loss.update_every: is for nodes with parameters, and kind softmax_cross_entro",
    ]
    # Of linear-9 nothing is said: with the right options the model may have it.
    assert len(found) == len(starts)
    for said, start in zip(found, starts, strict=True):
        assert said.startswith(start)


WRONG_TRAINING = """
name: small
model: {builder: mlp}
data: {source: "prepare_source:examples"}
training:
  optimizer: {name: sgd, lr: 0.1}
  lr_schedule: {name: cosine, over: 0}
  clip: {norm: 1.0, value: 3.0}
  initializer: xavier_unifrm
nodes:
  linear-1:
    lr_schedule: {name: stepp}
    clip: {norm: -1}
    initializer: {weight: {name: normal, sdt: 1}, bias: zeros}
"""


def test_what_decides_how_parameters_start_and_step_is_reported_by_line(config_file):
    config_file.write_text(WRONG_TRAINING)
    with pytest.raises(ConfigProblemsError) as raised:
        prepare(load_config(config_file), Registry())
    found = [str(p).partition("small.yaml:")[2] for p in raised.value.problems]
    starts = [
        "7: training.lr_schedule.over: must be a whole number (above 0), not 0",
        "8: training.clip: give norm or value, one of the two",
        "9: training.initializer: unknown initializer 'xavier_unifrm' (did you mean 'xavier_u",
        "12: nodes.linear-1.lr_schedule.name: unknown lr_schedule 'stepp' (did you mean 'step'?)",
        "13: nodes.linear-1.clip.norm: must be a number or null (above 0), not -1",
        "14: nodes.linear-1.initializer.weight.sdt: unknown option of initializer normal (did you",
    ]
    assert len(found) == len(starts)
    for said, start in zip(found, starts, strict=True):
        assert said.startswith(start)


def test_options_are_reported_with_keys_that_break_the_schema(config_file):
    config_file.write_text(ALL_WRONG + "seed: '3'\nruntime: {placemnt: 3}\n")
    with pytest.raises(ConfigProblemsError) as raised:
        prepare_file(config_file, ["dtype=float16"], Registry())
    paths = [".".join(map(str, problem.path)) for problem in raised.value.problems]
    assert paths == [
        "model.hiden",
        "model.classes",
        "data.widht",
        "training.optimizer.lr",
        "training.optimizer.momentun",
        "nodes.linear-1.featurs",
        "nodes.linear-1.optimizer.name",
        "nodes.loss.update_every",
        "seed",
        "runtime.placemnt",
        "dtype",
    ]


@pytest.mark.parametrize("setting", ["name=3", "model.builder=a.b", "training.optimizer={lr: 0}"])
def test_what_breaks_the_schema_is_told_also_when_nothing_else_can_be(config_file, setting):
    with pytest.raises(ConfigProblemsError, match=setting.partition("=")[0]):
        prepare_file(config_file, [setting], Registry())


def test_options_of_nodes_are_reported_together_when_all_else_is_right(config_file):
    settings = ["nodes.linear-1.features=0", "nodes.linear-2.bias=3", "nodes.linear-3={}"]
    with pytest.raises(ConfigProblemsError) as raised:
        prepare(load_config(config_file, settings), Registry())
    assert [".".join(map(str, p.path)) for p in raised.value.problems] == [
        "nodes.linear-1.features",
        "nodes.linear-2.bias",
        "nodes.linear-3",
    ]


def test_a_source_that_is_not_there_is_told_with_the_options_that_are_wrong(config_file):
    settings = ["data.source=nowhere:examples", "training.optimizer.lr=0"]
    with pytest.raises(ConfigProblemsError) as raised:
        prepare(load_config(config_file, settings), Registry())
    said = [str(problem) for problem in raised.value.problems]
    assert any("no module 'nowhere'" in problem for problem in said)
    assert any("training.optimizer.lr: must be" in problem for problem in said)


def test_what_the_builder_itself_got_wrong_is_not_blamed_on_the_config(config_file, monkeypatch):
    (config_file.parent / "bad_builder.py").write_text(
        TWO_LOSSES.replace("features=2", "features=0")
    )
    monkeypatch.delitem(sys.modules, "bad_builder", raising=False)
    settings = ["model={builder: 'bad_builder:build'}", "nodes.to_a.bias=false"]
    with pytest.raises(BadOptionError, match=r"node 'to_a' \(kind linear\): features: must be"):
        prepare(load_config(config_file, settings), Registry())
    prepare(
        load_config(config_file, [*settings, "nodes.to_a.features=2", "nodes.to_b.features=2"]),
        Registry(),
    )


VOCABULARIES = """
import numpy as np
from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset

def examples(split, seed):
    about = About({"token": ("<unk>", "a", "b")}, (f"{split} has no c",))
    tokens = (np.array([0, 2, 1]), np.array([2, 1]))
    return Dataset.from_columns({"token": tokens, "label": np.array([0, 3])}, about=about)

def build(graph, *, classes: int | None = None):
    graph.state(step=4)
    tokens = graph.input("t", each="token", state={"step": "@position"}, payload={"x": "token"})
    words = graph.add("embedding", "words", tokens, entries=graph.entries("token"), features=2)
    logits = graph.add("linear", "out", words, features=classes or graph.entries("label"))
    graph.add("softmax_cross_entropy", "loss", logits, label="label")
"""


def test_a_builder_asks_how_many_values_a_field_takes(config_file):
    config_file.with_name("prepare_source.py").write_text(VOCABULARIES)
    config_file.write_text(CONFIG.replace(", width: 2", ""))
    model = "model={builder: 'prepare_source:build', classes: 4}"
    prepared = prepare(load_config(config_file, [model]), Registry())
    assert prepared.wiring.nodes[0].options["entries"] == 3
    assert prepared.notes[:2] == ("train has no c", "valid has no c")
    with pytest.raises(GraphError, match=r"does not say how many values field 'label' .*option"):
        prepare(load_config(config_file, ["model={builder: 'prepare_source:build'}"]), Registry())


def test_what_is_hardly_meant_is_noted(config_file):
    prepared = prepare(load_config(config_file, ["training.update_every=2"]), Registry())
    assert prepared.notes[-1:] == (
        "update_every is more than the 1 training examples, so these nodes update once an "
        "epoch: linear-1, linear-2",
    )
    own = ["training.update_every=1", "nodes.linear-2.update_every=5"]
    prepared = prepare(load_config(config_file, own), Registry())
    assert [note.rpartition(": ")[2] for note in prepared.notes] == ["linear-2"]
    assert prepare(load_config(config_file, own[:1]), Registry()).notes == ()


def test_replicas_that_would_be_idle_or_seldom_update_are_noted(config_file):
    settings = ["nodes.linear-1.replicas=3", "training.update_every=1"]
    many = [*settings, "training.max_active_keys=2"]
    seldom, idle = prepare(load_config(config_file, many), Registry()).notes
    assert seldom == (
        "update_every is more than the 1 training examples, or those that a replica has of "
        "them, so these nodes update once an epoch: linear-1"
    )
    assert idle == (
        "an instance is at one replica of a node, and max_active_keys is 2, so some replicas "
        "are always idle: linear-1 has 3"
    )
    enough = [*settings, "training.max_active_keys=3"]
    assert prepare(load_config(config_file, enough), Registry()).notes == (seldom,)


NOTHING_LEARNS = """
def build(graph):
    from amp_runtime.graph import PerExample
    x = graph.input("x", each=PerExample, state={}, payload={"x": "pixels"})
    graph.add("softmax_cross_entropy", "loss", x)
"""


def test_a_model_without_parameters_is_noted(config_file, monkeypatch):
    (config_file.parent / "learns_nothing.py").write_text(NOTHING_LEARNS)
    monkeypatch.delitem(sys.modules, "learns_nothing", raising=False)
    settings = ["model={builder: 'learns_nothing:build'}"]
    notes = prepare(load_config(config_file, settings), Registry()).notes
    assert notes == ("no node has parameters: nothing will be learnt",)


SEQUENCES = """
from amp_runtime.graph import POSITION, PerExample

def examples(split, seed):
    yield {"tokens": [1, 2, 3, 4], "kind": 4, "label": 1}

def build(graph, *, bits: int = 3, given: int = 0, first: int | str = 0):
    graph.state(step=bits, kind=3)
    state = {"step": POSITION, "kind": given}
    graph.add("sink", "end", graph.input("t", each="tokens", state=state, payload={"x": "tokens"}))
    state = {"step": first, "kind": "kind"}
    graph.add("sink", "other", graph.input("k", each=PerExample, state=state, payload={}))
"""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["model.bits=1"],
            r"input 't', .*split train: state column 'step' is to hold 3, .* 1 bits",
        ),
        (["model.given=8"], r"input 't', .*'kind' is to hold 8, outside its 3 bits \(0 to 7\)"),
        (["model.bits=2", "model.given=7"], ""),
        (["model.bits=2", "model.first=len(tokens)"], r"input 'k', .*'step' is to hold 4, .* 2 b"),
    ],
)
def test_state_that_examples_would_overflow_is_refused(config_file, monkeypatch, settings, said):
    (config_file.parent / "sequences.py").write_text(SEQUENCES)
    monkeypatch.delitem(sys.modules, "sequences", raising=False)
    own = ["model={builder: 'sequences:build'}", "data={source: 'sequences:examples'}"]
    config = load_config(config_file, [*own, *settings])
    if not said:
        prepare(config, Registry())
        return
    with pytest.raises(GraphError, match=said):
        prepare(config, Registry())


def test_predictions_are_saved_of_models_that_make_some(config_file, monkeypatch):
    (config_file.parent / "silent_model.py").write_text(SILENT)
    monkeypatch.delitem(sys.modules, "silent_model", raising=False)
    settings = ["training.save_predictions=true"]
    assert prepare_file(config_file, settings, Registry()).settings.evaluation is Evaluation.BOTH
    settings += ["model={builder: 'silent_model:build'}"]
    said = "override 'training.save_predictions=true': training.save_predictions: the model has no"
    with pytest.raises(ConfigError, match=said):
        prepare_file(config_file, settings, Registry())
