"""CSV of one image a line: pixels 0 to 255 and a label, comma between, gzip or not.

Files of plain whole numbers, which all such data sets are, are read at the speed of
`plain_csv`; others by numpy, several times slower. Only when something is wrong are the lines
gone through once more, one by one, to say which.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from amp_runtime.data.images.labelled_images import MAX_LABEL, MAX_PIXEL, Images, is_whole
from amp_runtime.data.paths import open_data_file
from amp_runtime.data.plain_csv import pieces, plain_table, split_header
from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Array

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
LabelColumn: TypeAlias = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class _Form:
    """Where the label is, and how large it may be."""

    label: LabelColumn | None
    max_label: int

    def cut(self, table: Array) -> tuple[Array, Array]:
        """Return the pixels and the labels of lines; labels of 0 where there are none."""
        match self.label:
            case "first":
                return table[:, 1:], table[:, 0]
            case "last":
                return table[:, :-1], table[:, -1]
        return table, np.zeros(len(table), table.dtype)

    @property
    def least_width(self) -> int:
        return 1 if self.label is None else 2

    def __str__(self) -> str:
        pixels = "each line is whole pixels 0 to 255"
        if self.label is None:
            return f"{pixels}, commas between"
        return f"{pixels} and one label, commas between (data.label: first | last)"


def n_columns(path: Path) -> int:
    """Return how many values the first line of an image has.

    Raises:
        DataError: there is none.
    """
    with _lines(path) as lines:
        return next(lines).count(",") + 1


def read_csv(path: Path, *, label: LabelColumn | None, max_label: int = MAX_LABEL) -> Images:
    """Read a CSV(.gz) file.

    A first line without a single number is a header and skipped; so are empty lines.

    Args:
        path: the file.
        label: the column of the label; None: there is none.
        max_label: at most MAX_LABEL.
    Raises:
        DataError: empty file, rows of different lengths, a value that is no number,
            a pixel that is no whole number from 0 to 255, a label that is no whole
            number from 0 to `max_label`; names file and line.
    """
    form = _Form(label, max_label)
    plain = _read_plain(path, form)
    if plain is not None:
        return plain
    try:
        with _lines(path) as lines:
            table = np.loadtxt(lines, np.float32, comments=None, delimiter=",", ndmin=2)
    except ValueError as error:  # numpy counts lines without the header and empty ones
        _raise_first_fault(path, form, str(error))
    if table.shape[1] < form.least_width:
        _raise_first_fault(path, form, f"has {table.shape[1]} column")
    pixels, labels = form.cut(table)
    if not (is_whole(pixels, MAX_PIXEL).all() and is_whole(labels, max_label).all()):
        _raise_first_fault(path, form, "holds a pixel or label out of range")
    return Images(pixels.astype(np.uint8), labels.astype(np.int32))


def _read_plain(path: Path, form: _Form) -> Images | None:
    """Read a file of plain whole numbers; None for one that is not, or holds a fault."""
    pixels: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.uint16]] = []
    with open_data_file(path) as stream:
        for number, piece in enumerate(pieces(stream)):
            text = piece
            if number == 0:
                head, rest = split_header(piece)
                text = rest if _is_header(head.decode(errors="replace")) else head + rest
            if not text:  # nothing but a header so far
                continue
            if (table := plain_table(text)) is None:
                return None
            some_pixels, some_labels = form.cut(table)
            width = pixels[0].shape[1] if pixels else max(some_pixels.shape[1], 1)
            if some_pixels.shape[1] != width:
                return None
            if some_pixels.max() > MAX_PIXEL or some_labels.max() > form.max_label:
                return None
            pixels.append(some_pixels.astype(np.uint8))
            labels.append(some_labels)
    if not pixels:
        return None
    return Images(np.concatenate(pixels), np.concatenate(labels).astype(np.int32))


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[str]]:
    """Open the data lines, header left out; DataError where there is none."""
    with open_data_file(path) as stream, io.TextIOWrapper(stream, "utf-8-sig") as text:
        head = next((line for line in text if line.strip()), "")
        if not _is_header(head):
            yield itertools.chain([head], text)
            return
        first = next((line for line in text if line.strip()), "")
        if not first:
            raise DataError(
                "holds no image" if head else "is empty",
                where=str(path),
                fix="each line is the pixels of one image and its label",
            )
        yield itertools.chain([first], text)


def _is_header(line: str) -> bool:
    return not any(_NUMBER.fullmatch(value) for value in line.split(","))


def _raise_first_fault(path: Path, form: _Form, numpy_says: str) -> NoReturn:
    """Go through the file line by line and name the first fault."""
    width, may_be_header = 0, True
    with open_data_file(path) as stream:
        for number, raw in enumerate(stream, start=1):
            line = raw.decode("utf-8-sig", errors="replace").rstrip("\r\n")
            if not line or (may_be_header and not line.strip()):
                continue
            is_header, may_be_header = may_be_header and _is_header(line), False
            if is_header:
                continue
            values = line.split(",")
            width = width or len(values)
            fault = _fault(values, width, form)
            if fault:
                raise DataError(fault, where=f"{path}:{number}", fix=str(form))
    raise DataError(numpy_says, where=str(path), fix=str(form))


def _fault(values: list[str], width: int, form: _Form) -> str:
    """Return what is wrong with the values of one line, or ''."""
    if len(values) != width:
        return f"has {len(values)} values, but the first row has {width}"
    if width < form.least_width:
        return f"has the single value {values[0][:40]!r}"
    label_column = {"first": 0, "last": width - 1, None: None}[form.label]
    for column, text in enumerate(values):
        is_label = column == label_column
        what, at_most = ("label", form.max_label) if is_label else ("pixel", MAX_PIXEL)
        place = f"{what} {text.strip()[:40]!r} in column {column + 1}"
        if not _NUMBER.fullmatch(text):
            return f"{place} is not a number"
        if not is_whole(np.array(text, np.float32), at_most):
            return f"{place} is not a whole number from 0 to {at_most}"
    return ""
