"""A node class that breaks its contract is named before anything runs, with method and line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from wirings import FIELDS

from amp_runtime.errors import AmpError, GraphError, ShapeMismatchError
from amp_runtime.graph import Graph, PerExample
from amp_runtime.graph.asking import infer_said
from amp_runtime.output.summary import parameter_shapes
from amp_runtime.rows.spec import ArraySpec, PortSpec, StateSchema
from workers.join import Join
from workers.linear import Linear
from workers.registry import Registry
from workers.relu import Relu


class Breaks(Relu):
    kind = "breaks"


def built(cls: type, **options: Any):
    """Return the wiring of vector -> linear -> `cls` -> linear -> loss."""

    class Kinds(Registry):
        def load(self, kind, *, where=""):
            return cls if kind == "test:Breaks" else super().load(kind, where=where)

    graph = Graph(Kinds(), fields=FIELDS, dtype="float64")
    vector = graph.input("vector", each=PerExample, state={}, payload={"x": "vector"})
    suspect = graph.add(
        "test:Breaks", "suspect", graph.add("linear", "before", vector, features=2), **options
    )
    graph.add("softmax_cross_entropy", "loss", graph.add("linear", "after", suspect, features=2))
    return graph.build(), Kinds()


def raises(*_: Any) -> Any:
    raise ValueError("no such thing")


def returns(value: Any):
    return lambda *_: value


def narrow(cls, options, inputs, dtype):
    return {"y": PortSpec({"x": ArraySpec((0,), dtype)}, inputs["x"].schema)}


def half(cls, options, inputs, dtype):
    return {"y": PortSpec({"x": ArraySpec((2,), "float16")}, inputs["x"].schema)}


METHODS = (
    "infer", "load", "fields", "state_functions", "input_ports", "output_ports", "check_fields",
)  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_raises_is_named_with_node_and_line(method):
    cls = type("Breaks", (Breaks,), {method: classmethod(raises)})
    with pytest.raises(GraphError) as raised:
        built(cls)
    said = rf"^node 'suspect' \(kind test:Breaks\): .*Breaks\.{method} raised ValueError: no such "
    assert re.search(said + r"thing \(.*test_asking\.py:\d+\)$", str(raised.value)), raised.value


@pytest.mark.parametrize(
    ("method", "given", "error", "said"),
    [
        ("infer", returns(None), GraphError, r"infer returned None, not what leaves .*\['y'\]"),
        ("infer", returns({}), GraphError, "infer returned {}, not what leaves"),
        ("infer", returns({"y": 5}), GraphError, "not a PortSpec for each output port"),
        (
            "infer",
            narrow,
            ShapeMismatchError,
            r"array 'x' of output port 'y' is float64\[rows, 0",
        ),
        ("infer", half, ShapeMismatchError, "float16.*; dtypes are int32, float32, float64"),
        ("load", returns(float("nan")), GraphError, "load returned nan, not microseconds"),
        ("load", returns("3"), GraphError, "load returned '3', not microseconds"),
        ("load", returns(-1.0), GraphError, "load returned -1.0, not microseconds"),
        ("fields", returns("label"), GraphError, "fields returned 'label', not a list of names"),
        ("fields", returns(None), GraphError, "fields returned None, not a list of names"),
        ("state_functions", returns([5]), GraphError, r"returned \[5\], not a list of names"),
        ("output_ports", returns(("y", "y")), GraphError, "not names that differ"),
    ],
)
def test_a_method_that_returns_something_else_is_named(method, given, error, said):
    cls = type("Breaks", (Breaks,), {method: classmethod(given)})
    with pytest.raises(error, match=rf"^node 'suspect' \(kind test:Breaks\): .*{said}"):
        built(cls)


def test_a_kind_that_infers_from_any_input_may_have_to_wait_for_others():
    """A join in a loop, without option `loop`, cannot tell from one input; that is no breach."""
    inputs = {"a": PortSpec({"x": ArraySpec((2,), "float64")}, StateSchema((("instance", 24),)))}
    options = Join.Options(inputs=("a", "b"))
    assert infer_said(Join, options, inputs, "float64", "here") == {}
    assert set(infer_said(Join, options, {**inputs, "b": inputs["a"]}, "float64", "here")) == {"y"}


class NoDataclass:
    pass


@dataclass(frozen=True)
class Raises:
    def __post_init__(self) -> None:
        raise TypeError("weird")


@pytest.mark.parametrize("options", [None, {"a": 1}, NoDataclass, Raises])
def test_options_that_are_no_dataclass_or_raise_are_named(options):
    with pytest.raises(GraphError, match=r"^node 'suspect' .*Options raised TypeError: "):
        built(type("Breaks", (Breaks,), {"Options": options}))


# ---------------------------------------------------------------------- making a node


def made(cls: type, **options: Any) -> None:
    wiring, kinds = built(cls, **options)
    parameter_shapes(wiring, kinds, seed=0)


class Affine(Linear):
    """Begins with what `initial` returns."""

    kind = "affine"
    initial: Any

    def initial_parameters(self, generator):
        return self.initial()


@pytest.mark.parametrize(
    ("initial", "said"),
    [
        (raises, r"cannot be made: ValueError: no such thing \(.*test_asking\.py:\d+\)$"),
        (returns(None), "initial_parameters returned None, no dict by name"),
        (returns({5: np.zeros(2)}), r"initial_parameters returned \{5: .*, no dict by name"),
        (returns({"w": "abc"}), "cannot be made: ValueError: could not convert"),
        (returns({"w": [np.nan]}), "parameter 'w' would begin with a value not finite"),
    ],
)
def test_a_node_that_cannot_be_made_is_named(initial, said):
    cls = type("Breaks", (Affine,), {"initial": staticmethod(initial)})
    with pytest.raises(GraphError, match=rf"^node 'suspect' \(kind test:Breaks\): {said}"):
        made(cls, features=2)


def test_a_constructor_of_another_form_is_named():
    with pytest.raises(GraphError, match=r"node 'suspect' .*cannot be made: TypeError: .*takes 1 "):
        made(type("Breaks", (Breaks,), {"__init__": lambda self: None}))


def test_a_distribution_beyond_the_dtype_is_refused():
    options = {"features": 2, "initializer": {"name": "normal", "std": 1e300}}
    made(Linear, **options)  # float64 holds it
    graph = Graph(Registry(), fields={**FIELDS, "vector": ArraySpec((2,), "float32")})
    vector = graph.input("vector", each=PerExample, state={}, payload={"x": "vector"})
    graph.add("softmax_cross_entropy", "loss", graph.add("linear", "wide", vector, **options))
    with pytest.raises(AmpError, match=r"node 'wide' .*'weight' would begin with a value not fi"):
        parameter_shapes(graph.build(), Registry(), seed=0)
