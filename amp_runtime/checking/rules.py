"""What a value must be, in words: for errors, for the config's page, for options.

Pydantic finds what breaks a schema; the words come from the JSON schema of the
same type, so that an error, the table in `configs/README.md` and the page of a
node kind say the same of the same key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from amp_runtime.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pydantic import ValidationError

Path: TypeAlias = tuple[str | int, ...]
"""Keys and list positions from the top of a document to a value."""
Schema: TypeAlias = Mapping[str, Any]
"""A JSON schema."""

SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written: `file:line`, `file:line:column`, or an override."""

    origin: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.origin, *(str(n) for n in (self.line, self.column) if n)])


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: the keys that lead to it; () is the whole document.
        said: what is wrong and what would be right.
        place: where it was written, once that is known.
        unknown: the last key of `path` is not one that may stand there.
    """

    path: Path
    said: str
    place: Place | None = None
    unknown: bool = False

    def __str__(self) -> str:
        return ": ".join(filter(None, [str(self.place or ""), dotted(self.path), self.said]))


class ConfigProblemsError(ConfigError):
    """A config has one or more problems: `str()` lists all, `line()` is one line.

    The code is ConfigError's: to a user it is the same error.
    """

    def __init__(
        self, what: str, *, where: str = "", fix: str = "", problems: Iterable[Problem] = ()
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.problems = tuple(problems)

    @classmethod
    def of(cls, problems: Iterable[Problem], origin: str) -> Self:
        """Collect the problems of the file `origin`, by line; overrides come last."""
        ordered = sorted(problems, key=lambda p: (p.place or Place("")).line or math.inf)
        first, more = ordered[0], len(ordered) - 1
        rest = f" (and {more} more problem{'s'[: more > 1]}, listed above)" if more else ""
        what = ": ".join(filter(None, [dotted(first.path), first.said])) + rest
        return cls(what, where=str(first.place or origin), problems=ordered)

    def __str__(self) -> str:
        if len(self.problems) < 2:
            return super().__str__()
        listed = "\n".join(f"  {problem}" for problem in self.problems)
        return f"{len(self.problems)} problems in the configuration:\n{listed}"

    def line(self) -> str:
        return f"{self.code}: {' '.join(super().__str__().split())}"

    def at(self, where: str) -> ConfigProblemsError:
        place = f"{where}: {self.where}" if self.where else where
        return type(self)(self.what, where=place, fix=self.fix, problems=self.problems)


def below(prefix: Path, problems: Iterable[Problem]) -> list[Problem]:
    """Return problems of the mapping at `prefix` with their paths from the top."""
    return [replace(problem, path=(*prefix, *problem.path)) for problem in problems]


def dotted(path: Path) -> str:
    """Return `training.optimizer.lr`, as an override would name it."""
    return ".".join(map(str, path))


def shown(value: Any) -> str:
    """Return a value as a YAML file would write it, cut to fit a line."""
    text = _written(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _written(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case list() | tuple():
            return f"[{', '.join(map(_written, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{k}: {_written(v)}' for k, v in value.items())}}}"
    return repr(value)


# --------------------------------------------------------------------- words of a schema


def type_words(schema: Schema, root: Schema) -> str:
    """Return what a schema takes: `a whole number`, `'auto' or a whole number`."""
    schema = resolved(schema, root)
    if "anyOf" in schema:
        return " or ".join(type_words(branch, root) for branch in schema["anyOf"])
    if "enum" in schema:
        values = [shown(value) for value in schema["enum"]]
        return " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))
    if "const" in schema:
        return shown(schema["const"])
    match schema.get("type"):
        case "integer":
            return "a whole number"
        case "number":
            return "a number"
        case "boolean":
            return "true or false"
        case "string":
            return "text"
        case "null":
            return "null"
        case "object":
            return "a mapping"
        case "array" if "prefixItems" in schema:
            items = ", ".join(type_words(item, root) for item in schema["prefixItems"])
            return f"a list of {items}"
        case "array" if schema.get("items"):
            return f"a list, each {type_words(schema['items'], root)}"
        case "array":
            return "a list"
    return "any value"


def range_words(schema: Schema, root: Schema) -> str:
    """Return the limits of a schema: `at least 1, at most 9`; '' where it has none."""
    schema = resolved(schema, root)
    branches = schema.get("anyOf", ())
    limits = [
        f"{words} {schema[key]:g}" if isinstance(schema[key], float) else f"{words} {schema[key]}"
        for key, words in _LIMITS.items()
        if key in schema and "prefixItems" not in schema
    ]
    own = [schema["words"]] if "words" in schema else []
    return ", ".join(filter(None, [*own, *limits, *(range_words(b, root) for b in branches)]))


_LIMITS = {
    "exclusiveMinimum": "above",
    "minimum": "at least",
    "exclusiveMaximum": "below",
    "maximum": "at most",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "items at least",
    "maxItems": "items at most",
}


def properties(schema: Schema, root: Schema) -> Mapping[str, Schema]:
    """Return the keys that a mapping's schema names."""
    schema = resolved(schema, root)
    found: dict[str, Schema] = dict(schema.get("properties", {}))
    for branch in schema.get("anyOf", ()):
        found.update(properties(branch, root))
    return found


