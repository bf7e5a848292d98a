"""What `kinds` says comes from the classes and functions themselves."""

from __future__ import annotations

import sys

import pytest

from amp_runtime.data import SOURCES
from amp_runtime.errors import UsageError
from amp_runtime.models import BUILDERS
from amp_runtime.nodes.initializers import INITIALIZERS
from amp_runtime.optim import OPTIMIZERS
from amp_runtime.optim.averaging import AVERAGING
from amp_runtime.optim.lr_schedules import LR_SCHEDULES
from amp_runtime.output.kinds import described, listed
from workers.registry import Registry

NAMES = [
    *Registry().names(), *OPTIMIZERS, *LR_SCHEDULES, *INITIALIZERS, *AVERAGING, *BUILDERS, *SOURCES,
]  # fmt: skip


def test_every_name_is_listed_with_a_sentence():
    lines = [line.split(maxsplit=1) for line in listed(Registry()).splitlines() if line[:2] == "  "]
    assert [name for name, _ in lines] == NAMES


@pytest.mark.parametrize("name", dict.fromkeys(NAMES))
def test_every_option_of_every_name_has_a_meaning(name):
    for page in described(name, Registry()).split("\n\n\n"):
        if "\n\noption " not in page:
            assert "it takes no options" in page
            continue
        header, _, *rows = page.partition("\n\noption ")[2].splitlines()
        meaning = header.index("meaning")
        assert rows
        assert [row for row in rows if len(row) <= meaning] == []


def test_all_that_has_one_name_is_described():
    pages = described("constant", Registry()).split("\n\n\n")
    assert [page.splitlines()[0] for page in pages] == [
        "lr_schedule constant",
        "initializer constant",
    ]


def test_a_kind_shows_ports_type_limit_default_and_that_it_trains():
    page = described("linear", Registry())
    assert "inputs: x\noutputs: y\n" in page
    assert "it also takes optimizer, lr_schedule, clip, initializer, backward_weights, " in page
    (features,) = [line for line in page.splitlines() if line.startswith("features")]
    assert features.split("  ")[0] == "features"
    assert ["above 0" in features, "required" in features] == [True, True]


def test_ports_that_depend_on_options_are_said_to():
    assert "inputs: as the options say\noutputs: y" in described("concat", Registry())
    assert "inputs: x\noutputs: none\nmetrics: loss, accuracy" in described(
        "softmax_cross_entropy", Registry()
    )


OWN = '''
from workers.relu import Relu

class Mine(Relu):
    """A kind of mine."""

def examples(split, seed, *, width: int = 3, path: str):
    """My examples.

    Args:
        width: of a picture,
            in pixels.
    """
'''


def test_a_class_and_a_function_of_ones_own_are_described(tmp_path, monkeypatch):
    (tmp_path / "kinds_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kinds_own", raising=False)
    assert "A kind of mine." in described("kinds_own:Mine", Registry())
    rows = described("kinds_own:examples", Registry()).splitlines()
    assert [row.split() for row in rows if row.startswith("width")] == [
        ["width", "a", "whole", "number", "3", "of", "a", "picture,", "in", "pixels."]
    ]
    assert [row.split() for row in rows if row.startswith("path")] == [["path", "text", "required"]]


def test_a_name_of_nothing_names_the_nearest():
    with pytest.raises(UsageError, match=r"'linaer' \(did you mean 'linear'\?\).*rnn"):
        described("linaer", Registry())
