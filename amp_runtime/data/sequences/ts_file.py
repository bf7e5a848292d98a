"""Files of time series in `.ts` form: headers, then a series a line, its class behind it.

# comments
@problemName Steps
@timeStamps false
@univariate false
@dimensions 2
@equalLength false
@classLabel true walking resting
@data
0.1,0.4,0.3:9.7,9.9,9.8:walking       dimensions are parted by colons
0.0,0.1:9.8,9.8:resting
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from amp_runtime.data.paths import text_lines
from amp_runtime.errors import DataError, nearest
from amp_runtime.rows.spec import Array, Int32, Int64

Missing = Literal["error", "previous"]

FORM = (
    "a .ts file has headers such as `@univariate true` and `@classLabel true yes no`, then "
    "`@data`, then a series a line, as in 0.1,0.4,0.3:yes"
)
_HEADERS = (
    "problemName", "timeStamps", "missing", "univariate", "dimensions", "equalLength",
    "seriesLength", "classLabel", "targetLabel", "data",
)  # fmt: skip
_BY_LOWER = {name.lower(): name for name in (*_HEADERS, "dimension")}


@dataclass(frozen=True, slots=True)
class Series:
    """The time series of a file.

    Attributes:
        values: float64 [steps of all, dimensions].
        counts: int64 [series], steps of each.
        label: int32 [series], which of `classes`; None: the file has no classes.
        n_missing: how many values the file does not have, and `previous` filled in.
    """

    values: NDArray[np.float64]
    counts: Int64
    label: Int32 | None
    classes: tuple[str, ...]
    n_missing: int

    def __len__(self) -> int:
        return len(self.counts)

    def of(self, numbers: Int64) -> tuple[Array, Int64]:
        """Return the values of some series, one behind the other, and their counts."""
        ends = np.cumsum(self.counts)
        picked = [self.values[ends[n] - self.counts[n] : ends[n]] for n in numbers.tolist()]
        return np.concatenate([self.values[:0], *picked]), self.counts[numbers]


class _Fault(Exception):  # noqa: N818 - never leaves this file
    """What is wrong with a line, and what to do about it."""

    def __init__(self, said: str, fix: str = FORM) -> None:
        super().__init__(said)
        self.fix = fix


def read_ts(path: Path, missing: Missing = "error") -> Series:
    """Read a file, gzip or not, in UTF-8.

    Series may differ in length; the dimensions of one do not. Comments begin with # or %.

    Args:
        missing: what a `?` or NaN in the place of a value is: an error, or the value of the
            step before, 0 at the first.
    Raises:
        MissingDataError: the file cannot be opened.
        DataError: it is wrong, with its line: a header that is unknown or not as it should be;
            time stamps, or targets that are no classes; a series of another length or number of
            dimensions than the headers or the others say, of no step, of an unknown class, or
            with what is no finite number.
    """
    reader = _Reader(missing)
    for number, raw in text_lines(path):
        line = raw.strip()
        if line[0] in "#%":
            continue
        try:
            if reader.in_data:
                reader.take(line)
            else:
                reader.header(line)
        except _Fault as fault:
            raise DataError(str(fault), where=f"{path}:{number}", fix=fault.fix) from None
    if not reader.counts:
        what = "series" if reader.in_data else "line @data"
        raise DataError(f"holds no {what}", where=str(path), fix=FORM)
    return reader.series()


class _Reader:
    """Takes the lines of a file.

    Attributes:
        in_data: whether the headers are over.
        counts: steps of each series so far.
    """

    def __init__(self, missing: Missing) -> None:
        self._missing = missing
        self._n_dimensions: int | None = None
        self._equal = False
        self._length: int | None = None
        self._classes: tuple[str, ...] = ()
        self._number_of: dict[str, int] = {}
        self._values: list[NDArray[np.float64]] = []
        self._labels: list[int] = []
        self._n_missing = 0
        self.in_data = False
        self.counts: list[int] = []

    def series(self) -> Series:
        label = np.array(self._labels, np.int32) if self._classes else None
        values = np.concatenate(self._values)
        return Series(values, np.array(self.counts), label, self._classes, self._n_missing)

    # ---- headers

    def header(self, line: str) -> None:
        """Take a line in front of the data.

        Raises:
            _Fault: it is no header, an unknown one, or says what is not read here.
        """
        name, *words = line.split()
        known = _BY_LOWER.get(name[1:].lower())
        if name[0] != "@":
            raise _Fault(f"{line[:40]!r} stands before @data, and is no header")
        if known is None:
            names = ", ".join(f"@{header}" for header in _HEADERS)
            hint = nearest(name, [f"@{header}" for header in _HEADERS])
            raise _Fault(f"unknown header {name!r}{hint}", f"headers are {names}")
        if known == "data":
            self.in_data = True
        elif known == "timeStamps" and _truth(known, words):
            raise _Fault(
                "its values carry time stamps, which are not read",
                "write the values alone, at even steps, and @timeStamps false",
            )
        elif known == "targetLabel" and _truth(known, words):
            raise _Fault(
                "its targets are numbers, but classes are read",
                "write classes, and @classLabel true with their names",
            )
        elif known == "univariate" and _truth(known, words):
            self._set_dimensions(1)
        elif known in ("dimension", "dimensions"):
            self._set_dimensions(_whole(known, words))
        elif known == "equalLength":
            self._equal = _truth(known, words)
        elif known == "seriesLength":
            self._length = _whole(known, words)
        elif known == "classLabel" and _truth(known, words):
            self._set_classes(tuple(words[1:]))

    def _set_dimensions(self, n: int) -> None:
        if self._n_dimensions not in (None, n):
            raise _Fault(f"{n} dimensions, but a header before says {self._n_dimensions}")
        self._n_dimensions = n

    def _set_classes(self, names: tuple[str, ...]) -> None:
        if not names:
            raise _Fault("@classLabel true names no class")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise _Fault(f"@classLabel names {twice!r} twice")
        self._classes = names
        self._number_of = {name: number for number, name in enumerate(names)}

    # ---- data

    def take(self, line: str) -> None:
        """Take a series.

        Raises:
            _Fault: what is wrong with it.
        """
        texts = line.split(":")
        label = self._label(texts.pop().strip()) if self._classes else None
        if self._n_dimensions is None:
            self._n_dimensions = len(texts)
        if len(texts) != self._n_dimensions:
            behind = " and a class behind them" if self._classes else ""
            raise _Fault(
                f"has {len(texts)} dimensions, not {self._n_dimensions}",
                f"a series here has {self._n_dimensions} dimensions, a colon between{behind}",
            )
        arrays = [self._dimension(number, text) for number, text in enumerate(texts, start=1)]
        length = len(arrays[0])
        for number, array in enumerate(arrays, start=1):
            if len(array) != length:
                raise _Fault(
                    f"has {len(array)} values in dimension {number}, but {length} in dimension 1",
                    "the dimensions of a series are of one length",
                )
        if self._equal and length != (self._length or (self.counts or [length])[0]):
            wanted = self._length or self.counts[0]
            raise _Fault(
                f"has {length} values, not {wanted}, but @equalLength is true",
                "write @equalLength false where series differ",
            )
        values = np.stack(arrays, axis=1)
        self._values.append(self._filled(values))
        self.counts.append(length)
        if label is not None:
            self._labels.append(label)

    def _label(self, name: str) -> int:
        if name not in self._number_of:
            raise _Fault(
                f"{name[:40]!r} is no class{nearest(name, self._classes)}",
                f"classes are {', '.join(self._classes)}, behind the last colon of a line",
            )
        return self._number_of[name]

    def _dimension(self, number: int, text: str) -> NDArray[np.float64]:
        """Return the values of a dimension; NaN for those that are missing."""
        words = text.replace("?", "nan").split(",")
        try:
            values = np.fromiter(map(float, words), np.float64, len(words))
        except ValueError:
            values = None
        if values is not None and not np.isinf(values).any():
            return values
        if not text.strip():
            raise _Fault(f"has no value in dimension {number}: a series has one step at least")
        bad = next(word for word in text.split(",") if not _is_value(word))
        raise _Fault(f"{bad.strip()[:40]!r} in dimension {number} is no finite number")

    def _filled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return [steps, dimensions] with the values of the step before where some are missing."""
        if not (gone := np.isnan(values)).any():
            return values
        if self._missing == "error":
            step, dimension = (int(axis[0]) for axis in np.nonzero(gone))
            raise _Fault(
                f"has no value at step {step + 1} of dimension {dimension + 1}",
                "fill it in, or set data.missing: previous, which takes that of the step before",
            )
        self._n_missing += int(gone.sum())
        steps = np.arange(len(values))[:, np.newaxis]
        latest = np.maximum.accumulate(np.where(gone, -1, steps), axis=0)
        taken = np.take_along_axis(values, np.maximum(latest, 0), axis=0)
        return np.where(latest < 0, 0.0, taken)


def _is_value(word: str) -> bool:
    """Whether a word stands for a number, or says that there is none."""
    try:
        return word.strip() == "?" or not np.isinf(float(word))
    except ValueError:
        return False


def _truth(name: str, words: list[str]) -> bool:
    value = words[0].lower() if words else ""
    if value not in ("true", "false"):
        raise _Fault(f"@{name} is {' '.join(words)[:40]!r}, neither true nor false")
    return value == "true"


def _whole(name: str, words: list[str]) -> int:
    said = " ".join(words)
    if not said.isdecimal() or int(said) < 1:
        raise _Fault(f"@{name} is {said[:40]!r}, no whole number above 0")
    return int(said)
