"""Log lines that a person reads and grep finds: `time level node event key=value ...`.

Values cannot forge lines: what is not plain is written as Python would write it,
cut at VALUE_BYTES.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import Any, TextIO

VALUE_BYTES = 512
_PLAIN = re.compile(r"[\w.,:;/+\-()\[\]<>@%*]+", re.ASCII)


class Log:
    """Writes lines about one process; each is flushed, so that a crash loses none.

    Args:
        who: the node or worker that the lines are about.
        stream: where to; standard error by default, which a worker's launcher has
            turned into its log file.
    """

    def __init__(self, who: str, stream: TextIO | None = None) -> None:
        self._who = who
        self._stream = stream
        self._said: set[str] = set()

    def info(self, event: str, *, node: str = "", **values: Any) -> None:
        self._write("INFO", event, node, values)

    def warning(self, event: str, *, node: str = "", **values: Any) -> None:
        """Write a warning, once: the same event of the same node is not repeated."""
        if (key := f"{node}:{event}") not in self._said:
            self._said.add(key)
            self._write("WARNING", event, node, values)

    def error(self, event: str, *, node: str = "", **values: Any) -> None:
        self._write("ERROR", event, node, values)

    def raw(self, text: str) -> None:
        """Write text of several lines, such as a traceback, indented so that no line of it
        looks like one of ours."""
        for line in text.rstrip().splitlines():
            self._print(f"    {line}")

    def _write(self, level: str, event: str, node: str, values: dict[str, Any]) -> None:
        time = datetime.now().astimezone().isoformat(timespec="milliseconds")
        pairs = "".join(f" {key}={shown(value)}" for key, value in values.items())
        self._print(f"{time} {level} {node or self._who} {event}{pairs}")

    def _print(self, line: str) -> None:
        stream = self._stream or sys.stderr
        try:
            print(line, file=stream, flush=True)
        except OSError:
            # A full disk or a closed pipe must not end a training run.
            self._print = lambda line: None  # type: ignore[method-assign]


def shown(value: Any) -> str:
    """Return `value` as it stands behind `key=`: one word, or quoted."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    if not _PLAIN.fullmatch(text):
        text = ascii(text)
    return text if len(text) <= VALUE_BYTES else f"{text[:VALUE_BYTES]}..."
