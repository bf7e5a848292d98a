"""Options of node kinds and optimisers: checked against a plain dataclass.

An `Options` class is a frozen stdlib dataclass. Limits and one sentence of
documentation stand in its annotations:

    @dataclass(frozen=True)
    class Options:
        features: Annotated[int, Gt(0), "width of the output"]
        activation: Annotated[Literal["none", "relu"], "applied to the output"] = "none"
        axes: Annotated[tuple[int, ...], "summed over"] = ()

A list in an Options class is a tuple, so that options cannot change. Workers
build the same classes from options that were checked here, before they started.
They may import this module (a model's functions on states stand beside its
builder), but not pydantic, which costs 0.1 s and 10 MB in each process: it is
imported where something is checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from amp_runtime.checking.rules import (
    Problem,
    Schema,
    dotted,
    problems_of,
    range_words,
    shown,
    type_words,
)
from amp_runtime.errors import BadOptionError, UnknownOptionError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OptionDescription:
    """One option in words.

    Attributes:
        default: as YAML would write it; '' for an option that must be given.
    """

    name: str
    type: str
    range: str
    default: str
    doc: str


def validate_options(cls: type[T], given: Mapping[str, Any], *, where: str) -> T:
    """Make the `Options` record of a node or optimiser from what a user gave.

    Args:
        cls: a dataclass, annotated as above.
        where: whose options they are, such as "node 'linear-1' (kind linear)".
    Raises:
        UnknownOptionError: `cls` has no such option; the nearest is named.
        BadOptionError: a value breaks its type or range, or is missing. Either
            error lists all that is wrong, not only the first.
    """
    checked, problems = check_options(cls, given)
    if checked is not None:
        return checked
    unknown = any(problem.unknown for problem in problems)
    raised = UnknownOptionError if unknown else BadOptionError
    what = "; ".join(": ".join(filter(None, [dotted(p.path), p.said])) for p in problems)
    raise raised(what, where=where)


def check_options(
    cls: type[T], given: Mapping[str, Any], *, word: str = "option"
) -> tuple[T | None, list[Problem]]:
    """Return the `Options` record of what a user gave, or all that is wrong with it.

    Args:
        word: what an unknown one is called: "option of kind linear".
    """
    from pydantic import ValidationError

    given = {name: _as_tuples(value) for name, value in given.items()}
    declared: type = cls
    try:
        model = _model(declared).model_validate(given)
    except ValidationError as error:
        return None, problems_of(error, given, _schema(declared), word=word)
    checked = {field.name: getattr(model, _inner(field.name)) for field in _fields(cls)}
    try:
        return cls(**checked), []
    except ValueError as error:  # what a kind's __post_init__ says of options together
        return None, [Problem((), str(error))]


def describe_options(cls: type) -> list[OptionDescription]:
    """Say what each option of `cls` takes, in order of declaration."""
    schema = _schema(cls)
    hints = get_type_hints(cls, include_extras=True)
    return [
        OptionDescription(
            name=field.name,
            type=type_words(schema["properties"][field.name], schema),
            range=range_words(schema["properties"][field.name], schema),
            default="" if _is_required(field) else shown(_default(field)),
            doc=_doc(hints[field.name]),
        )
        for field in _fields(cls)
    ]


@cache
def _model(cls: type) -> type[BaseModel]:
    """Return the pydantic twin of a dataclass."""
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {
        _inner(field.name): (hints[field.name], ... if _is_required(field) else _default(field))
        for field in _fields(cls)
    }
    config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        alias_generator=lambda name: name.removesuffix(_SUFFIX),
    )
    return create_model(cls.__name__, __config__=config, **fields)


_SUFFIX = "_option"


def _inner(name: str) -> str:
    """Return a field name of the twin: an option may be called `copy` or `json`."""
    return name + _SUFFIX


@cache
def _schema(cls: type) -> Schema:
    return _model(cls).model_json_schema()


def _fields(cls: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if field.init]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _doc(annotation: Any) -> str:
    if get_origin(annotation) is not Annotated:
        return ""
    return next((word for word in get_args(annotation)[1:] if isinstance(word, str)), "")


def _as_tuples(value: Any) -> Any:
    """Return `value` with lists as tuples, and numbers of numpy as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return tuple(map(_as_tuples, value))
    if isinstance(value, Mapping):
        return {key: _as_tuples(inner) for key, inner in value.items()}
    return value
