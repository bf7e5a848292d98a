"""IDX files, the format of MNIST: one file of images, one of labels, gzip or not.

    0  0  type  dims | size of each dim, big-endian uint32 | values, row by row

Type 8, unsigned byte, is the only one that such data sets use.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from amp_runtime.data.images.labelled_images import MAX_LABEL, Images
from amp_runtime.data.paths import open_data_file
from amp_runtime.errors import DataError

_UNSIGNED_BYTE = 8


def is_idx(path: Path) -> bool:
    """Whether the (unzipped) file begins as an IDX file does; no text has zero bytes."""
    with open_data_file(path) as stream:
        return stream.read(2) == b"\0\0"


def read_idx(images: Path, labels: Path, *, max_label: int = MAX_LABEL) -> Images:
    """Read a file of images [n, ...] and the file of their labels [n].

    Raises:
        DataError: not an IDX file of bytes, one that is cut or too long, files
            swapped, different numbers of images and labels, or a label above `max_label`.
    """
    pixels = read_idx_images(images)
    numbers = _read(labels)
    if numbers.ndim != 1:
        raise DataError(
            f"holds {numbers.ndim} dimensions, not one label an image",
            where=str(labels),
            fix="data.label_path names the labels",
        )
    if len(pixels) != len(numbers):
        raise DataError(
            f"holds {len(pixels)} images, but {labels} holds {len(numbers)} labels",
            where=str(images),
            fix="take both files from the same part of the data set",
        )
    if (wrong := numbers > max_label).any():
        at = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"holds label {int(numbers[at])} for image {at}, counted from 0; labels are 0 to "
            f"{max_label}",
            where=str(labels),
            fix="set data.classes, and classes of the model, to the number of labels",
        )
    return Images(pixels, numbers.astype(np.int32))


def read_idx_images(file: Path) -> NDArray[np.uint8]:
    """Read a file of images [n, ...]; return uint8 [n, pixels].

    Raises:
        DataError: as `read_idx`.
    """
    pixels = _read(file)
    if pixels.ndim < 2:
        raise DataError(
            "holds single numbers, not images",
            where=str(file),
            fix="images and labels may be swapped: data.path names the images",
        )
    return pixels.reshape(len(pixels), math.prod(pixels.shape[1:]))


def _read(path: Path) -> NDArray[np.uint8]:
    """Return a file's values, uint8 in the shape that its header states."""
    with open_data_file(path) as stream:
        head = stream.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] != _UNSIGNED_BYTE or head[3] == 0:
            raise DataError(
                f"begins with {head!r}: not an IDX file of bytes",
                where=str(path),
                fix="an IDX file begins with 00 00 08 and its number of dimensions",
            )
        sizes = stream.read(4 * head[3])
        if len(sizes) < 4 * head[3]:
            raise DataError("ends within its header", where=str(path), fix="fetch it again")
        shape = struct.unpack(f">{head[3]}I", sizes)
        body = stream.read()  # what is there, never what the header claims
    if len(body) != math.prod(shape):
        raise DataError(
            f"holds {len(body)} values, but its header states {' x '.join(map(str, shape))}",
            where=str(path),
            fix="fetch it again",
        )
    return np.frombuffer(body, np.uint8).reshape(shape)
