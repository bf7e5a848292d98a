"""The command line as a user types it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from runs import environment

pytestmark = pytest.mark.process
HEAVY = {"numpy", "pydantic", "yaml", "zmq"}


def test_help_names_every_verb_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from amp_runtime.__main__ import VERBS, main\n"
        "assert main(['--help']) == 0\n"
        f"print(list(VERBS), sorted({HEAVY} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    verbs, loaded = done.stderr.split("] ")
    assert loaded == "[]\n"
    for verb in verbs.strip("[").replace("'", "").split(", "):
        assert f"\n    {verb} " in done.stdout
