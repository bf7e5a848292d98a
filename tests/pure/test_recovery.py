"""What follows on failures: who is started anew, what is left out, when the run ends."""

from __future__ import annotations

import pytest

from amp_runtime.control.recovery import FIRST, Failure, Generation, Recovery, RecoverySettings
from amp_runtime.errors import RestartLimitError, WorkerExitedError, WorkerFaultError

NONE: frozenset[int] = frozenset()


def crash(peer=1, what="ended unasked, signal 9"):
    return Failure(WorkerExitedError(what, where=f"worker {peer}", fix="see its log"), peer)


def fault(peer=1, what="ValueError: no"):
    error = WorkerFaultError(what, where="node 'x', pid 17", fix="see its log")
    return Failure(error, peer, raised=True)


def recovery(**settings):
    return Recovery(RecoverySettings(**settings))


def after(made, crashes, now=0.0):
    """Return the generation after crashes of worker 1, each with these instances in flight."""
    for in_flight in crashes:
        generation = made.next([crash()], frozenset(in_flight), now)
    return generation


def test_a_failure_begins_a_generation_in_which_only_who_failed_is_another_incarnation():
    made = recovery()
    first = made.next([crash(2)], NONE, 0.0)
    assert (first.number, [first.incarnation(p) for p in (1, 2, 3)]) == (1, [0, 1, 0])
    second = made.next([crash(3)], NONE, 1.0)
    assert (second.number, [second.incarnation(p) for p in (1, 2, 3)]) == (2, [0, 1, 1])
    assert made.generation is second


def test_failures_that_come_together_are_one_recovery_and_each_counts():
    made = recovery(max_restarts=2)
    generation = made.next([crash(1), crash(2)], NONE, 0.0)
    assert (generation.number, generation.incarnations) == (1, {1: 1, 2: 1})
    with pytest.raises(RestartLimitError):
        made.next([crash(3)], NONE, 1.0)


def test_a_run_that_goes_on_has_generations_of_its_own():
    made = Recovery(RecoverySettings(), generation=3)
    assert made.generation.number == 3
    assert made.next([crash()], NONE, 0.0).number == 4


def test_lost_rows_begin_a_generation_without_a_new_process():
    lost = Failure(WorkerExitedError("rows were lost on their way"), None)
    generation = recovery().next([lost], NONE, 0.0)
    assert (generation.number, generation.incarnations) == (1, {})


def test_one_restart_more_than_the_limit_ends_the_run_and_the_first_failure_is_quoted():
    made = recovery(max_restarts=2, window_s=10)
    made.next([crash(what="the first")], NONE, 0.0)
    made.next([crash(what="the second")], NONE, 1.0)
    with pytest.raises(RestartLimitError) as error:
        made.next([crash(what="the third")], NONE, 2.0)
    assert error.value.what.startswith(
        "restart limit 2 in 10 s; first failure: worker 1: the first"
    )
    assert "max_restarts" in error.value.fix


def test_restarts_before_the_window_do_not_count():
    made = recovery(max_restarts=1, window_s=10)
    for now in (0.0, 10.1, 20.2):
        assert made.next([crash()], NONE, now).number == made.generation.number
    with pytest.raises(RestartLimitError, match="first failure: worker 1: ended"):
        made.next([crash()], NONE, 20.3)


def test_without_recovery_the_first_failure_is_the_end():
    with pytest.raises(WorkerExitedError, match="signal 9"):
        recovery(rollback=False).next([crash(), fault()], NONE, 0.0)


def test_the_same_exception_twice_in_a_row_ends_the_run_with_it():
    made = recovery()
    assert made.next([fault()], NONE, 0.0).number == 1
    with pytest.raises(WorkerFaultError, match=r"ValueError: no \(the same twice in a row\)"):
        made.next([fault()], NONE, 1.0)


@pytest.mark.parametrize("between", [fault(2), fault(1, "KeyError: 3"), crash(1)])
def test_an_exception_that_comes_again_after_another_failure_is_no_loop(between):
    made = recovery()
    for failure in (fault(), between, fault()):
        generation = made.next([failure], NONE, 0.0)
    assert generation.number == 3


def test_the_same_crash_twice_in_a_row_is_no_end():
    assert after(recovery(), [NONE, NONE]).number == 2


# ------------------------------------------------------------------ instances that crash


def test_after_two_crashes_what_was_in_flight_at_both_goes_alone():
    made = recovery()
    assert after(made, [{3, 4, 5}]).careful == NONE
    assert after(made, [{4, 5, 6}]).careful == {4, 5}


def test_what_was_alone_at_the_third_crash_is_left_out_and_all_else_goes_on():
    made = recovery()
    generation = after(made, [{3, 4, 5}, {4, 5, 6}, {5}])
    assert (generation.left_out, generation.careful) == ({5}, NONE)
    assert made.left_out == {5: 1}
    assert made.news("worker {}".format) == [
        "instance 5 is left out from now on: worker 1 crashed 3 times while it was in flight"
    ]
    made.next([crash(2)], NONE, 0.0)
    assert made.generation.left_out == {5}
    assert made.news("worker {}".format) == []


def test_crashes_with_nothing_in_common_make_nobody_suspect():
    assert after(recovery(), [{1, 2}, {3, 4}, {5, 6}]).careful == NONE


def test_crashes_of_two_workers_are_told_apart():
    made = recovery()
    made.next([crash(1)], frozenset({7}), 0.0)
    assert made.next([crash(2)], frozenset({7}), 0.0).careful == NONE


def test_who_raises_makes_no_instance_suspect():
    made = recovery()
    made.next([fault(1, "a")], frozenset({7}), 0.0)
    assert made.next([fault(1, "b")], frozenset({7}), 0.0).careful == NONE


def test_with_quarantine_after_one_crash_who_was_alone_is_left_out_at_once():
    assert after(recovery(quarantine_after=1), [{4}]).left_out == {4}


@pytest.mark.parametrize(
    ("upcoming", "live", "admitted"),
    [
        (2, set(), 8),  # 10 and what follows wait
        (8, {7}, 2),
        (10, {9}, 0),
        (10, set(), 1),
        (11, {10}, 0),
        (12, set(), 1),
        (13, {12}, 0),
    ],
)
def test_who_is_suspect_is_admitted_alone(upcoming, live, admitted):
    generation = Generation(1, careful=frozenset({10, 12}))
    assert generation.admits(upcoming, frozenset(live)) == admitted


def test_behind_the_suspects_all_may_go_and_what_is_left_out_is_no_place():
    generation = Generation(1, careful=frozenset({10, 12}), left_out=frozenset({4, 20}))
    assert generation.admits(13, frozenset()) > 1_000_000
    assert generation.admits(2, frozenset()) == 7


def test_the_report_quotes_the_first_failure_and_names_what_was_left_out():
    made = recovery()
    assert made.report("worker {}".format) == []
    after(made, [{5}, {5}, {5}])
    lines = made.report("worker {}".format)
    assert lines[0].startswith("recovered from 3 failures; the first: ")
    assert "ended unasked, signal 9" in lines[0]
    assert lines[1] == "instances left out, at which a worker crashed: 5 (worker 1)"
    assert FIRST.number == 0
