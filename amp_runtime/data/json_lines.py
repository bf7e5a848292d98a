"""Examples in a file of JSON lines: an object a line, its keys the fields of an example.

    {"tokens": ["range", 4, 9, 1]}
    {"tokens": [13, 4], "label": 1}          what is not needed is not read

This is the form in which any data source's examples can be given to `predict`.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.field import INT32, as_rows
from amp_runtime.data.paths import open_data_file, text_lines
from amp_runtime.data.vocabulary import UNKNOWN, nfc
from amp_runtime.errors import DataError, nearest
from amp_runtime.rows.spec import Array, ArraySpec


@dataclass(frozen=True, slots=True)
class ExampleForm:
    """What an example must hold.

    Attributes:
        fields: {field: spec, or None: any numbers, as only how many they are matters}.
        alike: groups of fields with as many elements as each other.
        single: fields of one element.
        at_least: {field: how many elements it must have}.
    """

    fields: Mapping[str, ArraySpec | None]
    alike: Sequence[Sequence[str]] = ()
    single: Sequence[str] = ()
    at_least: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        keys = ", ".join(f'"{name}": ...' for name in self.fields)
        return f"a line is one example, as in {{{keys}}}; labels are not needed"

    def fault(self, counts: Mapping[str, int]) -> str:
        """Say what is wrong with the numbers of elements of an example's fields, or ''."""
        for group in self.alike:
            if len({counts[name] for name in group}) > 1:
                said = ", ".join(f"{counts[name]} in {name!r}" for name in group)
                return f"has fields of different lengths: {said}"
        for name, least in self.at_least.items():
            if counts[name] < least:
                return f"has {counts[name]} elements in {name!r}, but needs {least} at least"
        wrong = (name for name in self.single if counts[name] != 1)
        return next((f"has {counts[name]} elements in {name!r}, not one" for name in wrong), "")


def is_json_lines(file: Path) -> bool:
    """Whether a file is named so, or its first character that is no space is a brace."""
    if {".jsonl", ".json", ".ndjson"} & set(file.suffixes):
        return True
    with open_data_file(file) as stream:
        return stream.read(4096).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")


def read_json_lines(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
) -> Dataset:
    """Read a file, gzip or not, in UTF-8; empty lines are skipped.

    Raises:
        DataError: a line is no JSON object, or as `examples_of_form`; names file and line.
    """
    places = ((f"{file}:{number}", line) for number, line in text_lines(file))
    examples = ((place, _object(line, place, form)) for place, line in places)
    return examples_of_form(examples, str(file), form, vocabularies)


def examples_of_form(
    examples: Iterable[tuple[str, Mapping[str, Any]]],
    where: str,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
) -> Dataset:
    """Store what a form needs of examples that were read from somewhere.

    A field with a vocabulary takes words and ids alike; a word that it does not hold is an
    error, or the unknown word where there is one.

    Args:
        examples: each with its place.
        where: all of them are.
    Raises:
        DataError: no example, or one with a field that is missing, of another length, shape
            or type, or with an unknown word; names place and field.
    """
    readers = {
        name: _FieldReader(spec, vocabularies.get(name)) for name, spec in form.fields.items()
    }
    n_examples = 0
    for place, example in examples:
        for name, reader in readers.items():
            if name not in example:
                raise DataError(
                    f"lacks field {name!r}{nearest(name, example)}", where=place, fix=str(form)
                )
            try:
                reader.add(example[name])
            except DataError as error:
                raise error.at(f"{place}, field {name!r}") from None
        if said := form.fault({name: len(reader.rows[-1]) for name, reader in readers.items()}):
            raise DataError(said, where=place)
        n_examples += 1
    if not n_examples:
        raise DataError("holds no example", where=where, fix=str(form))
    columns = {name: reader.column() for name, reader in readers.items()}
    known = {name: tuple(words) for name, words in vocabularies.items() if name in columns}
    return Dataset.from_columns(columns, where=where, about=About(known))


def _object(line: str, place: str, form: ExampleForm) -> Mapping[str, Any]:
    try:
        example = json.loads(line.strip())
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"is no JSON: {error or type(error).__name__}", where=place, fix=str(form)
        ) from None
    if not isinstance(example, dict):
        raise DataError(f"is {short_repr(example)}, not an object", where=place, fix=str(form))
    return example


class _FieldReader:
    """Turns one field's values of all examples into a column.

    Attributes:
        rows: of each example so far, [n, *shape].
    """

    def __init__(self, spec: ArraySpec | None, words: Sequence[str] | None) -> None:
        self._spec = spec
        self._words = words
        self._ids = {word: number for number, word in enumerate(words or ())}
        self.rows: list[Array] = []

    def add(self, value: Any) -> None:
        """Take in one example's value.

        Raises:
            DataError: it does not fit the field; the place is added by the caller.
        """
        given = as_rows(self._as_ids(value) if self._words is not None else value)
        spec = self._spec or ArraySpec(given.shape[1:], "float64")
        if given.shape == (0,):
            given = np.zeros((0, *spec.shape), np.int64)
        elif given.shape == spec.shape:  # one element, which need not be a list of one
            given = given[None]
        if given.shape[1:] != spec.shape:
            shape = ArraySpec(given.shape[1:], spec.dtype)
            raise DataError(
                f"is {shape}, not {spec}: {short_repr(value)}",
                fix="what varies in size is a list of rows",
            )
        if spec.dtype == "int32":
            self._check_whole(given)
        elif not np.isfinite(given).all():
            raise DataError(f"holds {float(given[~np.isfinite(given)][0])}: not finite")
        self.rows.append(given)

    def column(self) -> tuple[Array, Array]:
        """Return the values of all examples, and the counts of each."""
        counts = np.fromiter(map(len, self.rows), np.int64, len(self.rows))
        dtype = np.int32 if self._spec is not None and self._spec.dtype == "int32" else np.float64
        return np.concatenate(self.rows).astype(dtype), counts

    def _check_whole(self, given: Array) -> None:
        if given.dtype.kind == "f":
            raise DataError(f"holds {float(given.flat[0])}, not a whole number")
        outside = (given < INT32.min) | (given > INT32.max)
        if self._words is not None:
            outside = (given < 0) | (given >= len(self._words))
        if outside.any():
            bound = "int32" if self._words is None else f"0 to {len(self._words) - 1}"
            raise DataError(f"holds {int(given[outside][0])}, outside {bound}")

    def _as_ids(self, value: Any) -> Any:
        """Return `value` with words, at any depth of lists, replaced by their ids."""
        if isinstance(value, list):
            return [self._as_ids(element) for element in value]
        if not isinstance(value, str):
            return value
        if not (word := nfc(value)).isascii() and _has_surrogates(word):
            raise DataError(
                f"holds {value[:40]!r}: half a character", fix="write whole ones, in UTF-8"
            )
        if word in self._ids or UNKNOWN in self._ids:
            return self._ids.get(word, self._ids.get(UNKNOWN))
        raise DataError(
            f"holds {value[:40]!r}, which is no word of the run{nearest(value, self._ids)}",
            fix=f"its {len(self._ids)} words are in vocabularies.json of the run",
        )


def _has_surrogates(word: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in word)
