"""One ragged column: rows of all examples end to end, and how its values are checked.

Values are checked a column at a time; which example is at fault is looked for only
when there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from reprlib import repr as short_repr
from typing import Any

import numpy as np

from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Array, ArraySpec, Int32, Int64

INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, eq=False)
class Scaled:
    """A column of bytes that stands for floats, one row an example.

    Attributes:
        stored: uint8 [examples, *shape]; a quarter of the memory of the floats.
        divisor: the values are `stored / divisor`.
        dtype: float32 or float64, of the values.
    """

    stored: Array
    divisor: float
    dtype: str = "float32"

    def take(self, rows: Int64) -> Array:
        """Return the values of some rows, new memory."""
        values = self.stored.take(rows, axis=0).astype(self.dtype)
        values /= self.divisor
        return values


@dataclass(frozen=True, eq=False)
class Field:
    """One named column of a data set, ragged.

    Attributes:
        column: [total, *shape], int32, float32 or float64, read-only; or bytes, scaled.
        offsets: int64 [examples + 1]; example i owns the rows
            `values[offsets[i]:offsets[i + 1]]`.
    """

    column: Array | Scaled
    offsets: Int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __str__(self) -> str:
        """Return as in `int32[rows], 2 to 10 rows an example`."""
        if not len(self):
            return str(self.spec)
        low, high = int(self.counts.min()), int(self.counts.max())
        rows = f"{low} to {high} rows" if low < high else f"{low} row{'s' * (low != 1)}"
        return f"{self.spec}, {rows} an example"

    @property
    def spec(self) -> ArraySpec:
        """What its values are: shape of a row, dtype."""
        if isinstance(self.column, Scaled):
            return ArraySpec(self.column.stored.shape[1:], self.column.dtype)
        return ArraySpec(self.column.shape[1:], self.column.dtype.name)

    @property
    def values(self) -> Array:
        """[total, *shape]; all of them: new memory where they are scaled bytes."""
        if isinstance(self.column, Scaled):
            return read_only(self.take(np.arange(self.n_rows)))
        return self.column

    @property
    def n_rows(self) -> int:
        return int(self.offsets[-1])

    def take(self, rows: Int64) -> Array:
        """Return the values of some rows, new memory."""
        if isinstance(self.column, Scaled):
            return self.column.take(rows)
        return self.column.take(rows, axis=0)

    def missing_ids(self, n: int) -> list[int]:
        """Return those of the ids 0 to n - 1 that are not among its values."""
        seen = np.zeros(n, bool)
        seen[self.values[(self.values >= 0) & (self.values < n)]] = True
        return np.flatnonzero(~seen).tolist()

    @cached_property
    def counts(self) -> Int32:
        """int32 [examples]: the rows of each example."""
        return np.diff(self.offsets).astype(np.int32)

    @cached_property
    def has_one_row_each(self) -> bool:
        return self.n_rows == len(self) and bool((self.counts == 1).all())


def place_of(where: str, number: int | None, name: str | None = None) -> str:
    """Return as in `split train: example 12, field 'tokens'`."""
    parts = [f"example {number}"] if number is not None else []
    parts += [f"field {name!r}"] if name is not None else []
    place = ", ".join(parts)
    return f"{where}: {place}" if where and place else where or place


def as_rows(value: Any) -> Array:
    """Return one example's value as `[n, *shape]`, int64 or float; a number is one row.

    Raises:
        DataError: no number, rows of different shapes, or uint64 beyond int32.
    """
    try:
        array = np.array(value)  # a copy: a generator may reuse its buffer
        if np.ma.is_masked(value):
            raise DataError(
                "is masked in part: a mask would be lost",
                fix="fill the masked values in, or leave their rows out",
            )
    except ValueError as error:
        raise DataError(
            f"{short_repr(value)} has rows of different shapes",
            fix="what varies in size varies in rows: flatten it to [rows, *shape]",
        ) from error
    if array.ndim == 0:
        array = array.reshape(1)
    if array.dtype.kind in "biu":
        if array.dtype == np.uint64 and array.size and array.max() > INT32.max:
            raise _outside_int32(array.max())
        return array.astype(np.int64, copy=False)
    if array.dtype.kind != "f":
        raise _not_numeric(array)
    return array


def join_rows(name: str, arrays: list[Array], where: str) -> Field:
    """Put one field's values of all examples, from `as_rows`, end to end.

    Raises:
        DataError: a shape that changes, floats among ints, or as in `checked_field`.
    """
    # A bare [] has neither shape nor dtype of its own: it takes those of the field.
    first = next((i for i, array in enumerate(arrays) if array.shape != (0,)), 0)
    shape, dtype = arrays[first].shape[1:], arrays[first].dtype
    for i, array in enumerate(arrays):
        if array.shape == (0,):
            arrays[i] = np.empty((0, *shape), dtype)
        elif array.shape[1:] != shape:
            raise DataError(
                f"is {_shape_text(array.shape[1:])}, but {_shape_text(shape)} in example {first}",
                where=place_of(where, i, name),
                fix="only the number of rows, the first axis, may change",
            )
        elif dtype.kind == "f" and array.dtype.kind == "i":
            arrays[i] = array.astype(dtype)
        elif dtype.kind == "i" and array.dtype.kind == "f":
            raise DataError(
                f"holds {float(array.flat[0])}, a float, but whole numbers in example {first}"
                if array.size
                else f"is an array of floats, but of whole numbers in example {first}",
                where=place_of(where, i, name),
                fix=f"write the values of example {first} as floats too",
            )
    counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
    return checked_field(name, np.concatenate(arrays), offsets_of(counts), where)


def checked_field(name: str, values: Array, offsets: Int64, where: str) -> Field:
    """Return the field of `values` [total, *shape] as int32, float32 or float64.

    No copy where the dtype is one of these already.

    Raises:
        DataError: values that are no numbers, not finite, or outside int32.
    """
    if values.dtype.kind in "biu":
        dtype: type[np.number[Any]] = np.int32
        bad = (
            (values < INT32.min) | (values > INT32.max)
            if values.dtype.itemsize >= 4 and values.dtype != np.int32
            else np.zeros(0, np.bool_)
        )
    elif values.dtype.kind == "f":
        dtype = np.float64 if values.dtype.itemsize >= 8 else np.float32
        bad = ~np.isfinite(values)
    else:
        raise _not_numeric(values).at(place_of(where, None, name))
    if bad.any():
        at, number, row = _first(bad, offsets)
        place = place_of(where, number, name)
        if dtype is np.int32:
            raise _outside_int32(values[at]).at(place)
        raise DataError(f"holds {float(values[at])} in row {row}: not finite", where=place)
    return Field(read_only(values.astype(dtype, copy=False)), offsets)


def check_values(name: str, field: Field, n_values: int, where: str) -> None:
    """Raise DataError where a field of ids holds one that is not 0 to n_values - 1."""
    values = field.values
    if (bad := (values < 0) | (values >= n_values)).any():
        at, number, row = _first(bad, field.offsets)
        raise DataError(
            f"holds {values[at]} in row {row}: outside its vocabulary, 0 to {n_values - 1}",
            where=place_of(where, number, name),
        )


def field_as(dtype: str, name: str, field: Field, where: str) -> Field:
    """Return a field of floats in `dtype`; no copy where it has it already.

    Raises:
        DataError: a value is too large for `dtype`.
    """
    if isinstance(field.column, Scaled):
        return Field(replace(field.column, dtype=dtype), field.offsets)
    with np.errstate(over="ignore"):  # found below, with its place
        values = field.values.astype(dtype, copy=False)
    if values.dtype.itemsize < field.values.dtype.itemsize and (bad := np.isinf(values)).any():
        at, number, row = _first(bad, field.offsets)
        raise DataError(
            f"holds {float(field.values[at])} in row {row}: too large for {dtype}",
            where=place_of(where, number, name),
            fix="scale the values, or set dtype: float64",
        )
    return Field(read_only(values), field.offsets)


def _first(bad: Array, offsets: Int64) -> tuple[tuple[int, ...], int, int]:
    """Return where the first true value of `bad` is: its index, its example, the row in it."""
    at = tuple(int(axis[0]) for axis in np.nonzero(bad))
    number = int(np.searchsorted(offsets, at[0], side="right")) - 1
    return at, number, at[0] - int(offsets[number])


def offsets_of(counts: Array) -> Int64:
    """Return int64 [k + 1], where each of k examples begins, and the end."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def read_only(values: Array) -> Array:
    """Return a view that cannot be written through; the caller's array stays as it is."""
    view = values.view()
    view.flags.writeable = False
    return view


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(['rows', *map(str, shape)])}]"


def _not_numeric(array: Array) -> DataError:
    return DataError(
        f"holds {short_repr(array.flat[0] if array.size else array)} ({array.dtype}): not a "
        "number of int32 or float",
        fix="give whole numbers within int32, or floats; turn words into numbers first",
    )


def _outside_int32(value: Any) -> DataError:
    return DataError(f"holds {int(value)}: outside int32 ({INT32.min} to {INT32.max})")
