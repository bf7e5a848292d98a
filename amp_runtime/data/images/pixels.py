"""Images with labels: CSV of pixels and label, or IDX as MNIST and Fashion-MNIST have it.

data.path   a file      its images are shuffled once and cut into train and valid
            a folder    the four files of MNIST: their own split is kept
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.data.dataset import Dataset
from amp_runtime.data.field import Scaled
from amp_runtime.data.images.image_csv import LabelColumn, n_columns, read_csv
from amp_runtime.data.images.image_folder import files_of
from amp_runtime.data.images.image_idx import is_idx, read_idx, read_idx_images
from amp_runtime.data.images.image_npy import is_npy, read_npy
from amp_runtime.data.images.labelled_images import MAX_LABEL, MAX_PIXEL, Images
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.known_files import origin_of
from amp_runtime.data.paths import find_data_file, find_data_path
from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Array

VALID_OF_A_FILE = 1000


def source(
    split: str,
    seed: int,
    *,
    path: str,
    train: int | None = None,
    valid: int | None = None,
    label: LabelColumn | None = None,
    label_path: str | None = None,
    classes: int | None = None,
    split_seed: int = 0,
) -> Dataset:
    """Return `train` or `valid` images.

    Fields: `pixels` float32 [1 row, pixels], 0 to 1, kept in a byte each; `label` int32.

    Args:
        split: `train` or `valid`.
        seed: the run's; not used: every run of a file learns from the same images.
        path: CSV(.gz), or IDX(.gz) images, or a folder with the four IDX files of MNIST;
            see `find_data_path` for relative paths.
        train: how many images to train on; None: all that are left.
        valid: how many to validate on; None: all test images of a folder, 1000 of a file.
        label: the column of the label; of a CSV file only, where None is `last`.
        label_path: the file of labels; with a file of IDX images only.
        classes: labels are 0 to classes - 1, which is checked; None: any from 0.
        split_seed: shuffles a file before it is cut in two. Validation images come
            first, so that they stay the same when `train` changes.
    Raises:
        MissingDataError: no such file; says where a known one comes from.
        DataError: the file is wrong, with its line, or holds too few images.
    """
    for name, number in (("train", train), ("valid", valid), ("classes", classes)):
        least = 1 if name == "classes" else 0
        if number is not None and number < least:
            raise DataError(
                f"{name} is {number}; it must be at least {least}", fix=f"set data.{name}"
            )
    max_label = MAX_LABEL if classes is None else min(classes - 1, MAX_LABEL)
    found = find_data_path(path, origin_of(path))
    if found.is_dir():
        if label is not None or label_path is not None:
            raise DataError(
                "is a folder of IDX files, whose labels are in files of their own",
                where=str(found),
                fix="leave out data.label and data.label_path",
            )
        file, labels = files_of(found, split)
        images = _read(file, None, labels, max_label)
        chosen = _choose(images, train if split == "train" else valid, split, file, split_seed)
    else:
        label_file = None if label_path is None else find_data_file(label_path)
        images = _read(found, label, label_file, max_label)
        n_valid = VALID_OF_A_FILE if valid is None else valid
        n_train = max(len(images) - n_valid, 0) if train is None else train
        if n_train + n_valid > len(images):
            raise DataError(
                f"holds {len(images)} images, too few for train {n_train} + valid {n_valid}",
                where=str(found),
                fix="lower data.train or data.valid",
            )
        order = np.random.default_rng(split_seed).permutation(len(images))
        cut = order[:n_valid] if split == "valid" else order[n_valid : n_valid + n_train]
        chosen = Images(images.pixels[cut], images.labels[cut])
    return Dataset.from_columns(
        {"pixels": Scaled(chosen.pixels, MAX_PIXEL), "label": chosen.labels}
    )


def _choose(images: Images, n: int | None, split: str, file: Path, split_seed: int) -> Images:
    """Return all images of one split, or `n` drawn at random: files may be sorted by label."""
    if n is None or n == len(images):
        return images
    if n > len(images):
        raise DataError(
            f"holds {len(images)} images, too few for {split} {n}",
            where=str(file),
            fix=f"lower data.{split}, or leave it out for all",
        )
    drawn = np.random.default_rng(split_seed).permutation(len(images))[:n]
    return Images(images.pixels[drawn], images.labels[drawn])


def _read(file: Path, label: LabelColumn | None, label_file: Path | None, max_label: int) -> Images:
    stats = [path.stat() for path in (file, label_file) if path is not None]
    signature = tuple(number for s in stats for number in (s.st_mtime_ns, s.st_size))
    return _read_once(file, label, label_file, max_label, signature)


@lru_cache(maxsize=1)
def _read_once(
    file: Path,
    label: LabelColumn | None,
    label_file: Path | None,
    max_label: int,
    signature: tuple[int, ...],
) -> Images:
    """Read a file; its second split need not parse it again unless `signature` changed."""
    if is_idx(file):
        if label_file is None:
            raise DataError(
                "is an IDX file of images, without labels",
                where=str(file),
                fix="name the file of labels in data.label_path, or the folder in data.path",
            )
        if label is not None:
            raise DataError(
                "is an IDX file, which has no column of labels",
                where=str(file),
                fix="leave out data.label",
            )
        return read_idx(file, label_file, max_label=max_label)
    if label_file is not None:
        raise DataError(
            "is not an IDX file, so its labels are one of its columns",
            where=str(file),
            fix="leave out data.label_path",
        )
    return read_csv(file, label=label or "last", max_label=max_label)


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return the images of a file, which need no labels: .npy, IDX or CSV, gzip or not.

    An array is [images, pixels] or [images, height, width], of whole numbers 0 to 255 or of
    floats 0 to 1; a single image may be without the first axis. A line of a CSV file may hold
    a label beside the pixels, in the column that the run had it in; it is not looked at.

    Raises:
        DataError: the file is wrong, or its images are of another size; names the line.
    """
    spec = form.fields["pixels"]
    assert spec is not None  # else the model would not look at them
    n_pixels = math.prod(spec.shape)
    if is_npy(file):
        return _to_predict(read_npy(file, n_pixels), n_pixels, file)
    if is_idx(file):
        return _to_predict(read_idx_images(file), n_pixels, file)
    width = n_columns(file)
    label: LabelColumn = options["label"] or "last"
    if width not in (n_pixels, n_pixels + 1):
        raise DataError(
            f"has {width} columns; the model takes {n_pixels} pixels, beside which a label may be",
            where=str(file),
        )
    images = read_csv(file, label=label if width > n_pixels else None)
    return _to_predict(images.pixels, n_pixels, file)


def _to_predict(pixels: Array, n_pixels: int, file: Path) -> Dataset:
    """Return images [n, pixels], bytes or floats, without labels."""
    if pixels.shape[1] != n_pixels:
        raise DataError(
            f"holds images of {pixels.shape[1]} pixels; the model takes {n_pixels}",
            where=str(file),
        )
    if not len(pixels):
        raise DataError("holds no image", where=str(file))
    column = Scaled(pixels, MAX_PIXEL) if pixels.dtype == np.uint8 else pixels
    return Dataset.from_columns({"pixels": column}, where=str(file))
