"""isu: the state changes, the payload and the return address pass."""

from __future__ import annotations

import pytest
from kinds import floats, make, only, rows

from amp_runtime.errors import InvariantError, KeyOverflowError, UserFunctionError
from amp_runtime.rows.message import Mode


def isu(function, **given):
    return make("isu", floats(1), update=f"state_functions:{function}", **given)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_named_column_changes_and_nothing_else(mode):
    sent = rows([5, 6], step=[1, 9], first_slot=3, x=[[1.0], [2.0]])
    left = only(isu("next_step").forward("x", sent, mode))
    assert left.columns.tolist() == [[3, 3, 5, 2], [3, 4, 6, 10]]
    assert left.payload is sent.payload
    assert sent.state.tolist() == [[5, 1], [6, 9]]


def test_one_value_may_stand_for_all_rows():
    left = only(isu("to_seven").forward("x", rows(step=[1, 2], x=[[1.0]] * 2), Mode.TRAIN))
    assert left.state[:, 1].tolist() == [7, 7]


def test_origin_passes_unchanged_under_verify():
    sent = rows(step=[1, 2], verify=True, x=[[1.0], [2.0]])
    left = only(isu("next_step", verify=True).forward("x", sent, Mode.TRAIN))
    assert left.state.tolist() == [[1, 2], [1, 3]]
    assert left.origin.tolist() == [[1, 1], [1, 2]]


def test_zero_rows_give_zero_rows():
    assert len(only(isu("next_step").forward("x", rows([], [], x=[[1.0]][:0]), Mode.TRAIN))) == 0


def test_nothing_is_kept_so_an_answer_is_a_bug():
    node = isu("next_step")
    node.forward("x", rows(x=[[1.0]]), Mode.TRAIN)
    node.assert_drained()
    with pytest.raises(InvariantError, match="'isu-1' stamps no rows, but was answered"):
        node.backward("y", rows(x=[1.0]).columns[:, 1], None)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("other_instance", "changes 'instance', which is no column it may change"),
        ("misspelt", r"changes 'stop', which is no column it may change \(did you mean 'step'\?\)"),
        ("too_few", r"returned int32\[1\] for 'step', not int\[2\]"),
        ("halves", r"returned float64\[2\] for 'step'"),
        ("one_number", "returned int, not a dict of columns"),
        ("beyond_int32", "returned 429496729[68] for 'step', outside int32"),
        ("raises", "raised KeyError"),
    ],
)
def test_a_function_that_does_not_update_is_refused_by_name(function, said):
    with pytest.raises(UserFunctionError, match=f"node 'isu-1' .kind isu.: .*{function} .*{said}"):
        isu(function).forward("x", rows(step=[0, 2], x=[[1.0], [2.0]]), Mode.TRAIN)


def test_a_value_outside_the_columns_bits_is_refused():
    with pytest.raises(KeyOverflowError, match=r"'step' holds 302, outside its 8 bits \(0 to 255"):
        isu("too_far").forward("x", rows(step=[1, 2], x=[[1.0], [2.0]]), Mode.TRAIN)
