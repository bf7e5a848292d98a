"""Series from `.ts` files: of one or several dimensions, of any lengths; faults by line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.checking.rules import ConfigProblemsError
from amp_runtime.data import load_split, read_examples
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.sequences.ts_file import read_ts
from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.rows.spec import ArraySpec

HEAD = """\
# where it comes from
%and how
@problemName Steps

@timeStamps false
@univariate false
@dimensions 2
@equalLength false
@classLabel true walking At-Rest
@data
"""
SERIES = "1,2,3:10, 20 ,-3e1:At-Rest\n4:5:walking\n"
FIRST = HEAD.count("\n") + 1
"""The line of the first series."""


def write(folder: Path, text: str = HEAD + SERIES, name: str = "some.ts") -> Path:
    (folder / name).write_text(text, "utf-8", newline="")
    return folder / name


def load(path, split="train", **options):
    return load_split("time_series", split, 0, {"path": str(path), "valid": 0, **options})


def series(data):
    values, offsets = data.field("values").values, data.field("values").offsets
    return [s.tolist() for s in np.split(values, offsets[1:-1])]


@pytest.mark.parametrize(
    "text",
    [
        HEAD + SERIES,
        (HEAD + SERIES).rstrip().replace("\n", "\r\n"),
        "\ufeff" + HEAD + "\n# a comment among series\n" + SERIES,
        (HEAD.replace("@dimensions 2\n", "") + SERIES).replace("@univariate", "@UNIVARIATE"),
    ],
)
def test_a_series_becomes_a_row_a_step_and_the_number_of_its_class(tmp_path, text):
    read = read_ts(write(tmp_path, text))
    assert read.values.tolist() == [[1, 10], [2, 20], [3, -30], [4, 5]]
    assert read.counts.tolist() == [3, 1]
    assert read.label.tolist() == [1, 0]
    assert read.classes == ("walking", "At-Rest")


def test_one_dimension_is_a_vector_of_one(tmp_path):
    text = "@univariate true\n@equalLength true\n@seriesLength 2\n@classLabel true a b\n@data\n"
    data = load(write(tmp_path, text + "1,2:b\n3,4:a\n"))
    assert sorted(series(data)) == [[[1], [2]], [[3], [4]]]
    assert data.about.vocabularies == {"label": ("a", "b")}


def test_a_zipped_file_is_read(tmp_path):
    (tmp_path / "a.ts.gz").write_bytes(gzip.compress((HEAD + SERIES).encode()))
    assert len(read_ts(tmp_path / "a.ts.gz")) == 2


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(
    cases=st.lists(
        st.integers(1, 5).flatmap(
            lambda n: st.lists(st.lists(NUMBERS, min_size=n, max_size=n), min_size=3, max_size=3)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_is_read(tmp_path_factory, cases):
    lines = [":".join(",".join(map(repr, d)) for d in case) for case in cases]
    text = "@univariate false\n@data\n" + "\n".join(lines)
    read = read_ts(write(tmp_path_factory.mktemp("series"), text))
    assert read.label is None
    got = np.split(read.values, np.cumsum(read.counts)[:-1])
    assert [g.T.tolist() for g in got] == cases


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,2:3,4", "'3,4' is no class; classes are walking, At-Rest"),
        ("1,2:3,4:at-rest", r"'at-rest' is no class \(did you mean 'At-Rest'\?\)"),
        ("1,2:walking", "has 1 dimensions, not 2"),
        ("1,2:3,4:5,6:walking", "has 3 dimensions, not 2"),
        ("1,2:3:walking", "has 1 values in dimension 2, but 2 in dimension 1"),
        (":3:walking", "has no value in dimension 1: a series has one step at least"),
        ("1,x:3,4:walking", "'x' in dimension 1 is no finite number"),
        ("1,2:3,inf:walking", "'inf' in dimension 2 is no finite number"),
        ("1,2:3,:walking", "'' in dimension 2 is no finite number"),
        ("1,2:3,4?:walking", r"'4\?' in dimension 2 is no finite number"),
        ("1,2:3,?:walking", "has no value at step 2 of dimension 2; .*data.missing: previous"),
        ("NaN,2:3,4:walking", "has no value at step 1 of dimension 1"),
        ("(0,1),(1,2):(0,3),(1,4):walking", r"'\(0' in dimension 1 is no finite number"),
    ],
)
def test_a_wrong_series_is_named_by_line(tmp_path, line, said):
    file = write(tmp_path, HEAD + SERIES + line + "\n")
    with pytest.raises(
        DataError, match=rf"^AMP-E\d+: {file}:{FIRST + 2}: .*{said}|{said}"
    ) as error:
        read_ts(file)
    assert f"{file}:{FIRST + 2}: " in str(error.value)


@pytest.mark.parametrize(
    ("headers", "number", "said"),
    [
        ("@timeStamps true\n@data\n", 1, "values carry time stamps, which are not read"),
        ("@targetLabel true\n@data\n", 1, "targets are numbers, but classes are read"),
        ("@univariate yes\n@data\n", 1, "@univariate is 'yes', neither true nor false"),
        ("@univariate true\n@dimensions 2\n", 2, "2 dimensions, but a header before says 1"),
        ("@dimensions two\n", 1, "@dimensions is 'two', no whole number above 0"),
        ("@clasLabel true a\n", 1, r"unknown header '@clasLabel' \(did you mean '@classLabel'\?\)"),
        ("@classLabel true\n", 1, "@classLabel true names no class"),
        ("@classLabel true a b a\n", 1, "@classLabel names 'a' twice"),
        ("\n1,2:3\n", 2, "'1,2:3' stands before @data, and is no header"),
        ("@equalLength true\n@data\n1,2\n1\n", 4, "has 1 values, not 2, but @equalLength is true"),
        ("@equalLength true\n@seriesLength 3\n@data\n1,2\n", 4, "has 2 values, not 3"),
        ("@data\n", 0, "holds no series"),
        ("", 0, "holds no line @data"),
    ],
)
def test_a_wrong_header_is_named_by_line(tmp_path, headers, number, said):
    file = write(tmp_path, headers)
    with pytest.raises(DataError, match=said) as error:
        read_ts(file)
    assert (f"{file}:{number}: " if number else f"{file}: ") in str(error.value)


def test_missing_values_are_those_of_the_step_before_where_that_is_asked_for(tmp_path):
    file = write(tmp_path, HEAD + "?,2,?,NaN:1,?,3,4:walking\n")
    read = read_ts(file, "previous")
    assert read.values.T.tolist() == [[0, 2, 2, 2], [1, 1, 3, 4]]
    data = load(file, missing="previous")
    assert data.about.notes == (f"train: 4 values missing in {file} are those of steps before",)


# ------------------------------------------------------------------------------- splits


def many(*labels: str) -> str:
    return HEAD + "".join(f"{n}:{n}:{label}\n" for n, label in enumerate(labels))


def test_some_series_of_one_file_are_validated_on_and_stay_the_same(tmp_path):
    file = write(tmp_path, many(*["walking", "At-Rest"] * 5))
    valid = series(load(file, "valid", valid=3))
    assert series(load(file, "valid", valid=3, train=2)) == valid
    train = series(load(file, valid=3))
    assert sorted(valid + train) == [[[n, n]] for n in range(10)]
    assert series(load(file, valid=3, train=2)) == train[:2]
    assert len(load_split("time_series", "valid", 0, {"path": str(file)})) == 2  # a fifth
    with pytest.raises(DataError, match=r"10 examples, too few for train 8 \+ valid 3; lower"):
        load(file, valid=3, train=8)
    with pytest.raises(DataError, match="train is -1; it must be at least 0"):
        load(file, train=-1)


def test_a_folder_of_an_archive_brings_both_files(tmp_path):
    folder = tmp_path / "Steps"
    folder.mkdir()
    write(folder, many("walking", "walking"), "Steps_TRAIN.ts")
    write(folder, many("walking"), "Steps_eq_TRAIN.ts")
    other = many("At-Rest").replace("walking At-Rest", "At-Rest walking")
    write(folder, other, "Steps_TEST.ts")
    options = {"path": str(folder)}
    assert len(load_split("time_series", "train", 0, options)) == 2
    valid = load_split("time_series", "valid", 0, options)
    # Numbers are those of the file to train on, whatever the order of names in the other.
    assert valid.field("label").values.tolist() == [1]
    assert valid.about.vocabularies == {"label": ("walking", "At-Rest")}
    own = write(tmp_path, many("walking", "walking", "At-Rest"))
    more = {**options, "valid_path": str(own)}
    assert len(load_split("time_series", "valid", 0, more)) == 3
    (folder / "Steps_TEST.ts").unlink()
    with pytest.raises(MissingDataError, match=r"Steps holds not one file .*_TEST.ts, but none"):
        load_split("time_series", "train", 0, options)


def test_classes_must_be_known_to_the_file_that_is_trained_on(tmp_path):
    file = write(tmp_path, many("walking", "walking"))
    other = write(tmp_path, many("walking", "run").replace("At-Rest", "run"), "other.ts")
    with pytest.raises(DataError, match=rf"{other}: holds a series of class 'run', which {file}"):
        load(file, "valid", valid_path=str(other), valid=None)
    without = write(tmp_path, "@data\n1\n", "none.ts")
    with pytest.raises(DataError, match="has no classes to learn; name them: @classLabel true"):
        load(without)
    with pytest.raises(DataError, match="has no classes to validate by"):
        load(file, "valid", valid_path=str(without))


def test_wrong_options_are_refused(tmp_path):
    with pytest.raises(ConfigProblemsError, match="missing"):
        load(write(tmp_path), missing="zero")
    with pytest.raises(MissingDataError, match=r"no data file .*nowhere.ts.*@classLabel true"):
        load(tmp_path / "nowhere.ts")
    with pytest.raises(MissingDataError, match="data fetch japanese_vowels"):
        load(tmp_path / "japanese_vowels")


# -------------------------------------------------------------------------- to predict


def test_series_to_predict_need_no_classes_but_the_same_dimensions(tmp_path):
    form = ExampleForm({"values": ArraySpec((2,), "float32")})
    for text in (HEAD + SERIES, "@data\n1,2,3:10,20,-30\n4:5\n"):
        data = read_examples("time_series", {}, write(tmp_path, text), form, {})
        assert data.field("values").values.tolist() == [[1, 10], [2, 20], [3, -30], [4, 5]]
        assert list(data.fields) == ["values"]
    with pytest.raises(DataError, match=r"series of 1 dimensions, .* are float32\[rows, 2\]"):
        read_examples("time_series", {}, write(tmp_path, "@data\n1,2\n"), form, {})
