"""Options are checked against the dataclass that declares them, all at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Literal

import annotated_types
import pytest
from annotated_types import Ge, Gt, Lt, MinLen

from amp_runtime import limits
from amp_runtime.checking.options import OptionDescription, describe_options, validate_options
from amp_runtime.errors import BadOptionError, UnknownOptionError

WHERE = "node 'linear-1' (kind linear)"


@dataclass(frozen=True, slots=True)
class Options:
    features: Annotated[int, Gt(0), "width of the output"]
    activation: Annotated[Literal["none", "relu"], "applied to the output"] = "none"
    axes: Annotated[tuple[int, ...], MinLen(1), "summed over"] = (0,)
    pair: tuple[int, float] = (1, 2.0)
    clip: Annotated[float | None, "largest norm"] = None
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    bias: bool = True
    copy: str = "x"  # a name that pydantic's own classes use
    more: Mapping[str, Any] = field(default_factory=dict)


def options(**given):
    return validate_options(Options, given, where=WHERE)


def test_defaults_are_those_of_the_dataclass():
    assert options(features=3) == Options(features=3)
    assert type(options(features=3)) is Options


def test_list_is_taken_for_a_tuple_and_whole_number_for_a_number():
    made = options(features=3, axes=[1, 2], clip=1, pair=[3, 4], copy="y", more={"a": [1]})
    assert made.axes == (1, 2)
    assert isinstance(made.clip, float)
    assert made.pair == (3, 4.0)
    assert made.copy == "y"
    assert made.more == {"a": (1,)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"features": 0}, "features: must be a whole number (above 0), not 0"),
        ({"features": True}, "features: must be a whole number (above 0), not true"),
        ({"features": "3"}, "features: must be a whole number (above 0), not '3'"),
        ({"features": 1.0}, "features: must be a whole number (above 0), not 1.0"),
        ({}, "features: is missing: a whole number (above 0) is required"),
        ({"features": 1, "activation": "rel"}, "must be 'none' or 'relu', not 'rel'"),
        (
            {"features": 1, "axes": 3},
            "axes: must be a list, each a whole number (items at least 1)",
        ),
        ({"features": 1, "axes": []}, "(items at least 1), not []"),
        ({"features": 1, "axes": [1, "x"]}, "axes.1: must be a whole number, not 'x'"),
        ({"features": 1, "pair": [1]}, "pair.1: is missing: a number is required"),
        ({"features": 1, "pair": 3}, "pair: must be a list of a whole number, a number, not 3"),
        ({"features": 1, "pair": [1, True]}, "pair.1: must be a number, not true"),
        ({"features": 1, "clip": float("nan")}, "clip: must be a number or null, not nan"),
        ({"features": 1, "momentum": 1}, "momentum: must be a number (at least 0, below 1), not 1"),
        ({"features": 1, "bias": 1}, "bias: must be true or false, not 1"),
        ({"features": 1, "copy": None}, "copy: must be text, not null"),
    ],
)
def test_bad_option_is_refused_with_value_and_rule(given, said):
    with pytest.raises(BadOptionError) as raised:
        options(**given)
    assert said in raised.value.what
    assert raised.value.where == WHERE
    assert raised.value.__cause__ is None  # pydantic's words would be printed beside ours


def test_unknown_option_names_the_nearest_or_all_that_are_valid():
    with pytest.raises(UnknownOptionError) as raised:
        options(features=3, featurs=4)
    assert raised.value.what == "featurs: unknown option (did you mean 'features'?)"
    with pytest.raises(UnknownOptionError) as raised:
        options(features=3, zzz=4)
    assert raised.value.what.startswith("zzz: unknown option (valid: features, activation, axes, ")


def test_all_bad_options_are_listed():
    with pytest.raises(UnknownOptionError) as raised:
        options(features=0, bias="no", hidden=3)
    assert [part.split(":")[0] for part in raised.value.what.split("; ")] == [
        "features",
        "bias",
        "hidden",
    ]


def test_check_of_the_dataclass_itself_becomes_a_bad_option():
    @dataclass(frozen=True)
    class Ordered:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"low is {self.low}, above high {self.high}")

    with pytest.raises(BadOptionError, match="low is 2, above high 1"):
        validate_options(Ordered, {"low": 2, "high": 1}, where="node 'x'")


def test_kind_without_options_takes_none():
    @dataclass(frozen=True)
    class Empty:
        pass

    assert validate_options(Empty, {}, where="node 'x'") == Empty()
    with pytest.raises(UnknownOptionError, match=r"unknown option \(valid: none\)"):
        validate_options(Empty, {"x": 1}, where="node 'x'")


def test_description_says_type_range_default_and_meaning():
    described = {option.name: option for option in describe_options(Options)}
    assert list(described) == [
        "features", "activation", "axes", "pair", "clip", "momentum", "bias", "copy", "more",
    ]  # fmt: skip
    assert described["features"] == OptionDescription(
        "features", "a whole number", "above 0", "", "width of the output"
    )
    assert described["activation"].type == "'none' or 'relu'"
    assert (described["axes"].type, described["axes"].default) == (
        "a list, each a whole number",
        "[0]",
    )
    assert (described["clip"].type, described["clip"].default) == ("a number or null", "null")
    assert described["bias"].default == "true"
    assert described["momentum"].range == "at least 0, below 1"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("Gt", int), ("Ge", int), ("Lt", int), ("Le", int), ("MinLen", tuple[int, ...])],
)
def test_a_limit_of_ours_stands_for_that_of_annotated_types(name, hint):
    ours, theirs = getattr(limits, name), getattr(annotated_types, name)
    assert list(ours(3)) == [theirs(3)]
    assert ours(3) == ours(3) != ours(4)
    assert len({ours(3), ours(3), ours(4)}) == 2
    described = [
        describe_options(make_dataclass("Options", [("n", Annotated[hint, limit])]))
        for limit in (ours(3), theirs(3))
    ]
    assert described[0] == described[1]
    assert "3" in described[0][0].range


def test_declaring_options_needs_no_pydantic():
    code = (
        "import sys\n"
        "import amp_runtime.checking.options\n"
        "from amp_runtime.optim.sgd import SGD\n"
        "SGD.Options(lr=0.1)\n"
        "assert 'pydantic' not in sys.modules, 'pydantic came along'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
