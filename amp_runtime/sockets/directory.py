"""The socket directory: where ipc sockets live, for this user only.

A second bind on an ipc path silently steals its traffic, and the file outlives
its process. So each run has a fresh private directory, each incarnation of a
worker its own paths, and the supervisor removes the directory, not libzmq.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from amp_runtime.errors import StartError
from amp_runtime.processes import guard
from amp_runtime.wire.ledger import Lane

MAX_PATH_BYTES = 107
"""sockaddr_un holds 108 bytes, the last of them 0."""
_MAX_INCARNATION = 9999
_MKDTEMP_BYTES = 8


@dataclass(frozen=True, slots=True)
class SocketDirectory:
    """A private directory for ipc sockets; `create` makes one, `open` joins one."""

    path: str

    @staticmethod
    def base() -> Path:
        """Return where new directories go: XDG_RUNTIME_DIR, else the system's temp dir."""
        import tempfile  # not in a worker, which makes none: 0.9 MB

        return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())

    @staticmethod
    def create(n_peers: int, base: str | Path | None = None) -> SocketDirectory:
        """Make a fresh 0700 directory, owned by this process.

        Args:
            n_peers: so many peers will have sockets in it.
            base: the directory to make it in; `SocketDirectory.base()` by default.
        Raises:
            StartError: `base` is not there, is a symlink, or others may rename what
                is in it; or the paths would be too long for a socket.
        """
        import tempfile

        base = Path(base) if base is not None else SocketDirectory.base()
        _check_base(base)
        name = guard.PREFIX + "x" * _MKDTEMP_BYTES
        _check_length(f"{base}/{name}/{n_peers}.{_MAX_INCARNATION}.f")
        try:
            path = tempfile.mkdtemp(prefix=guard.PREFIX, dir=base)
            guard.write_owner(path)
        except OSError as error:
            raise StartError(f"cannot make a socket directory in {base}: {error}") from error
        return SocketDirectory.open(path)

    @staticmethod
    def open(path: str | Path) -> SocketDirectory:
        """Use a directory that the controller made.

        Raises:
            StartError: it is not a 0700 directory of this user, or is a symlink.
        """
        status = _lstat(Path(path), "socket directory")
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or mode != 0o700:
            raise StartError(
                f"socket directory {path} is {stat.filemode(status.st_mode)} of user "
                f"{status.st_uid}; it must be drwx------ of user {os.geteuid()}"
            )
        return SocketDirectory(str(path))

    def file(self, peer: int, incarnation: int, lane: Lane) -> str:
        """Return the socket file of one peer's lane: `<path>/3.0.f`.

        Raises:
            StartError: it is longer than a socket's path may be.
        """
        path = f"{self.path}/{peer}.{incarnation}.{lane.name[0].lower()}"
        _check_length(path)
        return path

    def remove(self) -> bool:
        """Remove the directory; return whether it is gone."""
        return guard.remove_directory(self.path)


def _check_base(base: Path) -> None:
    status = _lstat(base, "base of the socket directory")
    mode = status.st_mode
    problem = ""
    if not stat.S_ISDIR(mode):
        problem = "is no directory (a symlink does not count)"
    elif status.st_uid not in (0, os.geteuid()):
        problem = f"belongs to user {status.st_uid}"
    elif mode & 0o022 and not mode & stat.S_ISVTX:
        problem = f"is {stat.filemode(mode)}: others may replace what is in it"
    if problem:
        raise StartError(
            f"base of the socket directory {base} {problem}",
            fix="set XDG_RUNTIME_DIR (or TMPDIR) to a directory that only you can write to",
        )


def _check_length(path: str) -> None:
    n_bytes = len(os.fsencode(path))
    if n_bytes > MAX_PATH_BYTES:
        raise StartError(
            f"socket path {path} is {n_bytes} bytes long; the limit is {MAX_PATH_BYTES}",
            fix="set XDG_RUNTIME_DIR (or TMPDIR) to a shorter path",
        )


def _lstat(path: Path, what: str) -> os.stat_result:
    try:
        return os.lstat(path)
    except OSError as error:
        raise StartError(
            f"{what} {path}: {error.strerror}",
            fix="set XDG_RUNTIME_DIR (or TMPDIR) to a directory that exists",
        ) from error
