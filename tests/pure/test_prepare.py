"""A config to a checked graph, data and settings."""

from __future__ import annotations

import sys

import pytest

from amp_runtime.config.schema import load_config
from amp_runtime.errors import AmpError, ConfigError, DataError, GraphError
from amp_runtime.prepare import prepare
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


def test_options_of_builder_and_source_reach_them_lists_as_tuples(config_file):
    prepared = prepare(load_config(config_file), Registry())
    assert [n.name for n in prepared.wiring.nodes] == ["linear-1", "linear-2", "loss"]
    assert prepared.wiring.nodes[0].inputs["x"].arrays["x"].shape == (2,)
    assert prepared.wiring.nodes[0].options["features"] == 4


def test_validation_examples_of_another_shape_are_refused(config_file):
    config = load_config(config_file, ["data.width=5"])
    with pytest.raises(
        DataError,
        match=r"split valid: field 'pixels' is float32\[rows, 5\], but float32\[rows, 2\]",
    ):
        prepare(config, Registry())


def test_a_source_without_training_examples_is_named(config_file):
    source = config_file.with_name("prepare_source.py")
    source.write_text(
        SOURCE.replace("    n = 2", "    if split == 'train':\n        return\n    n = 2")
    )
    with pytest.raises(DataError, match=r"examples', split train: gave no examples to train on"):
        prepare(load_config(config_file), Registry())


def test_an_override_of_a_node_that_is_not_there_is_named(config_file):
    config = load_config(config_file, ["nodes.linear-3.features=2"])
    with pytest.raises(GraphError, match=r"linear-3.features=2': .*no node 'linear-3'.*linear-1"):
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
        ("data.widht=5", "override 'data.widht=5': data source .* no option 'widht'"),
        ("model.hiden=[4]", r"override 'model.hiden=\[4\]': model builder 'mlp' has no option"),
        ("model.builder=mpl", "override 'model.builder=mpl': no model builder 'mpl'"),
        (
            "nodes.linear-1.lr=0.1",
            "override 'nodes.linear-1.lr=0.1': node 'linear-1'.*it also takes",
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
    with pytest.raises(AmpError, match=r"small.yaml:4: data source.*no option 'widht'"):
        prepare(load_config(config_file), Registry())
