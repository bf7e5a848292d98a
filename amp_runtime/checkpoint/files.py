"""Files that are on disk when they are said to be, and are read only if they are what they were.

A worker imports this when it first writes or reads a shard.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from amp_runtime.checkpoint.container import pack, unpack
from amp_runtime.errors import AmpError, CheckpointError
from amp_runtime.host.node_host import MAY_BE_ODD
from amp_runtime.rows.saved import Saved
from amp_runtime.wire.protocol import Shard

SUFFIX = ".safetensors"


def shard_file(node: str) -> str:
    """Return the name of the file that holds a node's shard."""
    return f"{node}{SUFFIX}"


def write_shard(folder: Path, node: str, saved: Saved) -> Shard:
    """Write a shard, through to the disk.

    Raises:
        CheckpointError: it cannot be written; says how much space it needs, and there is.
    """
    path = folder / shard_file(node)
    try:
        pieces = list(pack(saved))
    except CheckpointError as error:
        raise error.at(f"node {node!r}") from None
    n_bytes, digest = sum(len(piece) for piece in pieces), hashlib.sha256()
    try:
        write_through(path, pieces)
    except OSError as error:
        raise cannot_write(path, error, n_bytes) from error
    for piece in pieces:
        digest.update(piece)
    return Shard(node, n_bytes, digest.hexdigest(), saved.is_finite(MAY_BE_ODD))


def read_shard(folder: Path, shard: Shard) -> Saved:
    """Return what was written.

    Raises:
        CheckpointError: the file is another; says what differs.
    """
    path = folder / shard_file(shard.node)
    data = read_checked(path, shard.n_bytes, shard.sha256)
    try:
        return unpack(data)
    except CheckpointError as error:
        raise error.at(str(path)) from error.__cause__


def write_through(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a new file, and wait until it is on disk."""
    with path.open("xb", buffering=0) as file:
        for piece in pieces:
            left = memoryview(piece)
            while left:
                left = left[file.write(left) :]
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file, and of nothing else: no link, no pipe.

    Raises:
        CheckpointError: it cannot be read, is none, or is larger.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise CheckpointError("is no regular file", where=str(path))
            if found.st_size > most_bytes:
                said = f"has {found.st_size} bytes, but at most {most_bytes} are expected"
                raise CheckpointError(said, where=str(path))
            return file.read()
    except FileNotFoundError:
        raise CheckpointError("is missing", where=str(path)) from None
    except OSError as error:
        said = "is a link" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise CheckpointError(said, where=str(path)) from error


def read_checked(path: Path, n_bytes: int, sha256: str) -> bytes:
    """Return the content of a file, which must have this size and hash.

    Raises:
        CheckpointError: it has not.
    """
    data = read_plain(path, n_bytes)
    if len(data) != n_bytes:
        raise CheckpointError(f"has {len(data)} bytes, but had {n_bytes}", where=str(path))
    if (now := hashlib.sha256(data).hexdigest()) != sha256:
        raise CheckpointError(
            f"has other bytes than it was written with: sha256 {now[:12]}..., was {sha256[:12]}...",
            where=str(path),
        )
    return data


def cannot_write(path: Path, error: OSError, n_bytes: int) -> AmpError:
    """Return the error for a file of `n_bytes` that could not be written."""
    available = ""
    with contextlib.suppress(OSError):
        found = os.statvfs(path.parent)
        available = f", and {found.f_bavail * found.f_frsize} are available"
    said = f"cannot be written: {error.strerror}; it needs {n_bytes} bytes{available}"
    return CheckpointError(said, where=str(path))
