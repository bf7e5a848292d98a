"""What a worker loads, as Python counts it: `tests/pure/test_imports.py` only reads sources."""

from __future__ import annotations

import subprocess
import sys

import pytest
from import_checks import NEVER_IN_A_WORKER
from runs import environment

pytestmark = pytest.mark.process

LOADED = """
import sys
import workers.__main__
from workers.registry import Registry
from amp_runtime.nodes.generators import node_generator

for kind in Registry().names():
    Registry().load(kind)
node_generator(0, "linear-1").normal()
print(*sys.modules)
"""


def test_a_worker_with_parameters_of_any_kind_never_loads_what_it_has_no_use_for():
    command = [sys.executable, "-c", LOADED]
    text = subprocess.run(
        command, env=environment(), check=True, capture_output=True, text=True
    ).stdout
    loaded = set(text.split())
    assert "numpy.random" in loaded
    assert loaded & NEVER_IN_A_WORKER == set()


def test_hashlib_has_all_its_functions_beside_numpy_random():
    code = (
        "from amp_runtime.nodes.generators import node_generator; node_generator(0, 'n');"
        "import hashlib, hmac, secrets; print(hashlib.scrypt.__module__, secrets.token_hex(2))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.stdout.startswith("_hashlib "), done.stderr
