"""`package.module:name` to the object it names; nothing else is ever imported by name."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from amp_runtime.errors import FunctionNameError, nearest

_FORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")

F = TypeVar("F", bound=Callable[..., Any])


def is_qualified(name: str) -> bool:
    """Whether `name` has the form `package.module:name`."""
    return _FORM.fullmatch(name) is not None


def search_also(folder: str | Path) -> None:
    """Let names resolve from `folder` too (the config file's), after the environment."""
    text = str(folder)
    if text and text not in sys.path:
        sys.path.append(text)


def resolve(name: str, *, what: str, where: str = "") -> Any:
    """Return the module-level object that `name` names.

    Args:
        name: `package.module:name`.
        what: what it should be, for the error: "a function on states".
        where: who names it: "node 'more' (kind cond)".
    Raises:
        FunctionNameError: wrong form, no such module or name, or the import fails.
    """
    if not is_qualified(name):
        raise FunctionNameError(
            f"{name!r} is not {what}", where=where, fix="write it as package.module:name"
        )
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        raise FunctionNameError(
            f"{name!r}: no module {missing!r}",
            where=where,
            fix="install it, or put it beside the config file",
        ) from error
    except (Exception, SystemExit) as error:
        raise FunctionNameError(
            f"{name!r}: importing {module_name} raised {type(error).__name__}: {error}", where=where
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        hint = nearest(attribute, (n for n in vars(module) if not n.startswith("_")))
        raise FunctionNameError(
            f"{name!r}: module {module_name} has no {attribute!r}{hint}", where=where
        ) from None


def state_function(name: str, where: str) -> Callable[..., Any]:
    """Return the function on states that `name` names, which takes (columns, structure).

    Raises:
        FunctionNameError: there is none, or it takes something else.
    """
    function = resolve(name, what="a function on states", where=where)
    if not callable(function):
        raise FunctionNameError(f"{name!r} is not a function", where=where)
    try:
        inspect.signature(function).bind("columns", "structure")
    except (TypeError, ValueError) as error:
        raise FunctionNameError(
            f"{name!r} cannot be called with (columns, structure): {error}",
            where=where,
            fix="define it as f(columns, structure)",
        ) from None
    return function  # type: ignore[no-any-return]


def needs(*fields: str) -> Callable[[F], F]:
    """Declare the structure fields that a function on states reads.

    `len(<field>)` asks for the number of elements that an example has in a field,
    without shipping the elements.

    Raises:
        TypeError: what is given is no name: most of all the function, in a bare `@needs`.
    """
    for field in fields:
        if not isinstance(field, str):
            raise TypeError(f"@needs({field!r:.60}): write names of fields, as in @needs('label')")

    def mark(function: F) -> F:
        function.structure_fields = fields  # type: ignore[attr-defined]
        return function

    return mark


def structure_fields(function: Callable[..., Any]) -> Sequence[str]:
    """Return the fields declared with `needs`."""
    return tuple(getattr(function, "structure_fields", ()))
