"""Structure: taken in bulk, freed with its instance, and refused by name where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.errors import InvariantError, MissingStructureError
from amp_runtime.rows.spec import ArraySpec, Columns, StateSchema
from amp_runtime.rows.structure import InstanceCounter, InstanceTable, StructureArena

SCHEMA = StateSchema((("instance", 24), ("example", 4), ("step", 8)))
FIELDS = {"token": ArraySpec((), "int32"), "point": ArraySpec((2,), "float64")}


def columns(*states: tuple[int, int, int]) -> Columns:
    return Columns(np.array(states, np.int32).reshape(-1, 3), SCHEMA)


def record(instances: dict[int, list[list[int]]]) -> dict[str, np.ndarray]:
    """Return the arrays of {instance: [tokens of each example]}; points are (t, -t)."""
    examples = [tokens for all_ in instances.values() for tokens in all_]
    token = np.array([t for tokens in examples for t in tokens], np.int32)
    counts = np.array([len(tokens) for tokens in examples], np.int32)
    return {
        "instances": np.array(list(instances), np.int32),
        "n_examples": np.array([len(all_) for all_ in instances.values()], np.int32),
        "token": token,
        "#token": counts,
        "point": np.stack([token, -token], axis=1).astype(np.float64),
        "#point": counts,
    }


def test_take_gives_the_element_of_each_rows_example():
    arena = StructureArena(FIELDS)
    arena.add(record({7: [[10, 11], [20]], 9: [[30, 31, 32]]}))
    rows = columns((7, 0, 0), (9, 0, 0), (7, 1, 0), (7, 0, 0))
    assert arena.take("token", rows).tolist() == [10, 30, 20, 10]
    assert arena.take("token", rows, np.array([1, 2, 0, 0])).tolist() == [11, 32, 20, 10]
    assert arena.take("point", rows, np.array([1, 2, 0, 0])).tolist() == [
        [11, -11], [32, -32], [20, -20], [10, -10],
    ]  # fmt: skip
    assert arena.count("token", rows).tolist() == [2, 3, 1, 2]


def test_take_returns_new_memory():
    arena = StructureArena(FIELDS)
    arena.add(record({1: [[10]]}))
    arena.take("token", columns((1, 0, 0)))[0] = 0
    assert arena.take("token", columns((1, 0, 0))).tolist() == [10]


def test_what_was_sent_is_copied():
    arrays = record({1: [[10]]})
    arena = StructureArena(FIELDS)
    arena.add(arrays)
    arrays["token"][0] = 0
    assert arena.take("token", columns((1, 0, 0))).tolist() == [10]


@pytest.mark.parametrize(
    ("name", "state", "index", "message"),
    [
        (
            "tokens",
            (1, 0, 4),
            0,
            r"'tokens' is not among those declared .'point', 'token'",
        ),
        ("token", (2, 0, 4), 0, "row with state .instance 2, example 0, step 4.: no structure"),
        ("token", (1, 1, 4), 0, "row with state .instance 1, example 1, step 4.: no such example"),
        ("token", (1, 0, 4), 2, "instance 1.*element 2 of structure field 'token', which has 2"),
        ("token", (1, 0, 4), -1, "element -1 of structure field 'token', which has 2"),
    ],
)
def test_what_is_not_there_is_refused_with_the_rows_state(name, state, index, message):
    arena = StructureArena(FIELDS)
    arena.add(record({1: [[10, 11]]}))
    with pytest.raises(MissingStructureError, match=message):
        arena.take(name, columns((1, 0, 0), state), np.array([0, index]))


def test_a_retired_instance_is_gone_and_the_others_stay():
    arena = StructureArena(FIELDS)
    arena.add(record({1: [[10]], 2: [[20]]}))
    arena.remove(np.array([1, 55], np.int32))
    assert arena.has(np.array([1, 2], np.int32))
    assert not arena.has(np.array([2, 55], np.int32))
    assert arena.live == 1
    with pytest.raises(MissingStructureError, match="no structure here"):
        arena.take("token", columns((1, 0, 0)))
    assert arena.take("token", columns((2, 0, 0))).tolist() == [20]


def test_memory_is_reused_after_instances_retire():
    arena = StructureArena(FIELDS)
    for i in range(2, 3000):
        arena.add(record({i: [[i] * (i % 5) + [i + 1], []]}))
        arena.remove(np.array([i - 2], np.int32))
        last = columns(*((n, 0, 0) for n in range(max(2, i - 1), i + 1)))
        found = arena.take("token", last, last.instance % 5)
        assert found.tolist() == (last.instance + 1).tolist()
    assert arena.live == 2
    assert len(arena._values["token"].values) < 3000


@given(
    st.lists(
        st.tuples(
            st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=90),
            st.integers(0, 6),
        ),
        max_size=14,
    ),
    st.integers(2, 1000),
)
def test_an_arena_is_a_dict_of_instances(steps, stride):
    arena = StructureArena(FIELDS)
    expected: dict[int, list[list[int]]] = {}
    number = 0
    for examples, n_removed in steps:
        number += stride
        new = {number: examples[:3], number + 1: examples[3:]}
        arena.add(record(new))
        expected |= new
        gone = sorted(expected)[:n_removed]
        arena.remove(np.array(gone, np.int32))
        for key in gone:
            del expected[key]
        cells = [
            ((key, e % 16, 0), i, token)
            for key, all_ in expected.items()
            for e, tokens in enumerate(all_[:16])
            for i, token in enumerate(tokens)
        ]
        assert arena.live == len(expected)
        if cells:
            states, index, tokens = zip(*cells, strict=True)
            found = arena.take("token", columns(*states), np.array(index))
            assert found.tolist() == list(tokens)
            assert arena.take("point", columns(*states), np.array(index))[:, 1].tolist() == [
                -token for token in tokens
            ]


# ------------------------------------------------------------------------ instance tables


def test_an_instance_table_grows_until_no_two_share_a_place():
    table = InstanceTable(["count"])
    at = table.add(np.array([1, 65]))
    table.columns["count"][at] = [10, 650]
    table.add(np.array([129]))  # all three share place 1 of 64
    positions, found = table.find(np.array([65, 129, 1, 193]))
    assert found.tolist() == [True, True, True, False]
    assert table.columns["count"][positions[:3]].tolist() == [650, 0, 10]
    assert sorted(table.instances().tolist()) == [1, 65, 129]
    table.remove(np.array([65, 7]))
    assert table.live == 2


def test_a_live_instance_is_not_added_again():
    table = InstanceTable()
    table.add(np.array([3]))
    with pytest.raises(InvariantError, match=r"an instance of \[3\] is live already"):
        table.add(np.array([3]))


def test_a_new_entry_starts_at_zero():
    table = InstanceTable(["count"])
    table.columns["count"][table.add(np.array([3]))] = 9
    table.remove(np.array([3]))
    assert table.columns["count"][table.add(np.array([67]))].tolist() == [0]


def test_a_counter_counts_rows_per_instance_and_forgets_what_it_gave():
    counter = InstanceCounter()
    counter.add(np.array([5, 6, 5], np.int32))
    counter.add(np.array([5, 70], np.int32))
    assert counter.pop(np.array([70, 5, 99], np.int32)).tolist() == [1, 3, 0]
    assert counter.pop(np.array([5, 6], np.int32)).tolist() == [0, 1]
    assert len(counter) == 0


def test_a_node_is_not_given_a_field_that_only_its_neighbour_declared():
    arena = StructureArena(FIELDS)
    view = arena.only(["token"])
    arena.add(record({7: [[10, 11]]}))
    rows = columns((7, 0, 0))
    assert view.take("token", rows).tolist() == [10]
    with pytest.raises(MissingStructureError, match=r"'point' is not among .* \['token'\]"):
        view.take("point", rows)
