"""Numbers that look random, from numbers that name a row: the same wherever a node runs.

Source: SplitMix64: Steele, Lea, Flood, OOPSLA 2014.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from amp_runtime.rows.spec import Array, Int32

STEP = np.uint64(0x9E3779B97F4A7C15)
"""What a generator's state grows by at each number."""


def hashed(key: Array, columns: Iterable[Int32]) -> Array:
    """Return a hash of each row's numbers: uint64 [rows].

    Args:
        key: uint64 [1], what it depends on beside them.
        columns: int32 [rows] each.
    """
    seeds = key
    for column in columns:
        seeds = mixed(seeds + column.astype(np.uint64))
    return seeds


def mixed(words: Array) -> Array:
    """Return hashes of uint64 `words`, in their memory: SplitMix64's output function."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
