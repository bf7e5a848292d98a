"""Ragged columns: what goes in comes out, and what is wrong is named."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.data import SOURCES, check_source, load_split
from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import AmpError, ConfigError, DataError, FunctionNameError

TWO = [{"tokens": [10, 3, 7], "label": 5}, {"tokens": [13, 4], "label": 1}]


def test_examples_become_columns_with_offsets():
    data = Dataset.from_examples(TWO)
    assert len(data) == 2
    assert data.field("tokens").values.tolist() == [10, 3, 7, 13, 4]
    assert data.field("tokens").offsets.tolist() == [0, 3, 5]
    assert data.field("label").offsets.tolist() == [0, 1, 2]  # a scalar is one row
    assert data.field("label").values.dtype == np.int32
    assert str(data) == (
        "2 examples (tokens: int32[rows], 2 to 3 rows an example; "
        "label: int32[rows], 1 row an example)"
    )


def test_ids_that_no_example_holds_are_told():
    made = Dataset.from_examples([{"x": [1, 3]}, {"x": [3, 9]}])
    assert made.fields["x"].missing_ids(5) == [0, 2, 4]


def test_gather_gives_rows_in_the_order_asked_for():
    rows = Dataset.from_examples(TWO).gather("tokens", np.array([1, 0, 1]))
    assert rows.values.tolist() == [13, 4, 10, 3, 7, 13, 4]
    assert rows.counts.tolist() == [2, 3, 2]
    assert rows.row_example.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert rows.position.tolist() == [0, 1, 0, 1, 2, 0, 1]
    assert {rows.counts.dtype, rows.row_example.dtype, rows.position.dtype} == {np.dtype("i4")}


def test_gather_of_one_row_each_takes_them():
    rows = Dataset.from_examples(TWO).gather("label", np.array([1, 1, 0]))
    assert rows.values.tolist() == [1, 1, 5]
    assert rows.counts.tolist() == [1, 1, 1]
    assert rows.row_example.tolist() == [0, 1, 2]
    assert rows.position.tolist() == [0, 0, 0]


@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    width=st.sampled_from([None, 1, 3]),
    draw=st.data(),
)
def test_gather_is_what_a_plain_loop_gives(counts, width, draw):
    shape = () if width is None else (width,)
    total = sum(counts)
    values = np.arange(total * (width or 1), dtype=np.float32).reshape(total, *shape)
    data = Dataset.from_columns({"x": (values, np.array(counts))})
    chosen = draw.draw(st.lists(st.integers(0, len(counts) - 1), max_size=20))

    expected = [
        (values[sum(counts[:example]) + place].tolist(), which, place)
        for which, example in enumerate(chosen)
        for place in range(counts[example])
    ]
    rows = data.gather("x", np.array(chosen, np.int64))
    assert rows.counts.tolist() == [counts[example] for example in chosen]
    got = zip(rows.values.tolist(), rows.row_example.tolist(), rows.position.tolist(), strict=True)
    assert list(got) == expected
    assert rows.values.shape[1:] == shape

    again = data.subset(np.array(chosen, np.int64)).field("x")
    assert again.values.tolist() == rows.values.tolist()
    assert again.counts.tolist() == rows.counts.tolist()


def test_an_example_may_have_no_rows_also_the_first():
    data = Dataset.from_examples([{"edges": []}, {"edges": [[1, 2]]}, {"edges": []}])
    assert data.field("edges").values.tolist() == [[1, 2]]
    assert data.field("edges").values.dtype == np.int32
    assert data.field("edges").counts.tolist() == [0, 1, 0]


def test_ints_are_welcome_among_floats_and_dtypes_are_kept():
    data = Dataset.from_examples(
        [{"x": 0.5, "y": np.float32(0.5), "z": True}, {"x": 1, "y": 1, "z": False}]
    )
    assert data.field("x").values.tolist() == [0.5, 1.0]
    dtypes = {name: field.values.dtype.name for name, field in data.fields.items()}
    assert dtypes == {"x": "float64", "y": "float32", "z": "int32"}


def test_astype_casts_floats_and_shares_the_rest():
    data = Dataset.from_examples([{"x": 0.5, "label": 1}])
    cast = data.astype("float32")
    assert cast.field("x").values.dtype == np.float32
    assert cast.field("label") is data.field("label")
    assert cast.astype("float32").field("x").values.base is not None  # a view, no copy


def test_astype_refuses_a_float_that_would_become_infinite():
    data = Dataset.from_examples([{"x": [0.5, 1.0]}, {"x": [2.0, -1e39]}], where="split train")
    assert data.astype("float64").field("x").values[3] == -1e39
    with pytest.raises(
        DataError, match=r"split train: example 1, field 'x': holds -1e\+39 in row 1: too large for"
    ):
        data.astype("float32")


def test_a_data_set_may_be_empty():
    data = Dataset.from_examples([])
    assert len(data) == 0
    assert data.order(0, 1).tolist() == []
    assert (
        len(Dataset.from_columns({"x": np.zeros((0, 3))}).gather("x", np.zeros(0, int)).values) == 0
    )


def test_columns_are_read_only_and_the_callers_array_is_not():
    mine = np.zeros(2, np.float32)
    data = Dataset.from_columns({"x": mine})
    with pytest.raises(ValueError, match="read-only"):
        data.field("x").values[0] = 1
    mine[0] = 1


def test_a_generator_may_reuse_its_buffer():
    def examples():
        buffer = np.zeros(1)
        for i in range(3):
            buffer[0] = i
            yield {"x": buffer}

    assert Dataset.from_examples(examples()).field("x").values.tolist() == [0, 1, 2]


def test_order_is_a_permutation_that_depends_on_seed_and_epoch_alone():
    data = Dataset.from_columns({"x": np.zeros(100)})
    first = data.order(3, 1)
    assert sorted(first.tolist()) == list(range(100))
    assert first.tolist() == data.order(3, 1).tolist()
    assert first.tolist() != data.order(3, 2).tolist()
    assert first.tolist() != data.order(4, 1).tolist()


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"tokens": [1]}, "here: example 1: lacks field 'label', unlike example 0"),
        ({"tokens": [1], "labels": 1}, r"has field 'labels' \(did you mean 'label'\?\)"),
        (
            {"tokens": [[1, 2]], "label": 1},
            r"example 1, field 'tokens': is \[rows, 2\], but \[rows\]",
        ),
        ({"tokens": [[1], [2, 3]], "label": 1}, "field 'tokens'.*rows of different shapes"),
        ({"tokens": [1.5], "label": 1}, "field 'tokens': holds 1.5, a float"),
        ({"tokens": ["a"], "label": 1}, "field 'tokens': holds .*'a'.*not a number"),
        ({"tokens": [1], "label": None}, "field 'label': holds None"),
        ({"tokens": [1], "label": 1j}, "field 'label': holds .*1j"),
        (
            {"tokens": [1, 2**31], "label": 1},
            "example 1, field 'tokens': holds 2147483648: outside",
        ),
        (
            {"tokens": [1], "label": 2**63},
            "field 'label': holds 9223372036854775808: outside int32",
        ),
        ([1, 2], "example 1: is .*not a mapping"),
    ],
)
def test_a_wrong_example_is_named(second, message):
    with pytest.raises(DataError, match=message):
        Dataset.from_examples([TWO[0], second], where="here")


def labels_of(examples) -> Dataset:
    """Return the labels of examples, of which there are three."""
    made = Dataset.from_examples(examples, where="here")
    columns = {"label": made.field("label").values}
    return Dataset.from_columns(columns, where="here", about=About({"label": ("a", "b", "c")}))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, "example 2, field 'label': holds None"),
        (np.nan, "example 2, field 'label': holds nan, a float, but whole numbers in example 0"),
        (3, "example 2, field 'label': holds 3 in row 0: outside its vocabulary, 0 to 2"),
        (-1, "example 2, field 'label': holds -1 in row 0: outside its vocabulary"),
        ("", "example 2, field 'label': holds .*not a number"),
    ],
)
def test_row_100_a_label_that_is_none_is_named_with_its_example(label, message):
    with pytest.raises(DataError, match=f"here: {message}"):
        labels_of([{"label": 1}, {"label": 2}, {"label": label}])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_float_that_is_not_finite_is_named(value):
    examples = [{"x": [0.0]}, {"x": [0.0, 0.0]}, {"x": [0.0, value]}]
    with pytest.raises(DataError, match=rf"example 2, field 'x': holds {value} in row 1"):
        Dataset.from_examples(examples)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": np.zeros(2), "y": np.zeros(3)}, "different numbers of examples: {'x': 2, 'y': 3}"),
        ({"x": (np.zeros(2), np.array([1, 2]))}, "field 'x': has counts that add up to 3 for 2"),
        ({"x": (np.zeros(2), np.array([3, -1]))}, "field 'x': has counts"),
        ({"x": np.array(["a"])}, "field 'x': holds .*'a'"),
        ({"x": np.array([0, 2**32 - 1], np.uint32)}, "example 1, field 'x': holds 4294967295"),
        ({"x": np.array(1)}, "field 'x': is a single number"),
    ],
)
def test_wrong_columns_are_named(columns, message):
    with pytest.raises(DataError, match=message):
        Dataset.from_columns(columns)


def test_unknown_fields_and_examples_are_named():
    data = Dataset.from_examples(TWO, where="here")
    with pytest.raises(DataError, match=r"here: no field 'token' \(did you mean 'tokens'\?\)"):
        data.gather("token", np.array([0]))
    with pytest.raises(DataError, match="here: example 2 is outside the 2"):
        data.gather("label", np.array([0, 2]))
    with pytest.raises(DataError, match="example -1 is outside"):
        data.subset(np.array([-1]))


# ------------------------------------------------------------------------------ sources


def words(split, seed, *, n: int = 2, scale: float = 1.0):
    for i in range(n):
        yield {"x": [scale * i] * (i + 1), "split": int(split == "valid"), "seed": seed}


def leaves(split, seed):
    sys.exit(3)


def breaks(split, seed):
    yield {"x": 1}
    np.zeros(2)[5]


def test_a_source_is_any_generator_function():
    data = load_split(words, "valid", 7, {"n": 3, "scale": 2})
    assert data.field("x").values.tolist() == [0, 2, 2, 4, 4, 4]
    assert data.field("split").values.tolist() == [1, 1, 1]
    assert data.field("seed").values.tolist() == [7, 7, 7]


def test_a_source_may_return_columns():
    def columns(split, seed, **anything):
        return Dataset.from_columns({"x": np.arange(anything["n"])})

    assert len(load_split(columns, "train", 0, {"n": 4})) == 4


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        (
            "list_reducton",
            {},
            ConfigError,
            r"x.yaml:3: source: no data source.*did you mean 'list_reduction'",
        ),
        (
            "list_reduction",
            {"trian": 1},
            ConfigError,
            r"x.yaml:3.*'trian' \(did you mean 'train'\?\)",
        ),
        (
            "list_reduction",
            {"train": "5"},
            ConfigError,
            "train: must be a whole number .*, not '5' .*'list_red",
        ),
        ("list_reduction", {"train": -1}, ConfigError, r"number \(at least 0\), not -1"),
        ("list_reduction", {"max_digits": 0}, ConfigError, r"\(at least 1\), not 0"),
        (
            "list_reduction",
            {"train": True},
            ConfigError,
            "must be a whole number .*, not true",
        ),
        (
            "list_reduction",
            {"train": 0.5},
            ConfigError,
            "must be a whole number .*, not 0.5",
        ),
        ("pixels", {}, ConfigError, "'pixels' needs option 'path'"),
        ("pixels", {"path": "x", "label": "middle"}, ConfigError, "'first' or 'last'"),
        (words, {"seed": 1}, ConfigError, "words' has no option 'seed'"),
        (lambda split: [], {}, FunctionNameError, r"cannot be called with \(split, seed\)"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_loaded(source, options, error, message):
    with pytest.raises(error, match=message):
        check_source(source, options, where="x.yaml:3")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (breaks, {}, r"breaks', split train: raised IndexError: .*test_dataset.py:\d+\)"),
        (lambda split, seed: 5, {}, "split train: returned int, not examples"),
        (lambda split, seed: {"x": [1]}, {}, "split train: returned dict, not examples"),
        (lambda split, seed: [{"x": 1}, {}], {}, "split train: example 1: lacks field 'x'"),
        (leaves, {}, r"leaves', split train: raised SystemExit: 3 \(.*test_dataset.py:\d+\)"),
        (lambda split, seed: [{5: 1}], {}, "example 0: has a field 5; a field's name is text"),
        (lambda split, seed: [{"len(x)": 1}], {}, r"example 0: has a field 'len\(x\)'"),
        (lambda split, seed: [{"": 1}], {}, "example 0: has a field ''"),
        (
            lambda split, seed: [{"x": [1]}, {"x": np.ma.array([1, 2], mask=[True, False])}],
            {},
            "example 1, field 'x': is masked in part: a mask would be lost; fill",
        ),
    ],
)
def test_a_source_that_fails_is_named(source, options, message):
    with pytest.raises(AmpError, match=message):
        load_split(source, "train", 0, options)


async def later(split, seed):
    return []


def test_an_async_function_is_no_source():
    with pytest.raises(FunctionNameError, match=r"later' cannot be called .*: it is an async func"):
        check_source(later, {})


def test_every_source_of_ours_takes_split_and_seed():
    of_files = ("pixels", "tagged_text", "time_series", "treebank")
    for name in SOURCES:
        check_source(name, {"path": "x"} if name in of_files else {})


def test_what_a_source_says_beside_its_examples_stays_with_them():
    about = About({"label": ("no", "yes")}, ("one was left out",))
    data = Dataset.from_columns({"label": np.array([0, 1, 1])}, about=about)
    assert data.astype("float64").about == data.subset(np.array([2, 0])).about == about
    assert load_split(lambda split, seed: data, "train", 0, {}).about == about


def test_an_id_outside_its_vocabulary_is_refused():
    columns = {"token": (np.array([0, 1, 2, 1]), np.array([3, 1]))}
    with pytest.raises(DataError, match=r"example 0, field 'token': holds 2 in row 2: .* 0 to 1"):
        Dataset.from_columns(columns, about=About({"token": ("a", "b")}))
