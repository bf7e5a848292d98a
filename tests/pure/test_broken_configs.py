"""Every kind of broken config is refused with words that help, and the docs show them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from broken_configs import CASES, Broken, page, told

PAGE = Path(__file__).parents[2] / "docs" / "broken_configs.md"


@pytest.fixture(scope="module")
def results() -> dict[str, tuple[int, str]]:
    return {case.what: told(case) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_broken_config_is_refused_with_its_place_value_and_rule(results, case: Broken):
    status, said = results[case.what]
    assert status == case.exit_code, said
    assert case.says
    at = 0
    for part in case.says:
        assert part in said[at:], f"{part!r} is not said, or not in this order:\n{said}"
        at = said.index(part, at)
    *_, last = said.splitlines()
    assert re.fullmatch(r"AMP-E[23]\d\d: .{20,}", last)
    assert "Traceback" not in said


def test_the_page_shows_what_is_said(results):
    written = page([results[case.what] for case in CASES])
    assert PAGE.read_text() == written, "run `make docs`"
