"""Fixtures of the tests that start real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from runs import Runner, leaving_nothing

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
