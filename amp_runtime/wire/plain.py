"""Plain data by annotations: what a control record's fields may hold, there and back.

A dataclass or a TypedDict crosses as a map of its fields, a NamedTuple as a list of them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, is_dataclass
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

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
        hint: int, float, str, bool, None, Any, list[...], dict[str, ...], a dataclass,
            a TypedDict, a NamedTuple, or a union of these; an int may be
            `Annotated[int, Ge(...)]`.
        what: the path to the value, for the error.
        max_items: entries that a list or dict may have.
    Raises:
        WireError: names the path, the value and the type it must have.
    """
    if depth > MAX_DEPTH:
        refuse(what, "...", f"at most {MAX_DEPTH} levels deep")
    if get_origin(hint) is Annotated:
        hint, *limits = get_args(hint)
        check_plain(value, hint, what, max_items, depth)
        for limit in limits:
            if value < limit.bound:
                refuse(what, value, f">= {limit.bound}")
        return
    if (entries := _entries(hint)) is not None:
        _check_entries(value, hint, entries, what, max_items, depth)
        return
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


def check_keys(
    what: str,
    found: Mapping[str, Any],
    keys: AbstractSet[str],
    optional: AbstractSet[str] = frozenset(),
) -> None:
    """Check that a map has exactly the keys that it must have, and else only `optional` ones."""
    if found.keys() == keys:
        return
    for key in sorted(keys - found.keys()):
        raise WireError(f"{what} lacks {key!r}")
    for key in found.keys() - keys - optional:
        raise WireError(f"{what} has {shown(key)}, which is not of this format")


def as_plain(value: Any, hint: Any, what: str) -> Any:
    """Return a record's field as plain data; a dataclass must be the one annotated."""
    if not is_dataclass(hint):
        return value
    if type(value) is not hint:
        refuse(what, value, f"a {_name(hint)}")
    return asdict(value)


def from_plain(plain: Any, hint: Any) -> Any:
    """Return plain data that `check_plain` has passed as what `hint` annotates."""
    if (entries := _entries(hint)) is not None:
        if _is_named_tuple(hint):
            return hint(*map(from_plain, plain, entries.values()))
        made = {key: from_plain(value, entries[key]) for key, value in plain.items()}
        return made if is_typeddict(hint) else hint(**made)
    inner = get_args(hint)
    if get_origin(hint) is list:
        return [from_plain(value, inner[0]) for value in plain]
    if get_origin(hint) is dict:
        return {key: from_plain(value, inner[1]) for key, value in plain.items()}
    return plain


@cache
def _entries(hint: Any) -> Mapping[str, Any] | None:
    """Return {field: its hint} of a dataclass, TypedDict or NamedTuple; None of all else."""
    if is_dataclass(hint) or is_typeddict(hint) or _is_named_tuple(hint):
        return get_type_hints(hint, include_extras=True)
    return None


def _is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def _check_entries(
    value: Any, hint: Any, entries: Mapping[str, Any], what: str, max_items: int, depth: int
) -> None:
    if _is_named_tuple(hint):
        if type(value) not in (list, hint) or len(value) != len(entries):
            refuse(what, value, f"a list of {', '.join(entries)}")
        value = dict(zip(entries, value, strict=True))
    else:
        if type(value) is not dict:
            refuse(what, value, f"a map of {_name(hint)}")
        required = getattr(hint, "__required_keys__", entries.keys())
        check_keys(what, value, required, entries.keys())
    for key, item in value.items():
        check_plain(item, entries[key], f"{what}.{key}", max_items, depth + 1)


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
