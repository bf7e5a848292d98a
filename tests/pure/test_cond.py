"""cond: each row leaves by the output that a function of its state chooses."""

from __future__ import annotations

import pytest
from kinds import floats, make, only, rows, structure

from amp_runtime.errors import BadOptionError, FunctionNameError, InvariantError, UserFunctionError
from amp_runtime.rows.message import Mode


def cond(function, **given):
    return make("cond", floats(1), choose=f"state_functions:{function}", **given)


def by_port(emissions):
    return {e.port: e.rows for e in emissions}


def test_rows_leave_by_the_chosen_output_with_address_and_payload_unchanged():
    sent = rows([1, 2, 3], step=[0, 1, 2], x=[[10.0], [20.0], [30.0]])
    left = by_port(cond("is_odd").forward("x", sent, Mode.TRAIN))
    assert left["yes"].columns.tolist() == [[3, 1, 2, 1]]
    assert left["yes"].payload["x"].tolist() == [[20]]
    assert left["no"].columns.tolist() == [[3, 0, 1, 0], [3, 2, 3, 2]]
    assert left["no"].payload["x"].tolist() == [[10], [30]]


def test_outputs_are_chosen_by_number_in_order_of_their_names():
    node = cond("thirds", outputs=("c", "a", "b"))
    left = by_port(node.forward("x", rows(step=range(5), x=[[1.0]] * 5), Mode.TRAIN))
    assert {port: r.state[:, 1].tolist() for port, r in left.items()} == {
        "c": [0, 3], "a": [1, 4], "b": [2],
    }  # fmt: skip


def test_an_output_that_no_row_takes_emits_nothing():
    (emission,) = cond("is_odd").forward("x", rows(step=3, x=[[1.0]]), Mode.TRAIN)
    assert emission.port == "yes"


@pytest.mark.parametrize("mode", list(Mode))
def test_the_choice_may_read_structure_and_is_the_same_in_evaluation(mode):
    arena = structure({1: {"last": [4]}, 2: {"last": [6]}})
    sent = rows([1, 2], step=[4, 4], x=[[1.0], [2.0]])
    left = by_port(cond("is_last", arena=arena).forward("x", sent, mode))
    assert left["yes"].state[:, 0].tolist() == [1]
    assert left["no"].state[:, 0].tolist() == [2]


def test_nothing_is_kept_so_an_answer_is_a_bug():
    node = cond("is_odd")
    node.forward("x", rows(step=range(4), x=[[1.0]] * 4), Mode.TRAIN)
    node.assert_drained()
    with pytest.raises(InvariantError, match="'cond-1' stamps no rows, but was answered"):
        node.backward("yes", rows(x=[1.0]).columns[:, 1], None)


def test_origin_passes_unchanged_under_verify():
    sent = rows(step=[1, 2], verify=True, x=[[1.0], [2.0]])
    left = by_port(cond("is_odd", verify=True).forward("x", sent, Mode.TRAIN))
    assert left["yes"].columns.tolist() == sent.columns[:1].tolist()
    assert left["no"].columns.tolist() == sent.columns[1:].tolist()


def test_zero_rows_give_no_row():
    emissions = cond("is_odd").forward("x", rows([], [], x=[[1.0]][:0]), Mode.TRAIN)
    assert sum(len(e.rows) for e in emissions) == 0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("negative", r"must return one output number \(0 to 1\) for each of 2 rows, but returned"),
        ("thirds", "0 to 1"),
        ("one_number", r"returned int64\[\] "),
        ("real_numbers", r"returned float64\[2\]"),
        ("raises", r"raised KeyError: .*no state column 'stepp' in .instance:24, step:8"),
    ],
)
def test_a_function_that_does_not_choose_is_refused_by_name(function, said):
    with pytest.raises(UserFunctionError, match=f"node 'cond-1' .kind cond.: .*{function}.*{said}"):
        cond(function).forward("x", rows(step=[2, 0], x=[[1.0], [2.0]]), Mode.TRAIN)


def test_a_function_that_does_not_resolve_is_refused_when_the_node_is_made():
    with pytest.raises(FunctionNameError, match=r"node 'cond-1' .*has no 'is_od' .*'is_odd'"):
        cond("is_od")


def test_one_output_is_no_choice():
    with pytest.raises(BadOptionError, match=r"outputs: must be .*at least 2"):
        cond("is_odd", outputs=("only",))


def test_all_rows_on_one_output_are_passed_as_they_are():
    sent = rows(step=[1, 3], x=[[1.0], [2.0]])
    assert only(cond("is_odd").forward("x", sent, Mode.TRAIN)) is sent
