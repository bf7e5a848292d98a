"""A file of finished runs, one JSON line each: a benchmark that was interrupted goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]


class ResultsFile:
    """Lines of what was run: what tells one run from all others, and what it came to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self, **of: Any) -> list[Line]:
        """Return the lines in which these entries are as given."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        found: list[Line] = [json.loads(line) for line in lines]
        return [line for line in found if all(line[name] == of[name] for name in of)]

    def get(self, key: Line, run: Callable[[], Line]) -> Line:
        """Return the line of one run; if there is none, do it and keep what it returns."""
        if done := self.lines(**key):
            return done[-1]
        line = {**key, **run()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), file=sys.stderr, flush=True)
        return line
