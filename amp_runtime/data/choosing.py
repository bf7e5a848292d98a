"""Which examples of a file a split holds, where sources take one file or two."""

from __future__ import annotations

import numpy as np

from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Int64

VALID_PART = 5
"""Of one file, one part in so many is validated on, unless `valid` says how many."""


def chosen_examples(
    n: int,
    split: str,
    *,
    train: int | None,
    valid: int | None,
    one_file: bool,
    split_seed: int,
    where: str,
) -> Int64:
    """Return int64 [chosen]: numbers of the examples, of `n` in the file, that `split` holds.

    Of one file for both splits, those to validate on are drawn first, so that they stay the
    same when `train` changes. Of two, all are taken in their order, or as many drawn as wanted.

    Args:
        train, valid: how many; None: all that are left, and a fifth of one file.
        split_seed: of the drawing.
        where: the file.
    Raises:
        DataError: fewer than none are wanted, or more than there are.
    """
    for name, wanted in (("train", train), ("valid", valid)):
        if wanted is not None and wanted < 0:
            raise DataError(f"{name} is {wanted}; it must be at least 0", fix=f"set data.{name}")
    order = np.random.default_rng(split_seed).permutation(n)
    if not one_file:
        wanted = train if split == "train" else valid
        _check_enough(n, f"{split} {wanted}", wanted or 0, where)
        return np.arange(n) if wanted is None else order[:wanted]
    n_valid = n // VALID_PART if valid is None else valid
    n_train = max(n - n_valid, 0) if train is None else train
    _check_enough(n, f"train {n_train} + valid {n_valid}", n_train + n_valid, where)
    return order[:n_valid] if split == "valid" else order[n_valid : n_valid + n_train]


def _check_enough(n: int, asked: str, wanted: int, where: str) -> None:
    if wanted > n:
        raise DataError(
            f"holds {n} examples, too few for {asked}",
            where=where,
            fix="lower data.train or data.valid",
        )
