"""Statuses follow each other as the table says, and errors tell the history."""

from __future__ import annotations

import itertools

import pytest

from amp_runtime.control.lifecycle import CONTROLLER_TABLE, ControllerStatus, Lifecycle
from amp_runtime.errors import LifecycleError


def test_the_table_knows_every_status_and_every_status_can_be_reached_and_left():
    assert CONTROLLER_TABLE.keys() == set(ControllerStatus)
    reached = {ControllerStatus.STARTING, *itertools.chain(*CONTROLLER_TABLE.values())}
    assert reached == set(ControllerStatus)
    assert [s for s, next_ in CONTROLLER_TABLE.items() if not next_] == [ControllerStatus.FINISHED]


@pytest.mark.parametrize("start", list(ControllerStatus))
@pytest.mark.parametrize("end", list(ControllerStatus))
def test_a_pair_that_the_table_lacks_is_refused_and_changes_nothing(start, end):
    life = Lifecycle("it", start=start)
    if end in CONTROLLER_TABLE[start]:
        life.to(end)
        assert life.status is end
        return
    with pytest.raises(LifecycleError, match=f"it cannot go from {start} to {end}; it was"):
        life.to(end)
    assert life.status is start


def test_an_event_at_the_wrong_time_is_refused_with_the_history():
    life = Lifecycle("the controller")
    life.to(ControllerStatus.LINKING)
    life.to(ControllerStatus.RUNNING)
    life.require(ControllerStatus.RUNNING, ControllerStatus.BARRIER, event="an answer")
    with pytest.raises(
        LifecycleError,
        match="'hello' came while the controller was running; it was starting -> link",
    ):
        life.require(ControllerStatus.STARTING, event="hello")
