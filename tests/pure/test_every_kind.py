"""What every kind must hold, held against every kind; a kind that is missing here fails."""

from __future__ import annotations

import pytest
from claims import CLAIMS, Case
from kinds import floats, spec

from amp_runtime.rows.spec import StateSchema
from workers.registry import Registry

TWO_ARRAYS = spec(("h", (2,), "float64"), ("c", (2, 2), "float64"))
WITH_NUMBERS = spec(("t", (), "int32"), ("x", (2,), "float64"))
CELL = spec(*((name, (width,), "float64") for name, width in (("x", 2), ("h", 3), ("c", 3))))
STACKED = (("h", (2, 3), "float64"), ("c", (2, 3), "float64"))
TOKENS = spec(("x", (), "int32"))


def joined(kind: str, ports: str = "abc", given=None) -> Case:
    return Case(kind, dict.fromkeys(ports, given or floats(2)), {"inputs": tuple(ports)})


def later(instance: int) -> list[tuple[int]]:
    """States that no row of another port has."""
    return [(100 + instance % 3,)]


def three_steps(instance: int) -> list[tuple[int]]:
    return [(0,), (1,), (2,)]


def grouped(reduce: str) -> Case:
    """1 to 4 rows in a group; without a position they are in the order of their states."""
    return Case(
        "group",
        {"x": TWO_ARRAYS},
        {
            "reduce": reduce,
            "key": "state_functions:by_four",
            "count": "state_functions:n_children",
        },
        states={"x": lambda i: [(4 * g + p,) for g in range(2) for p in range((i + g) % 4 + 1)]},
        fields={"n_children": lambda i: [(i + g) % 4 + 1 for g in range(2)]},
    )


def announced(reduce: str) -> Case:
    """0 to 3 rows in a group, with other columns; a part of the row at `key` passes."""
    schema = StateSchema((("instance", 24), ("node", 3)))
    arrays = (("x", (2,), "float64"), ("t", (), "int32"), ("y", (1,), "float64"))
    return Case(
        "group",
        {"x": floats(2), "key": spec(*arrays, schema=schema)},
        {
            "reduce": reduce,
            "key": "state_functions:to_node",
            "count": "state_functions:n_children_of_node",
            "position": "state_functions:place_of_four",
            "announced": True,
            "passes": {"x": "h", "t": "t"},
        },
        states={
            "x": lambda i: [(4 * g + p,) for g in range(3) for p in range((i + g) % 4)],
            "key": lambda i: [(g,) for g in range(3)],
        },
        fields={"n_children": lambda i: [(i + g) % 4 for g in range(3)]},
    )


