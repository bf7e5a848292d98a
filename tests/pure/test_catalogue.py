"""The table of faults names a test, or a reason, for each; and the tests are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = {*map(str, [*range(1, 28), *range(43, 59), *range(132, 148)]), "26b"}


def table() -> dict[str, str]:
    """Return {row: what its last column says}."""
    text = (TESTS / "fault" / "README.md").read_text()
    rows = re.findall(r"^\| (\d+b?) \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_each_row_has_a_test_or_a_reason():
    found = table()
    assert found.keys() == ROWS
    for row, tests in found.items():
        assert re.fullmatch(r"none: .+|`\S+::\w+`(, `\S+::\w+`)*(; none: .+)?", tests), row


def test_each_test_that_is_named_is_there():
    gone = [
        f"{row}: {file}::{name}"
        for row, tests in table().items()
        for file, name in re.findall(r"`(\S+)::(\w+)`", tests)
        if not re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE)
    ]
    assert gone == []
