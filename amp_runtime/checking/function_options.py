"""Options for a function from a config: names and types are those of its signature.

A data source declares its options where Python programmers look for them:

    def source(split: str, seed: int, *, path: str, train: int = 4000) -> ...

so a user's own function is checked as strictly as ours, with nothing to register.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amp_runtime.errors import ConfigError, FunctionNameError, nearest


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
        ConfigError: an option that is unknown, missing or of the wrong type.
    """
    try:
        signature = inspect.signature(function)
        signature.bind_partial(*given)
    except (TypeError, ValueError) as error:
        raise FunctionNameError(
            f"{what} cannot be called with ({', '.join(given)}): {error}",
            where=where,
            fix=f"define it as f({', '.join(given)}, *, option: type = default, ...)",
        ) from error
    hints = _annotations(function)
    parameters = list(signature.parameters.values())
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = {p.name: p for p in parameters[len(given) :] if p.kind in by_keyword}
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    for name in options:
        if name not in named and not takes_any:
            raise ConfigError.of_option(
                name,
                f"{what} has no option {name!r}{nearest(name, named)}",
                where=where,
                fix=f"it takes {', '.join(named) or 'none'}",
            )
    for name, parameter in named.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            raise ConfigError.of_option(
                name, f"{what} needs option {name!r}", where=where, fix=f"set {name}"
            )
    checked = {}
    for name, value in options.items():
        checked[name] = value
        if name in hints:
            checked[name] = _checked(name, value, hints[name], what, where)
    return checked


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return annotations by parameter, strings resolved.

    Empty for what has none that can be resolved: a partial, or names that are
    imported for the type checker only. Its options are then checked by name alone.
    """
    try:
        return typing.get_type_hints(function)
    except (TypeError, NameError):
        return {}


def _checked(name: str, value: Any, annotation: Any, what: str, where: str) -> Any:
    # pydantic takes 80 ms to import: only who reads a config pays
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        # As JSON: there a list stands for a tuple too, as it does in YAML.
        return TypeAdapter(annotation).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        rule = error.errors(include_url=False)[0]["msg"]
        raise ConfigError.of_option(
            name,
            f"option {name!r} of {what} is {value!r}: {rule[0].lower()}{rule[1:]}",
            where=where,
            fix=f"its type is {inspect.formatannotation(annotation)}",
        ) from None
    except (PydanticUserError, TypeError):  # a class of the user's own: let it pass
        return value
