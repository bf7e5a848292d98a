"""Fixtures of the tests that start real processes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from runs import Ended, Runner, leaving_nothing

from amp_runtime.__main__ import main

# Hundreds of processes start here: without bytecode each compiles amp_runtime anew, which is
# a fifth of the CPU time of a small run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test measures time: on a busy machine a good example takes longer than 200 ms.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def nothing_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Give the test a temp dir and a runtime dir of its own, and assert that nothing is left.

    Autouse in tests/process and tests/fault. Yields the AMP_TEST of all that it starts.
    """
    tmp_path_factory.getbasetemp()  # pytest's own is made in the usual place, before
    private = Path(tempfile.mkdtemp(prefix="ampt-"))  # short: sockets have short paths
    for variable in ("TMPDIR", "XDG_RUNTIME_DIR"):
        (private / variable).mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(private / variable))
    monkeypatch.setattr(tempfile, "tempdir", str(private / "TMPDIR"))
    monkeypatch.setenv("AMP_TEST", private.name)
    try:
        with leaving_nothing(private, private.name):
            yield private.name
    finally:
        shutil.rmtree(private)


@pytest.fixture
def runner(nothing_left: str, tmp_path: Path) -> Iterator[Runner]:
    """Start real runs; those that a failed test leaves are killed."""
    made = Runner(tmp_path, nothing_left)
    yield made
    for run in made.started:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()
        for stream in (run.process.stdout, run.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a verb in this process, `verb(folder, *words)`: half a second less than in its own.

    For what ends before a worker starts, or has none.
    """
    monkeypatch.setattr(sys, "path", [*sys.path])  # a config's folder is added

    def run(folder: Path, *words: object) -> Ended:
        monkeypatch.chdir(folder)
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Ended(code, *capsys.readouterr(), 0.0)

    return run
