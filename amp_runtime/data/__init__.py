"""Where examples come from: a data source is one function.

    def source(split: str, seed: int, *, option: type = default, ...):
        yield {"tokens": [10, 3, 7], "label": 5}         # one dict an example

It is called once with split "train" and once with "valid", and gives the examples
of that split: any iterable of mappings, or a `Dataset` where they are columns
already. The keys under `data:` in the config are its keyword options.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, TypeAlias

from amp_runtime.checking.function_options import function_options
from amp_runtime.checking.rules import ConfigProblemsError, Problem
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.field import place_of
from amp_runtime.data.graphs import babi15
from amp_runtime.data.images import pixels
from amp_runtime.data.json_lines import (
    ExampleForm,
    examples_of_form,
    is_json_lines,
    read_json_lines,
)
from amp_runtime.data.molecules import qm9
from amp_runtime.data.paths import find_data_path, rereadable
from amp_runtime.data.sequences import list_reduction, python_names, tagged_text, time_series
from amp_runtime.data.trees import python_trees, treebank
from amp_runtime.errors import AmpError, DataError, nearest

Reader: TypeAlias = Callable[
    [Path, ExampleForm, Mapping[str, Sequence[str]], Mapping[str, Any]], Dataset
]
"""(file, what an example must hold, vocabularies of the run, all options of its source)."""

OwnReader: TypeAlias = Callable[[Path], Iterable[Mapping[str, Any]]]
"""(file) -> the fields of its examples, as the user's data source gives them, labels or not."""

Source: TypeAlias = Callable[..., Iterable[Mapping[str, Any]] | Dataset]

TRAIN = "train"
VALID = "valid"

SOURCES: Mapping[str, Source] = {
    "babi15": babi15.source,
    "list_reduction": list_reduction.source,
    "pixels": pixels.source,
    "python_names": python_names.source,
    "python_trees": python_trees.source,
    "qm9": qm9.source,
    "tagged_text": tagged_text.source,
    "time_series": time_series.source,
    "treebank": treebank.source,
}

READERS: Mapping[str, Reader] = {
    "babi15": babi15.read,
    "list_reduction": list_reduction.read,
    "pixels": pixels.read,
    "python_names": python_names.read,
    "python_trees": python_trees.read,
    "qm9": qm9.read,
    "tagged_text": tagged_text.read,
    "time_series": time_series.read,
    "treebank": treebank.read,
}
"""Files to predict, in the own form of a source; any source's may be JSON lines."""


def check_source(
    source: str | Source, options: Mapping[str, Any], *, where: str = ""
) -> tuple[Source, dict[str, Any]]:
    """Return the function of a source and its options, checked, without loading anything.

    Args:
        source: a name in `SOURCES`, or the function that `package.module:function`
            resolved to.
        options: the config's `data:` without `source` and `batch`.
        where: file and line of the config.
    Raises:
        ConfigProblemsError: unknown source; all unknown, missing or mistyped options.
        FunctionNameError: the function does not take (split, seed).
    """
    if isinstance(source, str) and source not in SOURCES:
        said = f"no data source {source!r}{nearest(source, SOURCES)}"
        fix = (
            "`make kinds` (`python -m amp_runtime kinds`) lists all; or package.module:"
            "function for your own"
        )
        raise ConfigProblemsError.of([Problem(("source",), f"{said}; {fix}")], where)
    function = SOURCES[source] if isinstance(source, str) else source
    checked = function_options(
        function, options, given=("split", "seed"), what=_title(source), where=where
    )
    return function, checked


def load_split(
    source: str | Source, split: str, seed: int, options: Mapping[str, Any], *, where: str = ""
) -> Dataset:
    """Return the examples of one split.

    Args:
        source, options, where: as in `check_source`, which is called first.
        split: `TRAIN` or `VALID`.
        seed: the run's.
    Raises:
        ConfigProblemsError, FunctionNameError: as in `check_source`.
        DataError, MissingDataError: from the source, or an example is wrong. What a
            user's source raises becomes a DataError that names the line; the
            exception is its cause.
    """
    function, checked = check_source(source, options, where=where)
    place = f"{_title(source)}, split {split}"
    try:
        made = function(split, seed, **checked)
        if isinstance(made, Dataset):
            return replace(made, where=place)
        if isinstance(made, Iterable) and not isinstance(made, str | Mapping):
            return Dataset.from_examples(made, where=place)
    except AmpError as error:
        raise (error if error.where else error.at(place)) from error.__cause__
    except (Exception, SystemExit) as error:  # nor may it end the program
        raise DataError(
            f"raised {type(error).__name__}: {error}{_line_within(function, error)}", where=place
        ) from error
    raise DataError(
        f"returned {type(made).__name__}, not examples",
        where=place,
        fix="yield one dict an example, or return a list of dicts or a Dataset",
    )


def read_examples(
    source: str,
    options: Mapping[str, Any],
    path: str | Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
) -> Dataset:
    """Return the examples of a file, which need no labels, to predict.

    Args:
        source, options: the config's `data:`, of the run that learned.
        path: a file of JSON lines, or one in the source's own form (`READERS`).
        vocabularies: what ids stood for in the run.
    Raises:
        MissingDataError: there is no such file.
        DataError: it is wrong; names file and line.
    """
    found = find_data_path(path, setting="FILE")
    with rereadable(found) as file:
        read = READERS.get(source)
        if file.is_file() and is_json_lines(file):
            dataset = read_json_lines(file, form, vocabularies)
        elif read is None:
            raise DataError("is no file of JSON lines", where=str(file), fix=str(form))
        else:
            given = {**_defaults(SOURCES[source]), **options}
            dataset = read(file, form, vocabularies, given)
    return dataset if file == found else replace(dataset, where=str(found))


def read_examples_with(
    reader: OwnReader,
    path: str | Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
) -> Dataset:
    """Return the examples that a user's function reads from a file, to predict.

    Args:
        reader: see `OwnReader`; what the graph does not need of an example, is not read.
        path, vocabularies: as of `read_examples`.
    Raises:
        MissingDataError: there is no such file.
        DataError: what `reader` raises, with its line; or an example is wrong; names its
            number, counted from 0, and the field.
    """
    found = find_data_path(path, setting="FILE")
    title = _title(reader, "reader")

    def examples() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for number, example in enumerate(reader(found)):
            place = place_of(str(found), number)
            if not isinstance(example, Mapping):
                raise DataError(
                    f"{title} gave {short_repr(example)}, not a mapping from field to values",
                    where=place,
                    fix=str(form),
                )
            yield place, example

    try:
        return examples_of_form(examples(), str(found), form, vocabularies)
    except AmpError as error:
        raise (error if error.where else error.at(str(found))) from error.__cause__
    except (Exception, SystemExit) as error:  # nor may it end the program
        raise DataError(
            f"{title} raised {type(error).__name__}: {error}{_line_within(reader, error)}",
            where=str(found),
        ) from error


def _defaults(source: Source) -> dict[str, Any]:
    """Return the options of a source that need not be given."""
    parameters = inspect.signature(source).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _line_within(function: Source | OwnReader, error: BaseException) -> str:
    """Return the file and line that raised: the innermost in the source's own file."""
    own_file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if f.filename == own_file), frames[-1])
    return f" ({frame.filename}:{frame.lineno})"


def _title(source: str | Source | OwnReader, what: str = "data source") -> str:
    if isinstance(source, str):
        return f"{what} {source!r}"
    name = getattr(source, "__qualname__", repr(source))
    return f"{what} '{getattr(source, '__module__', '?')}:{name}'"
