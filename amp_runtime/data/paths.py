"""Where data files are: found by name, opened by content."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from amp_runtime.errors import AmpError, DataError, MissingDataError

DEFAULT_FOLDER = "data"
GZIP_MAGIC = b"\x1f\x8b"


def data_folder() -> Path:
    """Return the folder in AMP_DATA; read at each call, `./data` when it is not set."""
    return Path(os.environ.get("AMP_DATA") or DEFAULT_FOLDER).expanduser()


def find_data_path(path: str | Path, origin: str = "", setting: str = "data.path") -> Path:
    """Return the absolute path of a data file, or of a folder of them.

    A relative path is looked up in the current directory, then in `data_folder()`.

    Args:
        origin: where such a file comes from, for the error.
        setting: what names the file, for the error.
    Raises:
        MissingDataError: there is none; says where it was looked for.
    """
    candidates = _candidates(path)
    for candidate in candidates:
        if candidate.exists():
            return candidate
    fix = f"set {setting} to the file, or AMP_DATA to the folder that a relative path starts from"
    raise MissingDataError(
        f"no data file {' nor '.join(map(str, candidates))}",
        fix=f"{origin}; or {fix}" if origin else fix,
    )


def find_data_file(path: str | Path, origin: str = "", setting: str = "data.path") -> Path:
    """Return the absolute path of a data file; otherwise as `find_data_path`.

    Raises:
        MissingDataError: there is none, or it is a folder.
    """
    for candidate in _candidates(path):
        if candidate.is_file():
            return candidate
    found = find_data_path(path, origin, setting)
    raise MissingDataError(f"{found} is a folder, not a data file", fix="name a file in it")


def _candidates(path: str | Path) -> list[Path]:
    wanted = Path(path).expanduser()
    # An absolute path swallows the folder in front of it: both candidates are one.
    return list(dict.fromkeys(Path(f, wanted).absolute() for f in ("", data_folder())))


@contextmanager
def open_data_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, unzipped where its content is a gzip stream.

    Raises:
        MissingDataError: the file cannot be opened; or the disk fails while it is read.
        DataError: named .gz without being one, or a gzip stream that is cut or
            garbled; the latter also out of the body of the `with`, while it reads.
    """
    try:
        raw = path.open("rb")
    except IsADirectoryError:
        raise MissingDataError(f"{path} is a folder, not a file", fix="name a file in it") from None
    except OSError as error:
        raise _cannot_read(path, error, fix="check its permissions") from error
    with raw, _told_of_failing(path):
        is_gzip = raw.peek(2)[:2] == GZIP_MAGIC
        if path.suffix == ".gz" and not is_gzip:
            empty = not raw.peek(1)
            raise DataError(
                "is empty" if empty else "is named .gz but is not a gzip file",
                where=str(path),
                fix="fetch it again" if empty else "rename it, or zip it with gzip",
            )
        try:
            # a GzipFile reads as any binary file does; its type stub does not say so
            yield cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if is_gzip else raw
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(
                f"has a damaged gzip stream ({error})", where=str(path), fix="fetch it again"
            ) from error


@contextmanager
def _told_of_failing(path: Path) -> Iterator[None]:
    """Turn what the system says of a read into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise _cannot_read(path, error, fix="check the disk that it is on") from error


def _cannot_read(path: Path, error: OSError, fix: str) -> MissingDataError:
    return MissingDataError(f"cannot read {path}: {error.strerror or error}", fix=fix)


@contextmanager
def rereadable(path: Path) -> Iterator[Path]:
    """Yield a file with the content of `path` that can be read twice: of a pipe, a copy.

    Raises:
        MissingDataError: the pipe cannot be read, or the copy not be written.
        AmpError: out of the body of the `with`; where it names the copy, it names `path` now.
    """
    if not path.is_fifo():
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        try:
            with path.open("rb") as pipe, copy.open("wb") as file:
                shutil.copyfileobj(pipe, file)
        except OSError as error:
            raise _cannot_read(path, error, fix="give a file instead of a pipe") from error
        try:
            yield copy
        except AmpError as error:
            what, where = (s.replace(str(copy), str(path)) for s in (error.what, error.where))
            raise type(error)(what, where=where, fix=error.fix) from error.__cause__


def text_lines(path: Path, *, blank: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text in UTF-8, gzip or not, with their numbers.

    Args:
        blank: whether empty lines are yielded too.
    Raises:
        MissingDataError, DataError: as `open_data_file`; or a line that is not UTF-8.
    """
    with open_data_file(path) as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"holds {raw[error.start : error.start + 4]!r}: not UTF-8",
                    where=f"{path}:{number}",
                    fix="write the file in UTF-8",
                ) from error
            if blank or line.strip():
                yield number, line
