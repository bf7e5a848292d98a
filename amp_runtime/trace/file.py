"""The file of one worker's trace: a line that says whose it is, then blocks of whole events.

{"format": 2, "run": ..., "worker": ...}
block = size, size when decompressed, CRC-32 of what follows: uint32 | events, by zlib
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from amp_runtime.errors import OutputError, TraceError
from amp_runtime.trace.events import End, Event, pack_end, unpack

TRACE_FORMAT = 2
BLOCK_BYTES = 256 << 10
"""Events wait in memory until they are so many bytes, or a barrier comes."""

_BLOCK = struct.Struct("<III")
_HEADER_BYTES = 4096
_LEVEL = 1  # the next levels take twice as long for a tenth fewer bytes
_FIXES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
}


class TraceWriter:
    """Appends events; each that was added is in the file after the next `flush`.

    Args:
        run: of the plan, 32 hex digits.
    Raises:
        OutputError: the file cannot be made, or is there already.
    """

    def __init__(self, path: Path, run: str, worker: str) -> None:
        self.path = path
        self.n_events = 0
        self._waiting: list[bytes] = []
        self._n_bytes = 0
        try:
            self._file: BinaryIO = path.open("xb", buffering=0)
        except OSError as error:
            raise self._failure(error) from None
        self._write(json.dumps({"format": TRACE_FORMAT, "run": run, "worker": worker}).encode())
        self._write(b"\n")

    def add(self, event: bytes) -> None:
        """Append an event.

        Raises:
            OutputError: it cannot be written; what the file holds is a trace that has no end.
        """
        self.n_events += 1
        self._waiting.append(event)
        self._n_bytes += len(event)
        if self._n_bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if not self._waiting:
            return
        events = b"".join(self._waiting)
        self._waiting.clear()
        self._n_bytes = 0
        packed = zlib.compress(events, _LEVEL)
        self._write(_BLOCK.pack(len(packed), len(events), zlib.crc32(packed)) + packed)

    def end(self) -> None:
        """Say that the trace is whole, and close it."""
        self.add(pack_end(self.n_events))
        self.flush()
        self.close()

    def close(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def _write(self, content: bytes) -> None:
        try:
            left = memoryview(content)
            while left:  # a raw file may take a part
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> OutputError:
        fix = _FIXES.get(error.errno or 0, "make the run folder writable")
        return OutputError(
            f"cannot write the trace: {error.strerror or error}",
            where=str(self.path),
            fix=f"{fix}, or leave out runtime.record",
        )


class TraceReader:
    """Reads a whole trace, block by block.

    Args:
        run, worker: whose trace it must be.
    Raises:
        TraceError: it is not there, or another's.
    """

    def __init__(self, path: Path, run: str, worker: str) -> None:
        self.path = path
        self.size = 0
        self._begins_at = 0
        self._check_whose(run, worker)

    def __iter__(self) -> Iterator[Event]:
        """Yield all events, the end last.

        Raises:
            TraceError: it is damaged or has no end; names the file and the event.
        """
        number, ended = 0, False
        try:
            for block in self._blocks():
                for event in unpack(block):
                    if ended:
                        raise TraceError("it goes on behind its end")
                    if isinstance(event, End):
                        ended = True
                        _check_end(event, number)
                    number += 1
                    yield event
            if not ended:
                raise TraceError("the trace ends here, expected more events, or its end")
        except TraceError as error:
            where = f"{self.path}, event {number + 1}"
            raise TraceError(error.what, where=where, fix=_RECORD_AGAIN) from error.__cause__

    def _check_whose(self, run: str, worker: str) -> None:
        try:
            with self.path.open("rb") as file:
                line = file.readline(_HEADER_BYTES)
                self.size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise TraceError(
                f"cannot be read: {error.strerror}", where=str(self.path), fix=_RECORD_AGAIN
            ) from error
        try:
            found = json.loads(line)
            whose = found["format"], found["run"], found["worker"]
        except (ValueError, KeyError, TypeError):
            raise TraceError(
                f"it begins with {line[:40]!r}, expected the header of a trace",
                where=str(self.path),
                fix=_RECORD_AGAIN,
            ) from None
        for what, has, must in zip(
            ("format", "run", "worker"), whose, (TRACE_FORMAT, run, worker), strict=True
        ):
            if has != must:
                raise TraceError(
                    f"a trace of {what} {has!r}, expected {must!r}",
                    where=str(self.path),
                    fix=_RECORD_AGAIN,
                )
        self._begins_at = len(line)

    def _blocks(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(self._begins_at)
            while head := file.read(_BLOCK.size):
                if len(head) < _BLOCK.size:
                    raise TraceError("it is cut within a block")
                n_packed, n_bytes, crc = _BLOCK.unpack(head)
                left = self.size - file.tell()
                if n_packed > left:
                    raise TraceError(f"it is cut: {left} bytes are left of a block of {n_packed}")
                packed = file.read(n_packed)
                if zlib.crc32(packed) != crc:
                    raise TraceError("its bytes are not those that were written")
                yield _decompressed(packed, n_bytes)


_RECORD_AGAIN = "record the run again, with runtime.record=true"


def _decompressed(packed: bytes, n_bytes: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        block = unpacker.decompress(packed, n_bytes + 1)
    except zlib.error as error:
        raise TraceError(f"a block cannot be decompressed: {error}") from error
    if len(block) != n_bytes or not unpacker.eof:
        raise TraceError(f"a block of other than {n_bytes} bytes, as its head says")
    return block


def _check_end(end: End, n_events: int) -> None:
    if end.n_events != n_events:
        raise TraceError(f"its end says {end.n_events} events, but {n_events} went before")
