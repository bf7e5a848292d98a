"""Checks of plain data against annotations: what a control record's fields may hold."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from types import UnionType
from typing import Any, NoReturn, Union, get_args, get_origin

from amp_runtime.errors import WireError

MAX_DEPTH = 32
_SCALARS = (int, float, str, bool, type(None))
_INT_RANGE = (-(2**63), 2**63 - 1)

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60
_repr.maxlevel = 2


def shown(value: Any) -> str:
    """Return `value` as a log line may hold it: capped, ASCII, no control characters."""
    return _repr.repr(value).encode("ascii", "backslashreplace").decode()


def refuse(what: str, value: Any, must: str) -> NoReturn:
    """Raise the WireError for a `value` that breaks a rule: `must` says which."""
    raise WireError(f"{what} is {shown(value)}; it must be {must}")


def check_plain(value: Any, hint: Any, what: str, max_items: int, depth: int = 0) -> None:
    """Check that `value` has exactly the type that `hint` annotates.

    Exactly: a bool is no int, an int no float, a tuple no list, and a numpy
    scalar is none of these. `Any` stands for all plain data.

    Args:
        hint: int, float, str, bool, None, Any, list[...], dict[str, ...] or a
            union of these.
        what: the path to the value, for the error.
        max_items: entries that a list or dict may have.
    Raises:
        WireError: names the path, the value and the type it must have.
    """
    if depth > MAX_DEPTH:
        refuse(what, "...", f"at most {MAX_DEPTH} levels deep")
    kind = type(value)
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        hint = next((h for h in get_args(hint) if kind is (get_origin(h) or h)), hint)
        origin = get_origin(hint)
    if not _is_a(kind, origin or hint):
        refuse(what, value, "plain data" if hint is Any else _name(hint))
    if kind is int and not _INT_RANGE[0] <= value <= _INT_RANGE[1]:
        refuse(what, value, "a 64-bit integer")
    if kind is list or kind is dict:
        if len(value) > max_items:
            refuse(f"number of entries of {what}", len(value), f"<= {max_items}")
        inner = get_args(hint)[-1] if origin else Any
        _check_items(value, inner, what, max_items, depth + 1)


def _check_items(value: Any, hint: Any, what: str, max_items: int, depth: int) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if type(key) is not str:
                refuse(f"a key of {what}", key, "str")
            check_plain(item, hint, f"{what}.{shown(key)[1:-1]}", max_items, depth)
    else:
        for i, item in enumerate(value):
            check_plain(item, hint, f"{what}[{i}]", max_items, depth)


def _is_a(kind: type, hint: Any) -> bool:
    if hint is Any:
        return kind in _SCALARS or kind is list or kind is dict
    return kind is (type(None) if hint is None else hint)


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
