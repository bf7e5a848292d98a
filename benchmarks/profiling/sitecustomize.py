"""Python imports a module of this name at its start: see benchmarks/profile_run.py.

It is found only by who has this folder on PYTHONPATH; then workers, and no other programs, are
timed.
"""

import os
import sys

if sys.orig_argv[1:3] == ["-m", "workers"] and "AMP_PROFILE" in os.environ:
    from benchmarks.timers import install

    install(os.environ["AMP_PROFILE"])
