"""Images with labels as files hold them: what every image format is read into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amp_runtime.rows.spec import Int32

MAX_PIXEL = 255
MAX_LABEL = 2**24 - 1
"""Largest whole number up to which float32, which files are parsed in, is exact."""


@dataclass(frozen=True, slots=True)
class Images:
    """The images of one file, in its order.

    Attributes:
    pixels: uint8 [n, pixels]; a byte each, so that a file's images may be kept.
    labels: int32 [n], at least 0.
    """

    pixels: NDArray[np.uint8]
    labels: Int32

    def __len__(self) -> int:
        return len(self.labels)


def is_whole(values: NDArray[Any], at_most: int) -> NDArray[np.bool_]:
    """Return where `values` are whole numbers from 0 to `at_most`; nan is not."""
    inside: NDArray[np.bool_] = (values >= 0) & (values <= at_most) & (values == np.floor(values))
    return inside
