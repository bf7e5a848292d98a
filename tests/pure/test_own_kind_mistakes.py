"""What a user's own node kind does wrong is told by node, method and rule, before a run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from amp_runtime.errors import AmpError
from amp_runtime.prepare import prepare_file
from amp_runtime.rehearsal import rehearse
from workers.registry import Registry

PAGE = (Path(__file__).parents[2] / "docs" / "your_own_node_kind.md").read_text()
(MODULE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(CONFIG,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def rehearsed(tmp_path, monkeypatch):
    """Rehearse the program of the docs with one text of it replaced by another."""
    monkeypatch.syspath_prepend(tmp_path)

    def run(old: str, new: str):
        assert old in MODULE
        monkeypatch.delitem(sys.modules, "my_kinds", raising=False)
        (tmp_path / "my_kinds.py").write_text(MODULE.replace(old, new, 1))
        (tmp_path / "circle.yaml").write_text(CONFIG)
        kinds = Registry()
        return rehearse(prepare_file(tmp_path / "circle.yaml", ["data.train=40"], kinds), kinds)

    return run


def test_the_program_of_the_docs_is_right(rehearsed):
    assert rehearsed("", "").still == []


SQUARE, GAIN = r"node 'square' \(kind my_kinds:Square\): ", r"node 'gain' \(kind my_kinds:Gain\): "


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '        return {"y": inputs["x"]}  #',
            '        return {"y": inputs["z"]}  #',
            SQUARE + r"my_kinds:Square.infer raised KeyError: 'z' \(\S+my_kinds.py:\d+\)",
        ),
        (
            '        return {"y": inputs["x"]}  #',
            '        return inputs["x"]  #',
            SQUARE + r"my_kinds:Square.infer returned PortSpec.*, not what leaves its output ports",
        ),
        (
            "payload.items()}, payload",
            "payload.items()}",
            SQUARE + r"compute returned one dict, of x, not two dicts of arrays",
        ),
        (
            "return {name: x * x for name, x in payload.items()}, payload",
            "return 0",
            SQUARE + r"compute returned 0, not two dicts",
        ),
        (
            "return {name: x * x",
            "{name: x * x",
            SQUARE + r"compute returned None \(a return is missing\?\), not two dicts",
        ),
        (
            "payload.items()}, payload",
            'payload.items()}, {"mean": payload["x"].mean()}',
            SQUARE + r"compute keeps 'mean' of shape \[\] for 20 rows; .* a row for each row",
        ),
        (
            'into["gain"] += (x * g).sum(axis=0)',
            'into["gain"] = (x * g).sum(axis=0)',
            GAIN + r"add_gradients put other arrays .*; add to them: into\['weight'\] \+= ",
        ),
        (
            "    def initial_parameters",
            "    def __init__(self, context):\n        pass\n\n    def initial_parameters",
            GAIN + r"its __init__ does not call super\(\).__init__\(context\)",
        ),
        (
            'return {"gain": np.full(shape, self.options.start)}',
            "return np.full(shape, self.options.start)",
            GAIN + r"initial_parameters returned array\(\[3., 3.\]\), no dict by name",
        ),
        (
            '"my_kinds:Square"',
            "Square",
            r"node 'square' .* a kind is text, not <class .*; name it, as in",
        ),
        (
            '"label": int(',
            '"label": float(',
            r"node 'loss' .* field 'label' is float32\[rows\], not int32\[rows\]; labels",
        ),
    ],
)
def test_a_mistake_is_told_with_node_and_rule(rehearsed, old, new, said):
    with pytest.raises(AmpError, match=r"circle.yaml:2: " + said):
        rehearsed(old, new)


def test_an_input_gradient_that_is_no_dict_is_told_where_one_is_used(rehearsed):
    with pytest.raises(
        AmpError,
        match=GAIN + r"backpropagate returned a ndarray for port 'x', not \{name: array\} with the "
        r"names that came: x",
    ):
        rehearsed(
            'squared = graph.add("my_kinds:Square", "square", x)',
            'squared = graph.add("linear", "square", x, features=2)\n'
            "    Gain.backpropagate = lambda self, saved, gradient, wants: gradient['x']",
        )
