"""Options for a function from a config: names and types are those of its signature.

A data source declares its options where Python programmers look for them:

    def source(split: str, seed: int, *, path: str, train: int = 4000) -> ...

so a user's own function is checked as strictly as ours, with nothing to register.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from amp_runtime.checking.options import OptionDescription
from amp_runtime.checking.rules import (
    ConfigProblemsError,
    Problem,
    Schema,
    problems_of,
    range_words,
    shown,
    type_words,
)
from amp_runtime.errors import FunctionNameError, nearest


def function_options(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    given: Sequence[str],
    what: str,
    where: str = "",
) -> dict[str, Any]:
    """Check options against the keyword parameters of a function.

    Values are checked against annotations strictly: 1 is a float, but '1' and true
    are no int. A parameter without annotation takes anything; a function with
    `**options` takes any name.

    Args:
        function: what will be called as `function(*given, **options)`.
        options: from the config.
        given: names of the positional parameters that the caller provides.
        what: names the function in errors: "data source 'pixels'".
        where: the file and line of the options.
    Returns:
        The options as they are to be passed; defaults are left to the function.
    Raises:
        FunctionNameError: the function does not take what is given.
        ConfigProblemsError: all options that are unknown, missing or of the wrong type.
    """
    named, takes_any = _parameters(function, given, what, where)
    hints = _annotations(function)
    checked, problems = dict[str, Any](), []
    for name, value in options.items():
        if name not in named and not takes_any:
            said = f"{what} has no option {name!r}{nearest(name, named)}"
            takes = ", ".join(named) or "none"
            problems.append(Problem((name,), f"{said}; it takes {takes}", unknown=True))
            continue
        if name in hints:
            checked[name], wrong = _checked(value, hints[name])
            problems += [replace(p, path=(name, *p.path), said=f"{p.said} ({what})") for p in wrong]
        else:
            checked[name] = value
    for name, parameter in named.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            problems.append(Problem((name,), f"{what} needs option {name!r}; set {name}"))
    if problems:
        raise ConfigProblemsError.of(problems, where)
    return checked


def _parameters(
    function: Callable[..., Any], given: Sequence[str], what: str, where: str
) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return the parameters that options set, and whether any other name is taken too."""
    try:
        if inspect.iscoroutinefunction(function):
            raise TypeError("it is an async function")
        signature = inspect.signature(function)
        signature.bind_partial(*given)
    except (TypeError, ValueError) as error:
        raise FunctionNameError(
            f"{what} cannot be called with ({', '.join(given)}): {error}",
            where=where,
            fix=f"define it as f({', '.join(given)}, *, option: type = default, ...)",
        ) from error
    parameters = list(signature.parameters.values())
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = {p.name: p for p in parameters[len(given) :] if p.kind in by_keyword}
    return named, any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def describe_function(function: Callable[..., Any], n_given: int) -> list[OptionDescription]:
    """Say what each option of `function` takes: from its signature, and its docstring's Args.

    Args:
        n_given: how many positional parameters the caller provides.
    """
    hints = _annotations(function)
    doc = inspect.getdoc(function) or ""
    described = []
    for name, parameter in list(inspect.signature(function).parameters.items())[n_given:]:
        if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
            continue
        schema = _schema_of(hints[name]) if name in hints else {}
        required = parameter.default is inspect.Parameter.empty
        # One line of Args may speak of several: `train, valid: how many`.
        said = re.search(rf"^    (?:\w+, )*{name}(?:, \w+)*: (.*(?:\n        .*)*)", doc, re.M)
        described.append(
            OptionDescription(
                name,
                type_words(schema, schema),
                range_words(schema, schema),
                "" if required else shown(parameter.default),
                " ".join(said[1].split()) if said else "",
            )
        )
    return described


def _schema_of(annotation: Any) -> Schema:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(annotation).json_schema()
    except (PydanticUserError, TypeError):  # a class of the user's own
        return {}


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return annotations by parameter, strings resolved.

    Empty for what has none that can be resolved: a partial, or names that are
    imported for the type checker only. Its options are then checked by name alone.
    """
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (TypeError, NameError):
        return {}


def _checked(value: Any, annotation: Any) -> tuple[Any, list[Problem]]:
    """Return `value` as its annotation wants it, or what is wrong with it."""
    # pydantic takes 80 ms to import: only who reads a config pays
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(annotation)
        schema = adapter.json_schema()
        # As JSON: there a list stands for a tuple too, as it does in YAML.
        return adapter.validate_json(json.dumps(value), strict=True), []
    except ValidationError as error:
        return None, problems_of(error, value, schema)
    except (PydanticUserError, TypeError):  # a class of the user's own: let it pass
        return value, []