def resolved(schema: Schema, root: Schema) -> Schema:
    """Return a schema with its reference, if it is one, looked up."""
    while "$ref" in schema:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**root["$defs"][schema["$ref"].rsplit("/", 1)[1]], **rest}
    return schema


def _at(path: Path, root: Schema) -> Schema:
    """Return the schema of the value at `path`; {} where anything goes."""
    schema = root
    for piece in path:
        schema = resolved(schema, root)
        branches = [resolved(branch, root) for branch in schema.get("anyOf", [schema])]
        schema = next(filter(None, (_step(branch, piece) for branch in branches)), {})
    return schema


def _step(schema: Schema, piece: str | int) -> Schema:
    if isinstance(piece, int):
        items = schema.get("prefixItems", ())
        found = items[piece] if piece < len(items) else schema.get("items")
    else:
        found = schema.get("properties", {}).get(piece) or schema.get("additionalProperties")
    return found if isinstance(found, Mapping) else {}


# ------------------------------------------------------------------ what breaks a schema


def problems_of(
    error: ValidationError, given: Any, schema: Schema, *, word: str = "key"
) -> list[Problem]:
    """Say in our words all that pydantic found.

    Args:
        given: what was validated.
        schema: the JSON schema of what it was validated against.
        word: what a user calls a name of this mapping: key, option.
    """
    found: dict[Path, Problem] = {}
    for item in error.errors(include_url=False):
        path = _path_in(given, item["loc"], item["type"])
        last = str(path[-1]) if path else ""
        match item["type"]:
            case "extra_forbidden":
                valid = properties(_at(path[:-1], schema), schema)
                said = f"unknown {word}{nearest(last, valid) or f' (valid: {_listed(valid)})'}"
                problem = Problem(path, said, unknown=True)
            case "missing":
                rule = _rule(path, schema)
                problem = Problem(path, f"is missing: {rule} is required")
            case "value_error" | "assertion_error":
                problem = Problem(path, str(item["ctx"]["error"]))
            case _:
                value = _value_at(given, path)
                said = f"must be {_rule(path, schema)}, not {shown(value)}"
                form = _at(path, schema).get("form") if not isinstance(value, Mapping) else None
                problem = Problem(path, f"{said}; write it as in {form}" if form else said)
        # The branches of a union fail one by one: `_rule` names them all, once.
        found.setdefault(path, problem)
    # What is wrong within a mapping says more than that it is none of the other branches.
    return [p for at, p in found.items() if not any(_within(other, at) for other in found)]


def _within(path: Path, outer: Path) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer


def _rule(path: Path, schema: Schema) -> str:
    here = _at(path, schema)
    limits = range_words(here, schema)
    return f"{type_words(here, schema)}{f' ({limits})' if limits else ''}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _path_in(given: Any, loc: tuple[str | int, ...], kind: str) -> Path:
    """Return the path of an error without the names that pydantic gives to branches."""
    path: list[str | int] = []
    value = given
    for piece in loc:
        inside = (isinstance(value, Mapping) and piece in value) or (
            isinstance(value, list | tuple) and isinstance(piece, int) and piece < len(value)
        )
        if inside:
            value = value[piece]
            path.append(piece)
    if kind == "missing":
        path.append(loc[-1])
    return tuple(path)


def _value_at(given: Any, path: Path) -> Any:
    for piece in path:
        given = given[piece]
    return given
