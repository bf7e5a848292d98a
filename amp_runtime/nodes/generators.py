"""Where a node's randomness comes from: the run's seed and the node's name, and nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from amp_runtime.rows.spec import Array

if TYPE_CHECKING:
    from numpy.random import Generator


def node_generator(seed: int, name: str) -> Generator:
    """Return a generator of node `name`, the same wherever and whenever it is asked for."""
    import_numpy_random()
    from numpy.random import default_rng

    return default_rng([seed, *name.encode()])


def node_key(seed: int, name: str) -> Array:
    """Return what hashes of rows of node `name` depend on beside the rows: uint64 [1]."""
    return node_generator(seed, name).integers(0, 2**64, 1, np.uint64)


def import_numpy_random() -> None:
    """Import numpy.random without OpenSSL, which would take 3.4 MB in each worker.

    numpy.random imports `secrets`, for seeds that nobody gave, and that `hashlib`. In a
    Python that has no `_hashlib`, hashlib uses code of its own: so it does here. It is
    forgotten again, so that who imports it later gets all of it.
    """
    if "numpy.random" in sys.modules or "_hashlib" in sys.modules:
        return
    before = set(sys.modules)
    sys.modules["_hashlib"] = None  # type: ignore[assignment]  # "not there", to an import
    try:
        import numpy.random  # noqa: F401
    finally:
        for name in {"_hashlib", "hashlib", "hmac", "secrets"} - before:
            sys.modules.pop(name, None)
