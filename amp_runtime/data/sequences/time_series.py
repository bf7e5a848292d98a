"""Time series of one or several dimensions, each of a class, from `.ts` files.

data.path   a file, of whose series some are validated on, or a folder as the archives of
            time series have it, with <name>_TRAIN.ts and <name>_TEST.ts
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.choosing import chosen_examples
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.known_files import origin_of
from amp_runtime.data.paths import find_data_file, find_data_path
from amp_runtime.data.sequences.ts_file import FORM, Missing, Series, read_ts
from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.rows.spec import ArraySpec, Int32

_PARTS = {"train": "_train.ts", "valid": "_test.ts"}


def source(
    split: str,
    seed: int,
    *,
    path: str,
    valid_path: str | None = None,
    train: int | None = None,
    valid: int | None = None,
    missing: Missing = "error",
    split_seed: int = 0,
) -> Dataset:
    """Return `train` or `valid` series, of any lengths.

    Fields:
        values  float64 [steps, dimensions], as they stand in the file.
        label   int32, which of the classes of the file to train on, one a series.

    Args:
        split: `train` or `valid`.
        seed: the run's; not used: every run learns from the same series.
        path: a .ts file, gzip or not, or a folder that holds one named ..._TRAIN.ts and one
            named ..._TEST.ts, which is validated on; see `find_data_path` for relative paths.
        valid_path: another file, to validate on; None: some of `path`.
        train: how many series to train on; None: all that are left.
        valid: how many to validate on; None: all of their own file, or a fifth of one.
        missing: what a `?` in the place of a value is: an `error`, or the value of the step
            before (`previous`), 0 at the first.
        split_seed: of drawing series, for validation first, so that those stay the same.
    Raises:
        MissingDataError: no such file.
        DataError: a file is wrong, with its line, or holds too few series, or other classes.
    """
    file, valid_file = _files(path, valid_path)
    training = _read(file, missing)
    if training.label is None:
        raise DataError(
            "has no classes to learn", where=str(file), fix="name them: @classLabel true ..."
        )
    given, used = training, file
    label = training.label
    if split == "valid" and valid_file is not None:
        given, used = _read(valid_file, missing), valid_file
        label = _renumbered(given, training, used, file)
    chosen = chosen_examples(
        len(given),
        split,
        train=train,
        valid=valid,
        one_file=valid_file is None,
        split_seed=split_seed,
        where=str(used),
    )
    notes: tuple[str, ...] = ()
    if given.n_missing:
        notes = (f"{split}: {given.n_missing} values missing in {used} are those of steps before",)
    return Dataset.from_columns(
        {"values": given.of(chosen), "label": label[chosen]},
        about=About({"label": training.classes}, notes),
    )


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return the series of a file, to be classified; classes that it names are not read.

    Raises:
        DataError: it is wrong, or of other dimensions than those trained on.
    """
    given = read_ts(file, options["missing"])
    wanted = form.fields.get("values")
    found = ArraySpec(given.values.shape[1:], wanted.dtype if wanted else "float64")
    if wanted is not None and wanted != found:
        raise DataError(
            f"has series of {found.shape[0]} dimensions, but those that were trained on are "
            f"{wanted}",
            where=str(file),
        )
    return Dataset.from_columns({"values": (given.values, given.counts)}, where=str(file))


def _files(path: str, valid_path: str | None) -> tuple[Path, Path | None]:
    """Return the file to train on, and that to validate on, if it is another.

    Raises:
        MissingDataError: one is not there, or a folder does not hold both.
    """
    found = find_data_path(path, origin_of(path) or FORM)
    if not found.is_dir():
        return found, None if valid_path is None else find_data_file(valid_path, FORM)
    named = None if valid_path is None else find_data_file(valid_path, FORM)
    return _part(found, "train"), named or _part(found, "valid")


def _part(folder: Path, split: str) -> Path:
    """Return the file of a folder that holds a split: the only one, or that of its name."""
    ends = (_PARTS[split], f"{_PARTS[split]}.gz")
    files = [file for file in sorted(folder.iterdir()) if file.name.lower().endswith(ends)]
    named = [file for file in files if file.name.lower().startswith(folder.name.lower() + "_t")]
    candidates = files if len(files) == 1 else named
    if len(candidates) != 1:
        many = ", ".join(file.name for file in files) or "none"
        raise MissingDataError(
            f"{folder} holds not one file named ...{_PARTS[split].upper()[:-3]}.ts, but {many}",
            fix="name the files themselves: data.path and data.valid_path",
        )
    return candidates[0]


def _renumbered(given: Series, training: Series, file: Path, training_file: Path) -> Int32:
    """Return the labels of `given` by the classes of `training`.

    Raises:
        DataError: it has none, or one that the others do not have.
    """
    if given.label is None:
        raise DataError("has no classes to validate by", where=str(file), fix=FORM)
    used = np.unique(given.label).tolist()
    number_of = {name: number for number, name in enumerate(training.classes)}
    for number in used:
        if (name := given.classes[number]) not in number_of:
            raise DataError(
                f"holds a series of class {name!r}, which {training_file} does not know",
                where=str(file),
                fix=f"its classes are {', '.join(training.classes)}",
            )
    numbers = [number_of.get(name, -1) for name in given.classes]
    return np.array(numbers, np.int32)[given.label]


def _read(file: Path, missing: Missing) -> Series:
    stat = file.stat()
    return _read_once(file, missing, (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=2)
def _read_once(file: Path, missing: Missing, signature: tuple[int, int]) -> Series:
    """Read a file; the second split need not, unless `signature` changed."""
    return read_ts(file, missing)
