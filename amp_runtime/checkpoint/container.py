"""Numbers and arrays as bytes, in the safetensors format: no code is run to read it.

    length of the header: uint64 | header: JSON, padded with spaces | arrays, one behind the other

The numbers are JSON in the header's `__metadata__`. Read strictly: what is not as this module
writes it is refused, before memory is taken for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from amp_runtime.errors import CheckpointError
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array

MOST_HEADER_BYTES = 1 << 20
MOST_ARRAYS = 4096
MOST_DIMENSIONS = 32
NUMBERS = "numbers"
_LENGTH = struct.Struct("<Q")
_DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def pack(saved: Saved) -> Iterator[bytes | memoryview]:
    """Yield the bytes, piece by piece; arrays are not copied.

    Raises:
        CheckpointError: an array is of a dtype that is not kept, or there are too many.
    """
    header: dict[str, Any] = {"__metadata__": {NUMBERS: json.dumps(saved.numbers)}}
    at = 0
    for name, array in saved.arrays.items():
        if array.dtype not in _NAMES:
            raise CheckpointError(
                f"array {name!r} is {array.dtype}, which no checkpoint holds",
                fix=f"save it as one of {', '.join(map(str, _NAMES))}",
            )
        offsets = [at, at := at + array.nbytes]
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEADER_BYTES or len(saved.arrays) > MOST_ARRAYS:
        raise CheckpointError(
            f"{len(saved.arrays)} arrays and a header of {len(text)} bytes are more than the "
            f"{MOST_ARRAYS} and {MOST_HEADER_BYTES} that a node may save"
        )
    yield _LENGTH.pack(len(text)) + text
    for array in saved.arrays.values():
        yield raw_bytes(array)


def raw_bytes(array: Array) -> memoryview:
    """Return the bytes of an array, rows one behind the other; no copy where it is so already."""
    buffer: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(buffer)


def unpack(data: bytes) -> Saved:
    """Return what `pack` was given; the arrays are read-only, and share the memory of `data`.

    Raises:
        CheckpointError: the bytes are not as `pack` writes them.
    """
    header, start = _header(data)
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or not isinstance(metadata.get(NUMBERS), str):
        raise CheckpointError("the header holds no numbers")
    try:
        numbers = json.loads(metadata[NUMBERS])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the numbers are no JSON: {error}") from error
    if not isinstance(numbers, dict):
        raise CheckpointError(f"the numbers are a {type(numbers).__name__}, no mapping")
    arrays, at = {}, 0
    for name, entry in header.items():
        arrays[name], at = _array(name, entry, data, start, at)
    if start + at != len(data):
        raise CheckpointError(f"{len(data) - start - at} bytes follow the arrays")
    return Saved(numbers, arrays)


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """Return the header, and where the arrays start."""
    if len(data) < _LENGTH.size:
        raise CheckpointError(f"{len(data)} bytes hold no header")
    (length,) = _LENGTH.unpack_from(data)
    if length > min(MOST_HEADER_BYTES, len(data) - _LENGTH.size):
        most = f"there are {len(data)}, and {MOST_HEADER_BYTES} are the most"
        raise CheckpointError(f"a header of {length} bytes; {most}")
    start = _LENGTH.size + length
    try:
        header = json.loads(data[_LENGTH.size : start])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the header is no JSON: {error}") from error
    if not isinstance(header, dict) or len(header) > MOST_ARRAYS + 1:
        raise CheckpointError(f"the header is no mapping of at most {MOST_ARRAYS} arrays")
    return header, start


def _array(name: str, entry: Any, data: bytes, start: int, at: int) -> tuple[Array, int]:
    """Return the array of an entry, which must begin at `at`, and where it ends."""
    try:
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        begin, end = entry["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (LookupError, TypeError, ValueError):
        whole = False
    if not whole or len(entry) != 3 or len(shape) > MOST_DIMENSIONS:
        raise CheckpointError(f"the entry of array {name!r} is damaged: {entry!r:.200}")
    n_bytes = prod(shape) * dtype.itemsize
    if begin != at or end - begin != n_bytes or start + end > len(data):
        raise CheckpointError(
            f"array {name!r} is at {begin} to {end}, but must be at {at} to {at + n_bytes} of "
            f"{len(data) - start}"
        )
    n = prod(shape)
    return np.frombuffer(data, dtype, n, start + begin).reshape(shape), end
