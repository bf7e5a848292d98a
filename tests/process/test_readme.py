"""The programs in README and docs run as they stand there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from amp_runtime.commands import node_kinds
from amp_runtime.control.settings import ControllerSettings
from amp_runtime.data.dataset import Dataset
from amp_runtime.graph import POSITION, Graph
from amp_runtime.reference import Reference
from amp_runtime.rows.spec import ArraySpec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
OWN_MODEL, OWN_KIND = "docs/your_own_model.md", "docs/your_own_node_kind.md"


def block(language: str, first: str, page: str = "README.md") -> str:
    """Return the code block of `language` that begins with `first`."""
    text = (ROOT / page).read_text()
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (found,) = [text for text in blocks if text.startswith(first)]
    return found


@pytest.mark.parametrize(
    ("page", "module", "first", "name"),
    [
        ("README.md", "parity", "import numpy", "parity"),
        (OWN_MODEL, "branch", "import numpy", "branch"),
        (OWN_KIND, "my_kinds", "from dataclasses", "circle"),
    ],
)
def test_a_program_of_the_docs_reaches_its_target(runner, page, module, first, name):
    (runner.home / f"{module}.py").write_text(block("python", first, page))
    config = runner.home / f"{name}.yaml"
    config.write_text(block("yaml", f"name: {name}", page))
    ended = runner.run(config, timeout_s=110)
    assert ended.code == 0
    assert "target reached: accuracy" in ended.out


def test_the_example_of_a_graph_network_adds_up_what_comes_along_edges(tmp_path, monkeypatch):
    (tmp_path / "sums.py").write_text(
        block("python", "from amp_runtime.graph import POSITION\n", OWN_MODEL)
    )
    monkeypatch.syspath_prepend(tmp_path)
    sums = import_module("sums")
    # 0 -> 1, 0 -> 2, 1 -> 2; each node has one feature, and its target is the sum it gets.
    x, weight = np.array([[3.0], [5.0], [7.0]]), 2.0
    example = {"x": x, "first_out": [0, 2, 3], "n_out": [2, 1, 0], "target": [1, 2, 2]}
    example |= {"n_in": [0, 1, 2], "wanted": weight * np.array([[0.0], [3.0], [8.0]])}
    train = Dataset.from_examples([example])
    fields = {
        n: ArraySpec(f.values.shape[1:], f.values.dtype.name) for n, f in train.fields.items()
    }
    graph = Graph(node_kinds(), fields=fields, dtype="float64")
    graph.state(node=4)
    nodes = graph.input("nodes", each="x", state={"node": POSITION}, payload={"x": "x"})
    got = sums.sums_of_messages(graph, nodes, features=1)
    graph.add("squared_error", "loss", got, target="wanted", index="node")
    run = Reference(graph.build(), node_kinds(), train, train, ControllerSettings())
    (message,) = run.host.parameterised()
    message.parameters["weight"][...], message.parameters["bias"][...] = weight, 0
    run.run()
    assert run.results[0].metrics["loss"] == 0


def test_the_readme_opens_with_the_two_commands():
    assert re.search(r"```\nmake run .*\nmake test ", README[:200])


@pytest.mark.parametrize("page", ["README.md", OWN_MODEL, OWN_KIND])
def test_every_link_into_the_repository_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)[)#]", (ROOT / page).read_text())
    assert len(links) > 2
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []
