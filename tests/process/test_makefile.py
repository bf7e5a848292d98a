"""What `make` hands to the program."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
CHECKOUT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("target", ["run", "seeds"])
def test_a_config_path_with_spaces_is_one_argument(target):
    done = subprocess.run(
        ["make", "-n", "-C", CHECKOUT, target, "CONFIG=my configs/a b.yaml"],
        capture_output=True,
        text=True,
        check=True,
    )
    (command,) = [line for line in done.stdout.splitlines() if "a b.yaml" in line]
    assert "my configs/a b.yaml" in shlex.split(command)