CASES = {
    "add": joined("add"),
    "add of two arrays": joined("add", "ab", TWO_ARRAYS),
    "bcast": Case("bcast", {"x": TWO_ARRAYS}, {"outputs": ("a", "b", "c")}),
    "bcast of whole numbers": Case("bcast", {"x": WITH_NUMBERS}, {"outputs": ("a", "b")}),
    "child_sum_lstm": Case("child_sum_lstm", {"x": CELL}),
    "concat": Case(
        "concat",
        {"a": floats(1, name="h"), "b": floats(2), "c": floats(1)},
        {"inputs": ("a", "b", "c")},
    ),
    "cond": Case("cond", {"x": TWO_ARRAYS}, {"choose": "state_functions:is_odd"}),
    "dropout": Case("dropout", {"x": TWO_ARRAYS}, {"rate": 0.3}, same_in_evaluation=False),
    "dropout of nothing": Case("dropout", {"x": TWO_ARRAYS}, {"rate": 0.0}),
    "embedding": Case("embedding", {"x": TOKENS}, {"entries": 4, "features": 2}),
    "flatmap": Case(
        "flatmap",
        {"x": TWO_ARRAYS},
        {"count": "state_functions:n_children", "state": "state_functions:children"},
        states={"x": three_steps},
        fields={"n_children": lambda i: [i % 4, 0, 3]},
    ),
    "flatmap to other columns": Case(
        "flatmap",
        {"x": WITH_NUMBERS},
        {"count": 3, "state": "state_functions:edges", "columns": {"edge": 5}},
        states={"x": three_steps},
    ),
    "forget": Case("forget", {"x": CELL}),
    "group that stacks": Case(
        "group",
        {"x": TWO_ARRAYS},
        {
            "reduce": "stack",
            "key": "state_functions:by_four",
            "count": 2,
            "position": "state_functions:backwards_of_two",
        },
        states={"x": lambda i: [(4 * g + p,) for g in range(1 + i % 3) for p in range(2)]},
    ),
    **{f"group by {reduce}": grouped(reduce) for reduce in ("sum", "mean", "max")},
    **{f"group by {r}, announced": announced(r) for r in ("sum", "mean", "max")},
    "gru": Case("gru", {"x": spec(("x", (2,), "float64"), ("h", (3,), "float64"))}),
    "isu": Case("isu", {"x": TWO_ARRAYS}, {"update": "state_functions:next_step"}),
    "join": Case(
        "join",
        {"n": WITH_NUMBERS, "state": TWO_ARRAYS, "y": floats(1)},
        {"inputs": ("n", "state", "y")},
    ),
    "layer_norm": Case("layer_norm", {"x": floats(3, name="h")}, {"eps": 0.1}),
    "linear": Case("linear", {"x": floats(2, name="h")}, {"features": 3}),
    **{
        f"linear with {f}": Case("linear", {"x": floats(2)}, {"features": 3, "activation": f})
        for f in ("relu", "tanh", "sigmoid")
    },
    "linear without bias": Case("linear", {"x": floats(2)}, {"features": 3, "bias": False}),
    "linear of two axes": Case("linear", {"x": floats(2, 3)}, {"features": 2}),
    "lstm": Case("lstm", {"x": CELL}),
    "multiply": joined("multiply"),
    "multiply of two arrays": joined("multiply", "ab", TWO_ARRAYS),
    "pad": Case("pad", {"x": floats(2, name="h")}, {"features": 5}),
    "phi": Case(
        "phi",
        {"start": TWO_ARRAYS, "again": TWO_ARRAYS},
        {"inputs": ("start", "again")},
        states={"again": later},
    ),
    "relu": Case("relu", {"x": TWO_ARRAYS}),
    "sigmoid": Case("sigmoid", {"x": TWO_ARRAYS}),
    "sigmoid_cross_entropy": Case(
        "sigmoid_cross_entropy",
        {"x": floats(3)},
        fields={"target": lambda i: [[0.1 * (i % 5), 0.5, 1.0]]},
    ),
    "sink": Case("sink", {"x": WITH_NUMBERS}),
    "softmax": Case("softmax", {"x": TWO_ARRAYS}),
    "softmax_cross_entropy": Case(
        "softmax_cross_entropy", {"x": floats(3, name="h")}, fields={"label": lambda i: [i % 3]}
    ),
    "softmax_cross_entropy of elements": Case(
        "softmax_cross_entropy",
        {"x": floats(3)},
        {"index": "step"},
        states={"x": lambda i: [(step,) for step in range(1 + i % 3)]},
        fields={"label": lambda i: [i % 3, 1, 2]},
    ),
    "softmax_over_rows": Case(
        "softmax_over_rows",
        {"x": floats(1, name="h")},
        {"count": "len(node)", "index": "step"},
        states={"x": lambda i: [(n,) for n in range(1 + i % 3)]},
        fields={"len(node)": lambda i: [1 + i % 3], "label": lambda i: [i % 2 * (i % 3)]},
    ),
    "split": Case("split", {"x": floats(4, name="h")}, {"outputs": {"b": 1, "a": 2, "c": 1}}),
    "squared_error": Case(
        "squared_error", {"x": floats(2)}, fields={"target": lambda i: [[0.3 * (i % 4), -1.0]]}
    ),
    "take": Case("take", {"x": WITH_NUMBERS}, {"arrays": ("x",)}),
    "tanh": Case("tanh", {"x": TWO_ARRAYS}),
    "tree_lstm_branch": Case("tree_lstm_branch", {"x": spec(*STACKED)}),
    "tree_lstm_branch with an input of its own": Case(
        "tree_lstm_branch", {"x": spec(*STACKED, ("x", (2,), "float64"))}
    ),
    "tree_lstm_leaf": Case("tree_lstm_leaf", {"x": floats(2, name="word")}, {"features": 3}),
    "ungroup": Case(
        "ungroup",
        {"x": spec(("h", (3, 2), "float64"), ("t", (3,), "int32"))},
        {"state": "state_functions:edges", "columns": {"edge": 5}},
        states={"x": three_steps},
    ),
    "ungroup of a varying number": Case(
        "ungroup",
        {"x": floats(3)},
        {"count": "state_functions:n_children", "state": "state_functions:children"},
        states={"x": three_steps},
        fields={"n_children": lambda i: [i % 4, 0, 3]},
    ),
}


def test_every_kind_has_a_case():
    assert {case.kind for case in CASES.values()} == set(Registry().names())


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__.removeprefix("claim_"))
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_kind(case, claim):
    claim(case)
