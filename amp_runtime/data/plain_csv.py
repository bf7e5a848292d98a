"""Whole numbers of one to three digits, commas between: parsed without a look at any one.

Where a separator is, the digits before it are the value: one numpy expression for all
values of a few megabytes of text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

PIECE_BYTES = 4 * 2**20
MAX_DIGITS = 3

_COMMA, _LINE_END = b",\n"


def pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the text in pieces of whole lines, each line with its end, DOS ends mended."""
    rest = b""
    while piece := stream.read(PIECE_BYTES):
        whole, line_end, rest = (rest + piece).rpartition(b"\n")
        yield (whole + line_end).replace(b"\r\n", b"\n")
    if rest:
        yield rest.rstrip(b"\r") + b"\n"


def split_header(piece: bytes) -> tuple[bytes, bytes]:
    """Return the first line of the first piece, without byte order mark, and what follows."""
    head, line_end, rest = piece.removeprefix(codecs.BOM_UTF8).partition(b"\n")
    return head + line_end, rest


def plain_table(text: bytes) -> NDArray[np.uint16] | None:
    """Return the values [lines, columns], 0 to 999; None for text of any other form.

    Args:
        text: whole lines, each with its end.
    """
    characters = np.frombuffer(text, np.uint8)
    digits = characters - np.uint8(ord("0"))  # what is no digit wraps to 10 or more
    ends = np.flatnonzero(digits > 9)
    n_digits = np.diff(ends, prepend=-1) - 1
    if not len(ends) or n_digits.min() < 1 or n_digits.max() > MAX_DIGITS:
        return None
    at_line_end = characters[ends] == _LINE_END
    if not (at_line_end | (characters[ends] == _COMMA)).all():
        return None
    line_ends = np.flatnonzero(at_line_end)
    width = int(line_ends[0]) + 1 if len(line_ends) else 0
    if not width or len(ends) % width or (np.diff(line_ends) != width).any():
        return None
    values = digits[ends - 1].astype(np.uint16)
    for back in range(2, MAX_DIGITS + 1):  # an index before the text wraps, and counts nothing
        values += (n_digits >= back) * digits[ends - back] * np.uint16(10 ** (back - 1))
    return values.reshape(-1, width)
