"""What an edge carries: state columns with bit widths, arrays with feature shapes.

Both are fixed when the graph is built. Whatever varies in size varies in rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amp_runtime.errors import KeyOverflowError

INSTANCE = "instance"
EXAMPLE = "example"
POSITION = "@position"
"""What counts 0, 1, ...: an input's rows within the example, a fan-out's within their parent."""
INSTANCE_KEY_BITS = 24
"""Instances in flight together never span more than 2**24 injections."""
MAX_KEY_BITS = 63

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Array = NDArray[Any]

DTYPES: Mapping[str, np.dtype[Any]] = {
    "int32": np.dtype("<i4"),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}
"""The closed table of dtypes that an array on an edge may have."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array of a payload: `[rows, *shape]` of `dtype`."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(['rows', *map(str, self.shape)])}]"

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return DTYPES[self.dtype]

    def fits(self, array: Array) -> bool:
        """Whether `array` is `[rows, *shape]` of this dtype."""
        return array.dtype == DTYPES[self.dtype] and array.shape[1:] == self.shape

    def to_plain(self) -> list[Any]:
        return [list(self.shape), self.dtype]

    @staticmethod
    def from_plain(plain: Sequence[Any]) -> ArraySpec:
        return ArraySpec(tuple(plain[0]), plain[1])


@dataclass(frozen=True)
class StateSchema:
    """The columns of a row's state, in order, with the bits each takes in a key.

    Attributes:
        columns: (name, bits) pairs; the first is `instance`, the second is
            `example` where instances hold more than one example.
    """

    columns: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"({', '.join(f'{name}:{bits}' for name, bits in self.columns)})"

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @cached_property
    def index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def key_bits(self) -> int:
        return sum(bits for _, bits in self.columns)

    def pack(self, state: Int32) -> Int64:
        """Pack the columns of `state` into one int64 key per row.

        Args:
            state: int32 [rows, columns].
        Returns:
            int64 [rows], new memory; equal exactly where all columns are equal.
        Raises:
            KeyOverflowError: a value does not fit its column's declared bits.
        """
        key = (state[:, 0] & ((1 << INSTANCE_KEY_BITS) - 1)).astype(np.int64)
        for i, (name, bits) in enumerate(self.columns[1:], start=1):
            column = state[:, i]
            if column.size and ((column >> bits).any() if bits < 31 else (column < 0).any()):
                worst = int(column.min() if (column < 0).any() else column.max())
                raise KeyOverflowError(
                    f"state column {name!r} holds {worst}, outside its {bits} bits "
                    f"(0 to {(1 << bits) - 1})",
                    fix=f"declare more bits for {name!r} in the graph",
                )
            key <<= bits
            key |= column
        return key

    def to_plain(self) -> list[Any]:
        return [list(column) for column in self.columns]

    @staticmethod
    def from_plain(plain: Sequence[Any]) -> StateSchema:
        return StateSchema(tuple((name, bits) for name, bits in plain))


@dataclass(frozen=True, slots=True)
class PortSpec:
    """What passes a port: the named arrays of the payload and the state schema."""

    arrays: Mapping[str, ArraySpec]
    schema: StateSchema

    def __str__(self) -> str:
        arrays = ", ".join(f"{name}: {spec}" for name, spec in self.arrays.items())
        return f"{{{arrays}}} with state {self.schema}"

    def to_plain(self) -> dict[str, Any]:
        return {
            "arrays": {name: spec.to_plain() for name, spec in self.arrays.items()},
            "schema": self.schema.to_plain(),
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> PortSpec:
        return PortSpec(
            {name: ArraySpec.from_plain(spec) for name, spec in plain["arrays"].items()},
            StateSchema.from_plain(plain["schema"]),
        )


class Columns:
    """The state columns of some rows by name: what a function on states is given."""

    __slots__ = ("_schema", "_state")

    def __init__(self, state: Int32, schema: StateSchema) -> None:
        self._state = state
        self._schema = schema

    def __len__(self) -> int:
        return len(self._state)

    def __getitem__(self, name: str) -> Int32:
        """Return one column, int32 [rows], a view."""
        try:
            return self._state[:, self._schema.index[name]]
        except KeyError:
            raise KeyError(f"no state column {name!r} in {self._schema}") from None

    @property
    def names(self) -> tuple[str, ...]:
        return self._schema.names

    def words(self, row: int) -> str:
        """Return one row's state in words, for errors."""
        state = ", ".join(f"{name} {int(self[name][row])}" for name in self.names)
        return f"row with state ({state})"

    @property
    def instance(self) -> Int32:
        return self._state[:, 0]

    @property
    def example(self) -> Int32:
        """Return the example within its instance: zeros where instances hold one."""
        if EXAMPLE in self._schema.index:
            return self[EXAMPLE]
        return np.zeros(len(self._state), np.int32)
