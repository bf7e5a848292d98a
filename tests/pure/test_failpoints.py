"""Failpoints: nothing in a run, and in tests what is asked for, at the time asked for."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from amp_runtime import failpoints
from amp_runtime.errors import UsageError
from amp_runtime.processes import failing
from amp_runtime.processes.failing import FailpointError, arm

ROOT = Path(__file__).parents[2]
PLACE = "worker.after_apply"


@pytest.fixture(autouse=True)
def _nothing_armed(monkeypatch):
    monkeypatch.setattr(failpoints, "hit", failpoints.hit)


def asked(text, **more):
    return {"AMP_TESTING": "1", "AMP_FAILPOINT": text, **more}


def times_until_raised(most=5):
    """Return at which time the place raises; 0: it does not."""
    for time_ in range(1, most + 1):
        try:
            failpoints.hit(PLACE)
        except FailpointError:
            return time_
    return 0


def test_each_place_of_the_table_is_in_the_code_once_and_no_other_is():
    text = "".join(
        path.read_text()
        for folder in ("amp_runtime", "workers")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "failpoints.py"
    )
    found = re.findall(r'failpoints\.hit\("([^"]+)"\)', text)
    assert sorted(found) == sorted(failpoints.FAILPOINTS)
    assert text.count("failpoints.hit(") == len(found)
    assert len(found) >= 12


def test_nothing_happens_without_amp_testing_whatever_is_asked_for():
    before = failpoints.hit
    arm("linear-1", environ={"AMP_FAILPOINT": f"{PLACE}=raise"})
    arm("linear-1", environ=asked(f"{PLACE}=raise", AMP_TESTING="0"))
    arm("linear-1", environ={"AMP_TESTING": "1"})
    assert failpoints.hit is before
    assert times_until_raised() == 0


@pytest.mark.parametrize(
    ("text", "who", "incarnation", "at"),
    [
        (f"{PLACE}=raise", "linear-1", 0, 1),
        (f"{PLACE}=raise@3", "linear-1", 0, 3),
        (f"worker.in_reset=kill, {PLACE}=raise@2", "linear-1", 0, 2),
        (f"{PLACE}:linear-1=raise", "linear-1", 0, 1),
        (f"{PLACE}:linear-1=raise", "linear-2", 0, 0),
        (f"{PLACE}=raise", "linear-1", 1, 0),
        (f"{PLACE}=raise@*", "linear-1", 1, 1),
        ("worker.in_reset=kill", "linear-1", 0, 0),
    ],
)
def test_a_place_is_armed_for_one_worker_and_time_and_its_first_incarnation(
    text, who, incarnation, at
):
    arm(who, incarnation, asked(text))
    assert times_until_raised() == at
    if at and not text.endswith("*"):
        assert times_until_raised() == 0  # once


def test_every_time_is_every_time(monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    arm("linear-1", environ=asked(f"{PLACE}=sleep@*"))
    for _ in range(3):
        failpoints.hit(PLACE)
    assert slept == [failing.SLEEP_S] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("worker.after_aply=kill", r"no place 'worker.after_aply' \(did you mean 'worker.after_"),
        (f"{PLACE}=kil", r"no action 'kil' \(did you mean 'kill'\?\); use kill, exit"),
        (f"{PLACE}", "is not of the form PLACE"),
        (f"{PLACE}=kill@", "is not of the form PLACE"),
        (f"{PLACE}=kill@0", "the first time is 1"),
        ("", None),
    ],
)
def test_what_there_is_not_is_refused_by_name(text, said):
    if said is None:
        arm("linear-1", environ=asked(text))
        return
    with pytest.raises(UsageError, match=said) as caught:
        arm("linear-1", environ=asked(text))
    assert caught.value.line().startswith("AMP-E101: AMP_FAILPOINT: ")
