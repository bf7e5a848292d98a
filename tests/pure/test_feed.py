"""Examples become rows, in order, whatever the blocks they are prepared in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wirings import POSITION, PerExample, chain, examples, new_graph, tokens_chain, zeros

from amp_runtime.control import feed as feed_module
from amp_runtime.control.feed import Feed, mean_rows_per_example
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import DataError, KeyOverflowError


def two_inputs(batch=1, **state):
    graph = new_graph(batch=batch)
    tokens = graph.input("tokens", each="tokens", state={"step": POSITION}, payload={"x": "tokens"})
    start = graph.input(
        "start", each=PerExample, state={"step": state.get("step", 4)}, payload={"x": zeros((3,))}
    )
    embedded = graph.add("embedding", "embedding", tokens, entries=10, features=2)
    graph.add("softmax_cross_entropy", "loss", embedded)
    graph.add("sink", "end", start)
    return graph.build()


DATA = Dataset.from_examples(
    [
        {"tokens": [10, 11, 12], "vector": [[0.0, 1.0]], "label": 0, "last": 2},
        {"tokens": [20], "vector": [[2.0, 3.0]], "label": 1, "last": 0},
        {"tokens": [30, 31], "vector": [[4.0, 5.0]], "label": 2, "last": 1},
    ],
    where="here",
)


def feed(wiring, order=(0, 1, 2), first=7, data=DATA):
    return Feed(wiring, data, np.array(order, np.int64), first)


@pytest.mark.parametrize("block", [2, 512])
@pytest.mark.parametrize("left_out", [{7}, {8}, {9}, {7, 8}, {7, 9}, {8, 9}, {7, 8, 9}])
def test_what_is_left_out_takes_its_number_with_it_and_nothing_of_another(
    monkeypatch, block, left_out
):
    monkeypatch.setattr(feed_module, "BLOCK_EXAMPLES", block)
    order = np.array([0, 1, 2, 0, 2], np.int64)
    all_of_them = Feed(two_inputs(batch=2), DATA, order, 7)
    some = Feed(two_inputs(batch=2), DATA, order, 7, left_out)
    numbers, passed = [], []
    while len(all_of_them.upcoming()[0]):
        number = all_of_them.next_instance
        expected = all_of_them.take(1)
        if number in left_out:
            continue
        assert len(some.upcoming()[0])
        assert some.next_instance == number
        found = some.take(1)
        numbers.append(int(found.instances[0]))
        passed.append(some.passed)
        for ours, theirs in zip(found.inputs, expected.inputs, strict=True):
            assert ours.columns.tolist() == theirs.columns.tolist()
            assert ours.payload["x"].tolist() == theirs.payload["x"].tolist()
        assert found.n_examples.tolist() == expected.n_examples.tolist()
        assert found.n_rows.tolist() == expected.n_rows.tolist()
        assert {n: a.tolist() for n, a in found.structure.items()} == {
            n: a.tolist() for n, a in expected.structure.items()
        }
    assert not len(some.upcoming()[0])
    assert numbers == sorted({7, 8, 9} - left_out)
    sizes = {7: 2, 8: 2, 9: 1}
    assert some.n_left_out == sum(sizes[number] for number in left_out)
    assert (some.passed, some.end_instance) == (5, 10)
    assert passed == sorted(passed)


def test_every_element_and_every_example_become_rows_with_their_state():
    it = feed(two_inputs(batch=2))
    n_rows, n_examples = it.upcoming()
    assert n_rows.tolist() == [6, 3]  # 3 + 1 tokens and 2 starts; 2 tokens and a start
    assert n_examples.tolist() == [2, 1]  # the last instance is what remains
    injection = it.take(2)
    tokens, start = injection.inputs
    # address, instance, example, step
    assert tokens.columns.tolist() == [
        [0, 0, 7, 0, 0], [0, 0, 7, 0, 1], [0, 0, 7, 0, 2], [0, 0, 7, 1, 0],
        [0, 0, 8, 0, 0], [0, 0, 8, 0, 1],
    ]  # fmt: skip
    assert tokens.payload["x"].tolist() == [10, 11, 12, 20, 30, 31]
    assert start.columns.tolist() == [[0, 0, 7, 0, 4], [0, 0, 7, 1, 4], [0, 0, 8, 0, 4]]
    assert start.payload["x"].tolist() == [[0, 0, 0]] * 3
    assert injection.structure["label"].tolist() == [0, 1, 2]
    assert injection.structure["#label"].tolist() == [1, 1, 1]
    assert [len(a) for a in it.upcoming()] == [0, 0]


def test_examples_come_in_the_order_asked_for():
    it = feed(tokens_chain(), order=(2, 0))
    it.upcoming()
    injection = it.take(2)
    assert injection.inputs[0].payload["x"].tolist() == [30, 31, 10, 11, 12]
    assert injection.structure["label"].tolist() == [2, 0]
    assert injection.instances.tolist() == [7, 8]


def test_row_102_an_example_that_comes_twice_is_two_instances():
    # Instances are numbered by the feed, and never by what examples are or are called.
    it = feed(two_inputs(), order=(1, 1, 1), first=7)
    it.upcoming()
    taken = it.take(3)
    assert taken.instances.tolist() == [7, 8, 9]
    assert taken.inputs[0].payload["x"].tolist() == [20] * 3


def test_a_state_column_may_come_from_a_field_or_a_length():
    graph = new_graph()
    graph.state(n=4)
    state = {"step": "last", "n": "len(tokens)"}
    out = graph.input("v", each=PerExample, state=state, payload={"x": "vector"})
    graph.add("sink", "end", out)
    it = feed(graph.build())
    it.upcoming()
    columns = it.take(3).inputs[0].columns
    assert columns[:, 3:].tolist() == [[2, 3], [0, 1], [1, 2]]


def test_no_examples_are_no_instances():
    it = feed(chain(), order=())
    assert it.n_examples == 0
    assert [len(a) for a in it.upcoming()] == [0, 0]


def test_more_instances_than_are_prepared_cannot_be_taken():
    it = feed(chain())
    it.upcoming()
    it.take(2)
    with pytest.raises(IndexError, match="2 instances asked for"):
        it.take(2)


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    batch=st.integers(1, 4),
    block=st.integers(1, 9),
    takes=st.lists(st.integers(1, 5), min_size=1),
)
def test_blocks_and_takes_of_any_size_give_the_same_rows(lengths, batch, block, takes):
    data, wiring = examples(lengths), two_inputs(batch)
    order = np.random.default_rng(0).permutation(len(lengths))
    expected = []
    for n, example in enumerate(order.tolist()):
        start = sum(lengths[:example])
        for step in range(lengths[example]):
            state = [3 + n // batch, *([n % batch] if batch > 1 else []), step]
            expected.append((state, int(data.field("tokens").values[start + step])))
    found, instances, n_examples, labels = [], [], [], []
    before = feed_module.BLOCK_EXAMPLES
    feed_module.BLOCK_EXAMPLES = block
    try:
        it = Feed(wiring, data, order, 3)
        while len(n_rows := it.upcoming()[0]):
            k = min(takes[len(instances) % len(takes)], len(n_rows))
            injection = it.take(k)
            tokens, start = injection.inputs
            by_instance = [*tokens.instances.tolist(), *start.instances.tolist()]
            assert injection.n_rows.tolist() == [
                by_instance.count(i) for i in injection.instances.tolist()
            ]
            found += zip(tokens.columns[:, 2:].tolist(), tokens.payload["x"].tolist(), strict=True)
            instances += injection.instances.tolist()
            n_examples += injection.n_examples.tolist()
            labels += injection.structure["label"].tolist()
    finally:
        feed_module.BLOCK_EXAMPLES = before
    assert found == expected
    assert instances == list(range(3, 3 + -(-len(lengths) // batch)))
    assert sum(n_examples) == len(lengths)
    assert all(n == batch for n in n_examples[:-1])
    assert labels == data.field("label").values[order].tolist()


def test_an_instance_that_would_inject_no_row_is_refused_by_example():
    with pytest.raises(DataError, match="test data: example 1 would inject no row; leave empty"):
        feed(tokens_chain(), order=(0, 1), data=examples([2, 0])).upcoming()


def test_an_empty_example_may_be_one_of_several_of_an_instance():
    it = feed(tokens_chain(batch=2), order=(0, 1), data=examples([2, 0]))
    assert it.upcoming()[0].tolist() == [2]


def test_fields_of_different_length_are_refused_by_example_and_input():
    graph = new_graph()
    tokens = graph.input("v", each="tokens", state={"step": 0}, payload={"x": "vector"})
    graph.add("sink", "end", tokens)
    with pytest.raises(
        DataError, match="here: example 0 has 1 rows in field 'vector', but input 'v' injects 3; th"
    ):
        feed(graph.build()).upcoming()


def test_a_state_outside_its_bits_is_refused_with_the_data_and_the_input():
    with pytest.raises(KeyOverflowError, match=r"here, input 'start': .*'step' holds 256, outside"):
        feed(two_inputs(step=256)).upcoming()


def test_mean_rows_counts_all_inputs():
    assert mean_rows_per_example(two_inputs(), DATA) == 3  # 2 tokens and a start
    assert mean_rows_per_example(two_inputs(), DATA.subset(np.array([], np.int64))) == 1
