"""Text in columns."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]], n_left: int = 1) -> list[str]:
    """Return the lines of a table: a header, a rule, and the rows.

    Args:
        n_left: the first columns that are names, aligned left; the others hold numbers.
    """
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.ljust(width) if at < n_left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(aligned).rstrip()

    return [line(headers), "  ".join("-" * width for width in widths), *map(line, rows)]
