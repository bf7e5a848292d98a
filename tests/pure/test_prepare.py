"""A config to a checked graph, data and settings."""

from __future__ import annotations

import sys

import pytest

from amp_runtime.config.schema import load_config
from amp_runtime.errors import DataError, GraphError
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


def test_a_graph_error_names_the_line_of_the_model(config_file):
    config = load_config(config_file, ["nodes.linear-3.features=2"])
    with pytest.raises(GraphError, match=r"small.yaml:3.*no node 'linear-3'.*linear-1"):
        prepare(config, Registry())
