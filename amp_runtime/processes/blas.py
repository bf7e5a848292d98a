"""Which BLAS numpy runs on, and with how many threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

BLAS_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
"""Must be set before numpy is imported: afterwards every process has a thread per core."""


def blas_kernel() -> tuple[int, str]:
    """Return (threads, "library kernel") of the BLAS that numpy has loaded."""
    from threadpoolctl import threadpool_info

    for pool in threadpool_info():
        if pool.get("user_api") == "blas":
            kernel = pool.get("architecture") or pool.get("version")
            return int(pool["num_threads"]), f"{pool['internal_api']} {kernel}"
    return 1, "unknown"


@contextlib.contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Let the BLAS that numpy has loaded compute with `n` threads within."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(n, user_api="blas"):
        yield
