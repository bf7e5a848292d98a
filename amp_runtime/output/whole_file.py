"""A text file that is written piece by piece, and is there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from amp_runtime.errors import OutputError

FIXES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
}
"""What to do where a file cannot be written."""


class WholeFile:
    """A file that appears at `keep`; until then, what was at its path stays.

    What is there and no file, as a pipe or /dev/null, is written to piece by piece.

    Args:
        path: of the file, or a link to it; pieces go to a hidden one beside the file, of this
            process alone.
        fix: what to do where it cannot be written.
    Raises:
        OutputError: it cannot be written.
    Attributes:
        stream: what to write to.
    """

    def __init__(self, path: Path, fix: str) -> None:
        self._path = path
        self._fix = fix
        self._temporary: Path | None = None
        with self._told():
            if not path.exists() or path.is_file():
                self._whole = Path(os.path.realpath(path))
                self._temporary = self._whole.with_name(f".{self._whole.name}.{os.getpid()}.tmp")
            self.stream: TextIO = (self._temporary or path).open("w", encoding="utf-8")

    def keep(self) -> None:
        """Let the file appear.

        Raises:
            OutputError: it cannot be written.
        """
        with self._told():
            self.stream.close()
            if self._temporary is not None:
                self._temporary.replace(self._whole)

    def discard(self) -> None:
        """Forget what was not kept; after `keep`, do nothing."""
        with contextlib.suppress(OSError):  # the first error is the one to be told
            self.stream.close()
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"cannot write: {error.strerror}", where=str(self._path), fix=self._fix
            ) from error
