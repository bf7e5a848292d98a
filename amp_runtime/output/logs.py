"""Reading the log files of a run: one story out of many."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path


def merged_lines(folder: Path) -> Iterator[str]:
    """Yield the lines of all log files in order of time.

    A line without a time of its own (a traceback) stays behind the line before it.
    """
    files = sorted(folder.glob("*.log"))
    for _, _, block in heapq.merge(*(_blocks(file, i) for i, file in enumerate(files))):
        yield from block


def _blocks(file: Path, number: int) -> Iterator[tuple[str, int, list[str]]]:
    """Yield (time, file number, lines): a line with a time, and those that belong to it."""
    time, block = "", list[str]()
    for line in file.read_text(errors="replace").splitlines():
        if line[:4].isdigit() and line[4:5] == "-" and "T" in line[:11]:
            if block:
                yield time, number, block
            time, block = line.split(" ", 1)[0], []
        block.append(line)
    if block:
        yield time, number, block
