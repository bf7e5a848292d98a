"""Images with labels from a file: CSV of pixels and label, or IDX as MNIST has it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from amp_runtime.data.dataset import Dataset
from amp_runtime.data.image_csv import read_csv
from amp_runtime.data.image_idx import is_idx, read_idx
from amp_runtime.data.images import MAX_PIXEL, Images
from amp_runtime.data.paths import find_data_file
from amp_runtime.errors import DataError


def source(
    split: str,
    seed: int,
    *,
    path: str,
    train: int | None = None,
    valid: int = 1000,
    label: Literal["first", "last"] = "last",
    label_path: str | None = None,
    split_seed: int = 0,
) -> Dataset:
    """Return `train` or `valid` images of a file.

    Fields: `pixels` float32 [1 row, pixels], 0 to 1; `label` int32.

    Args:
        split: `train` or `valid`.
        seed: the run's; not used: every run of a file learns from the same images.
        path: CSV(.gz), or IDX(.gz) images; see `find_data_file` for relative paths.
        train: how many images to train on; None: all that are left.
        valid: how many to validate on.
        label: the column of the label in a CSV file.
        label_path: the file of labels; with IDX images only.
        split_seed: shuffles the file before it is cut in two. Validation images come
            first, so that they stay the same when `train` changes.
    Raises:
        MissingDataError: no such file.
        DataError: the file is wrong, with its line, or holds too few images.
    """
    file = find_data_file(path)
    label_file = None if label_path is None else find_data_file(label_path)
    images = _read_once(file, label == "first", label_file, _signature(file, label_file))
    n_train = max(len(images) - valid, 0) if train is None else train
    if min(n_train, valid) < 0:
        raise DataError(f"train is {n_train} and valid is {valid}; both must be at least 0")
    if n_train + valid > len(images):
        raise DataError(
            f"holds {len(images)} images, too few for train {n_train} + valid {valid}",
            where=str(file),
            fix="lower data.train or data.valid",
        )
    order = np.random.default_rng(split_seed).permutation(len(images))
    chosen = order[:valid] if split == "valid" else order[valid : valid + n_train]
    pixels = images.pixels[chosen].astype(np.float32)
    pixels /= MAX_PIXEL
    return Dataset.from_columns({"pixels": pixels, "label": images.labels[chosen]})


@lru_cache(maxsize=1)
def _read_once(
    file: Path, label_first: bool, label_file: Path | None, signature: tuple[int, ...]
) -> Images:
    """Read a file; its second split need not parse it again unless it changed."""
    if is_idx(file):
        if label_file is None:
            raise DataError(
                "is an IDX file of images, without labels",
                where=str(file),
                fix="name the file of labels in data.label_path",
            )
        return read_idx(file, label_file)
    if label_file is not None:
        raise DataError(
            "is not an IDX file, so its labels are one of its columns",
            where=str(file),
            fix="leave out data.label_path",
        )
    return read_csv(file, label_first=label_first)


def _signature(*files: Path | None) -> tuple[int, ...]:
    """Return what changes when one of the files is written anew."""
    stats = [file.stat() for file in files if file is not None]
    return tuple(number for s in stats for number in (s.st_mtime_ns, s.st_size))
