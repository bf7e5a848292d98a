"""Images in numpy's own files, .npy: one array, of bytes or of floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from amp_runtime.data.images.labelled_images import MAX_PIXEL
from amp_runtime.data.paths import open_data_file
from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Array

_MAGIC = b"\x93NUMPY"


def is_npy(path: Path) -> bool:
    """Whether the (unzipped) file begins as a .npy file does."""
    with open_data_file(path) as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def read_npy(path: Path, n_pixels: int) -> Array:
    """Read images; return uint8 or floats [n, pixels].

    Args:
        n_pixels: of an image: a single one may come without an axis for images.
    Raises:
        DataError: no array, one whose axes are not images of so many pixels, or values that
            are neither whole numbers 0 to 255 nor floats 0 to 1.
    """
    where = str(path)
    with open_data_file(path) as stream:
        try:
            array: Array = np.load(stream, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise DataError(f"is no array of numbers: {error}", where=where) from error
    if array.size == n_pixels and array.ndim in (1, 2) and array.shape[0] != 1:
        array = array[None]
    if array.ndim < 2 or array[:1].size not in (0, n_pixels):
        raise DataError(
            f"is an array {list(array.shape)}; the model takes images of {n_pixels} pixels",
            where=where,
            fix=f"give [images, {n_pixels}], or [images, height, width]",
        )
    array = array.reshape(len(array), -1 if len(array) else n_pixels)
    whole, most = array.dtype.kind in "biu", MAX_PIXEL if array.dtype.kind in "biu" else 1
    if array.dtype.kind not in "biuf" or not ((array >= 0) & (array <= most)).all():
        raise DataError(
            f"holds {array.dtype} that are not all from 0 to {most}",
            where=where,
            fix=f"give whole numbers 0 to {MAX_PIXEL}, or floats 0 to 1",
        )
    return array.astype(np.uint8) if whole else array
