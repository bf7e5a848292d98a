"""What functions on states return, checked: other states, and whole numbers.

A kind that changes the state names a function that returns the columns it changes,
`{name: int array [rows]}`; the other columns that leave keep their values. Which columns
leave is fixed when the graph is built: those that came, or those of the option `columns`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amp_runtime.errors import SchemaMismatchError, UserFunctionError, nearest
from amp_runtime.nodes.node import Node
from amp_runtime.rows.spec import (
    EXAMPLE,
    INSTANCE,
    MAX_KEY_BITS,
    POSITION,
    Array,
    Columns,
    Int32,
    Int64,
    StateSchema,
)

_FIXED = (INSTANCE, EXAMPLE)
_INT32 = np.iinfo(np.int32)


def leaving_schema(schema: StateSchema, columns: Mapping[str, int] | None) -> StateSchema:
    """Return the schema of rows that leave.

    Args:
        schema: of the rows that came.
        columns: {name: bits} of those that leave beside `instance` and `example`; None:
            as they came.
    Raises:
        SchemaMismatchError: a fixed column, a width that is not 1 to 31 bits, or more than
            a key holds.
    """
    if columns is None:
        return schema
    for name, bits in columns.items():
        if name in _FIXED:
            raise SchemaMismatchError(f"option 'columns': {name!r} leaves as it came: leave it out")
        if not 1 <= bits <= 31:
            raise SchemaMismatchError(f"option 'columns': {name!r} has {bits} bits, not 1 to 31")
    fixed = tuple(column for column in schema.columns if column[0] in _FIXED)
    after = StateSchema((*fixed, *columns.items()))
    if after.key_bits > MAX_KEY_BITS:
        raise SchemaMismatchError(
            f"option 'columns': the state {after} takes {after.key_bits} bits, "
            f"more than {MAX_KEY_BITS}",
            fix="declare fewer bits, or fewer columns",
        )
    return after


class StateChange:
    """A function on states that makes other states of them.

    Args:
        node: whose option names the function.
        function: `package.module:function`.
        before, after: the columns of the rows that come, and of those that leave.
    """

    def __init__(self, node: Node, function: str, before: StateSchema, after: StateSchema) -> None:
        self._node = node
        self._name = function
        self._function = node.state_function(function)
        self._after = after
        self._changeable = [n for n in after.names if n not in _FIXED]
        self._kept = [(after.index[n], n) for n in after.names if n in before.index]
        self._made = [n for n in after.names if n not in before.index]

    def __call__(self, columns: Columns) -> Int32:
        """Return the states that `columns` become, int32 [rows, n], new memory.

        Raises:
            UserFunctionError: the function raises, or returns no columns that may change,
                not all that must, or values that are no int32 [rows].
            KeyOverflowError: a value is outside the bits of its column.
        """
        changed = self._node.call(self._function, columns)
        if not isinstance(changed, Mapping):
            raise self._wrong(f"returned {type(changed).__name__}, not a dict of columns")
        n = len(columns)
        state = np.empty((n, len(self._after.names)), np.int32)
        for at, name in self._kept:
            state[:, at] = columns[name]
        for name, values in changed.items():
            if name not in self._changeable:
                raise self._wrong(
                    f"changes {name!r}, which is no column it may change"
                    f"{nearest(name, self._changeable)}"
                )
            state[:, self._after.index[name]] = self._checked(name, np.asarray(values), n)
        for name in self._made:
            if name not in changed:
                raise self._wrong(f"does not return {name!r}, a column that did not come")
        self._after.pack(state)  # refuses values outside their declared bits
        return state

    def _checked(self, name: str, values: Array, n: int) -> Array:
        if values.dtype.kind not in "iu" or values.shape not in ((), (n,)):
            raise self._wrong(
                f"returned {values.dtype}{list(values.shape)} for {name!r}, not int[{n}]"
            )
        if (wrapped := (values < _INT32.min) | (values > _INT32.max)).any():
            raise self._wrong(f"returned {values[wrapped].flat[0]} for {name!r}, outside int32")
        return values

    def _wrong(self, what: str) -> UserFunctionError:
        return UserFunctionError(f"{self._name} {what}", where=_place(self._node))


class WholeNumbers:
    """A function on states that returns a whole number for each row, or a fixed number.

    Args:
        node: whose option it is.
        given: the number, or `package.module:function`.
        at_least: the least that it may be.
    """

    def __init__(self, node: Node, given: int | str, at_least: int = 0) -> None:
        self._node = node
        self._given = given
        self._at_least = at_least
        self._function = node.state_function(given) if isinstance(given, str) else None

    def __call__(self, columns: Columns) -> Int64:
        """Return int64 [rows].

        Raises:
            UserFunctionError: the function raises, or returns no int [rows], or too little.
        """
        n = len(columns)
        if self._function is None:
            return np.full(n, self._given, np.int64)
        values = np.asarray(self._node.call(self._function, columns))
        if values.dtype.kind not in "iu" or values.shape not in ((), (n,)):
            raise UserFunctionError(
                f"{self._given} returned {values.dtype}{list(values.shape)}, not int[{n}]",
                where=_place(self._node),
            )
        numbers = np.broadcast_to(values, n).astype(np.int64)
        if (low := numbers < self._at_least).any():
            at = int(np.flatnonzero(low)[0])
            raise UserFunctionError(
                f"{self._given} returned {int(numbers[at])}, less than {self._at_least}",
                where=f"{_place(self._node)}, {columns.words(at)}",
            )
        return numbers


def with_positions(columns: Int32, schema: StateSchema, positions: Int64) -> Columns:
    """Return states with one more column, `@position`, for functions to read."""
    extended = np.column_stack([columns, positions.astype(np.int32)])
    return Columns(extended, StateSchema((*schema.columns, (POSITION, 31))))


def _place(node: Node) -> str:
    return f"node {node.name!r} (kind {node.kind})"
