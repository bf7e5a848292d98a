"""Examples in columns: whatever varies in size from example to example varies in rows.

    examples   {"tokens": [10, 3, 7], "label": 5}, {"tokens": [13, 4], "label": 1}
    tokens     values  10 3 7 13 4      offsets 0 3 5
    label      values  5 1              offsets 0 1 2

Examples are Python objects only on the way in. Afterwards every operation is one
numpy expression over rows, so that the controller injects at the speed of a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from reprlib import repr as short_repr
from typing import Any

import numpy as np

from amp_runtime.data.about import SILENT, About
from amp_runtime.data.field import (
    Field,
    Scaled,
    as_rows,
    check_values,
    checked_field,
    field_as,
    join_rows,
    offsets_of,
    place_of,
    read_only,
)
from amp_runtime.errors import DataError, nearest
from amp_runtime.rows.spec import Array, Int32, Int64


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The rows of k chosen examples, one example after the other.

    Attributes:
        values: [rows, *shape], new memory.
        counts: int32 [k], rows of each chosen example.
        row_example: int32 [rows], 0 to k - 1: which of the chosen a row belongs to.
        position: int32 [rows]: place of the row within its example.
    """

    values: Array
    counts: Int32
    row_example: Int32
    position: Int32


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples of one split, column by column.

    Attributes:
        fields: the columns by name; all hold the same number of examples.
        n_examples: how many.
        where: names the data in errors, as in `data source pixels, split valid`.
        about: what the source says beside the examples.
    """

    fields: Mapping[str, Field]
    n_examples: int
    where: str = ""
    about: About = SILENT

    def __len__(self) -> int:
        return self.n_examples

    def __str__(self) -> str:
        fields = "; ".join(f"{name}: {field}" for name, field in self.fields.items())
        return f"{self.n_examples} examples ({fields})"

    # ------------------------------------------------------------------------- ways in

    @staticmethod
    def from_examples(examples: Iterable[Mapping[str, Any]], *, where: str = "") -> Dataset:
        """Store examples, each a mapping from field name to array-like.

        Args:
            examples: every value is a number (one row) or array-like `[n, *shape]`;
                n may differ from example to example, also 0; names and `shape` may
                not. Whole numbers become int32; floats stay float32 or float64.
                Ints are welcome in a field of floats, not the other way round.
        Raises:
            DataError: a field missing or unknown, a shape that changes, a value that
                is no number, not finite or outside int32; names example (counted
                from 0), field and value.
        """
        columns: dict[str, list[Array]] = {}
        n_examples = 0
        for number, example in enumerate(examples):
            if not isinstance(example, Mapping):
                raise DataError(
                    f"is {short_repr(example)}, not a mapping from field name to values",
                    where=place_of(where, number),
                    fix='yield one dict an example, as in {"tokens": [1, 2], "label": 0}',
                )
            if number == 0:
                columns = {name: [] for name in example}
                _check_names(columns, place_of(where, 0))
            elif example.keys() != columns.keys():
                raise _names_differ(example, columns, place_of(where, number))
            for name, value in example.items():
                try:
                    columns[name].append(as_rows(value))
                except DataError as error:
                    raise error.at(place_of(where, number, name)) from error.__cause__
            n_examples = number + 1
        fields = {name: join_rows(name, rows, where) for name, rows in columns.items()}
        return Dataset(fields, n_examples, where)

    @staticmethod
    def from_columns(
        columns: Mapping[str, Array | tuple[Array, Array] | Scaled],
        *,
        where: str = "",
        about: About = SILENT,
    ) -> Dataset:
        """Store columns as they are, without a look at single examples.

        Args:
            columns: by field name, either values `[examples, *shape]`, one row an
                example, or a pair (values `[total, *shape]`, counts int `[examples]`),
                or bytes that stand for floats, which stay bytes.
            about: what holds for all of them.
        Raises:
            DataError: counts that do not add up, columns of different length, values
                as in `from_examples`, or one that its vocabulary does not hold.
        """
        fields: dict[str, Field] = {}
        for name, column in columns.items():
            if isinstance(column, Scaled):
                fields[name] = Field(column, np.arange(len(column.stored) + 1))
                continue
            place = place_of(where, None, name)
            values = np.asarray(column[0] if isinstance(column, tuple) else column)
            if values.ndim == 0:
                raise DataError("is a single number, not a column", where=place)
            counts = (
                np.asarray(column[1])
                if isinstance(column, tuple)
                else np.ones(len(values), np.int64)
            )
            if (counts < 0).any() or counts.sum() != len(values):
                raise DataError(
                    f"has counts that add up to {counts.sum()} for {len(values)} rows",
                    where=place,
                    fix="counts are at least 0 and cover every row once",
                )
            fields[name] = checked_field(name, values, offsets_of(counts), where)
        lengths = {name: len(field) for name, field in fields.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"columns hold different numbers of examples: {lengths}", where=where)
        for name, words in about.vocabularies.items():
            check_values(name, fields[name], len(words), where)
        return Dataset(fields, next(iter(lengths.values()), 0), where, about)

    # ------------------------------------------------------------------------ ways out

    def field(self, name: str) -> Field:
        """Return a column; DataError with the nearest name where there is none."""
        try:
            return self.fields[name]
        except KeyError:
            raise DataError(
                f"no field {name!r}{nearest(name, self.fields)}; the examples have "
                f"{', '.join(map(repr, self.fields)) or 'no field'}",
                where=self.where,
            ) from None

    def gather(self, name: str, examples: Int64) -> Gathered:
        """Return the rows of one field for some examples, in the order asked for.

        Args:
            name: the field.
            examples: int [k], 0 to len(self) - 1; repeats are allowed.
        Raises:
            DataError: no such field, or an example outside the data set.
        Cost: O(k + rows gathered), no Python per row.
        """
        field = self.field(name)
        self._check_range(examples)
        k = len(examples)
        if field.has_one_row_each:
            return Gathered(
                field.take(examples),
                np.ones(k, np.int32),
                np.arange(k, dtype=np.int32),
                np.zeros(k, np.int32),
            )
        counts = field.counts[examples]
        ends = np.cumsum(counts, dtype=np.int64)
        begins = ends - counts
        n_rows = int(ends[-1]) if k else 0
        row_example = np.repeat(np.arange(k, dtype=np.int32), counts)
        position = np.arange(n_rows) - begins[row_example]
        source = field.offsets[examples][row_example] + position
        return Gathered(field.take(source), counts, row_example, position.astype(np.int32))

    def order(self, seed: int, epoch: int) -> Int64:
        """Return the training order of an epoch: int64 [examples], a permutation.

        Depends on (seed, epoch) alone, so that a resumed run goes on in the order it
        would have had. Validation goes in the natural order.
        """
        random = np.random.default_rng(np.random.SeedSequence([seed, epoch]))
        return random.permutation(self.n_examples)

    def subset(self, examples: Int64) -> Dataset:
        """Return a new data set of these examples, in this order, new memory."""
        fields: dict[str, Field] = {}
        for name in self.fields:
            rows = self.gather(name, examples)
            fields[name] = Field(read_only(rows.values), offsets_of(rows.counts))
        return replace(self, fields=fields, n_examples=len(examples))

    def astype(self, dtype: str) -> Dataset:
        """Return the data set with its float fields in `dtype` (float32 or float64).

        Fields of ints, and of floats that have the dtype already, are shared.

        Raises:
            DataError: a value is too large for `dtype`.
        """
        fields = {
            name: field_as(dtype, name, field, self.where) if field.spec.dtype != "int32" else field
            for name, field in self.fields.items()
        }
        return replace(self, fields=fields)

    def _check_range(self, examples: Int64) -> None:
        if len(examples) == 0:
            return
        low, high = int(examples.min()), int(examples.max())
        if low < 0 or high >= self.n_examples:
            raise DataError(
                f"example {low if low < 0 else high} is outside the {self.n_examples} "
                "examples, which are counted from 0",
                where=self.where,
            )


def _check_names(names: Iterable[Any], place: str) -> None:
    for name in names:
        if not isinstance(name, str) or not name or name[0] == "@" or name.startswith("len("):
            raise DataError(
                f"has a field {name!r:.80}",
                where=place,
                fix="a field's name is text, without @ or len( at its beginning",
            )


def _names_differ(example: Mapping[str, Any], columns: Mapping[str, Any], place: str) -> DataError:
    missing = [name for name in columns if name not in example]
    extra = [name for name in example if name not in columns]
    words = [f"lacks field {name!r}" for name in missing]
    words += [f"has field {name!r}{nearest(name, missing)}" for name in extra]
    return DataError(
        f"{' and '.join(words)}, unlike example 0",
        where=place,
        fix=f"every example has the fields of the first: {', '.join(map(repr, columns))}",
    )
