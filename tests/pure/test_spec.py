"""States become keys: equal exactly where all columns are, and never cut to fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.errors import KeyOverflowError
from amp_runtime.rows.spec import ArraySpec, Columns, PortSpec, StateSchema

SCHEMA = StateSchema((("instance", 24), ("example", 3), ("step", 5), ("node", 31)))


def states(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, np.int32)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**24 - 1),
            st.sampled_from([0, 1, 7]),
            st.sampled_from([0, 1, 31]),
            st.sampled_from([0, 1, 2**31 - 1]),
        ),
        min_size=1,
    )
)
def test_keys_are_equal_exactly_where_states_are(rows):
    keys = SCHEMA.pack(states(*rows)).tolist()
    assert len(set(keys)) == len(set(rows))
    assert min(keys) >= 0
    assert sorted(keys) == SCHEMA.pack(states(*sorted(rows))).tolist()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((1, 8, 0, 0), r"'example' holds 8, outside its 3 bits \(0 to 7\); declare more bits"),
        ((1, 0, 32, 0), "'step' holds 32, outside its 5 bits"),
        ((1, 0, -1, 0), "'step' holds -1"),
        ((1, 0, 0, -5), r"'node' holds -5, outside its 31 bits"),
    ],
)
def test_a_value_outside_its_bits_is_refused_by_column(row, said):
    with pytest.raises(KeyOverflowError, match=said):
        SCHEMA.pack(states((0, 0, 0, 0), row))


def test_instances_far_apart_may_share_a_key_and_near_ones_do_not():
    near = SCHEMA.pack(states((2**24 - 1, 0, 0, 0), (2**24, 0, 0, 0)))
    assert near[0] != near[1]


def test_no_rows_are_no_keys():
    assert SCHEMA.pack(np.zeros((0, 4), np.int32)).shape == (0,)


def test_columns_are_found_by_name():
    columns = Columns(states((9, 1, 2, 3), (8, 4, 5, 6)), SCHEMA)
    assert columns["step"].tolist() == [2, 5]
    assert columns.instance.tolist() == [9, 8]
    assert columns.example.tolist() == [1, 4]
    assert (len(columns), columns.names) == (2, SCHEMA.names)
    with pytest.raises(KeyError, match=r"no state column 'stop' in .instance:24, example:3"):
        columns["stop"]


def test_instances_of_one_example_have_example_zero():
    columns = Columns(states((9, 2)), StateSchema((("instance", 24), ("step", 5))))
    assert columns.example.tolist() == [0]


def test_an_array_fits_by_feature_shape_and_dtype():
    spec = ArraySpec((2,), "float32")
    assert spec.fits(np.zeros((5, 2), np.float32))
    assert not spec.fits(np.zeros((5, 3), np.float32))
    assert not spec.fits(np.zeros((5, 2)))
    assert not spec.fits(np.zeros(5, np.float32))
    assert str(spec) == "float32[rows, 2]"


def test_plain_data_comes_back_equal():
    spec = PortSpec({"x": ArraySpec((2, 3), "float64"), "t": ArraySpec((), "int32")}, SCHEMA)
    assert PortSpec.from_plain(spec.to_plain()) == spec
