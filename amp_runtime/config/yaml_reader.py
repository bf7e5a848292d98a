"""Read YAML that someone wrote by hand: strictly, and with the line of every key.

PyYAML's parser gives events; the tree is built here, because what a config must
refuse is gone once PyYAML has built its own: duplicate keys, anchors, tags, lines.

Plain scalars follow the core schema of YAML 1.2. Those that YAML 1.1, which many
readers still speak, would read as something else are refused: `no`, `010`,
`1:30`, `1_000`. So is `1e3`, which one reader takes for text and the next for a
number; `1e-3` and `1.5e3` can only be numbers.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from amp_runtime.checking.rules import ConfigProblemsError, Path, Place, Problem, shown
from amp_runtime.errors import nearest

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16


@dataclass
class Document:
    """A YAML document, where each of its keys was written, and what is wrong with it.

    Attributes:
        value: plain dicts, lists, str, int, float, bool and None.
        places: of each key and list item.
        problems: what can be said together with what a schema finds; the value
            at the path of a problem is None.
    """

    origin: str
    value: Any = None
    places: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path) -> Place:
        """Return where `path` was written, or the nearest key above it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return Place(self.origin)

    def override(self, text: str) -> None:
        """Set one key from `training.optimizer.lr=0.1`; a mapping replaces a mapping.

        What is wrong with the override is added to `problems`.
        """
        try:
            self._set(text)
        except ConfigProblemsError as error:
            self.problems += error.problems

    def _set(self, text: str) -> None:
        place = Place(f"override {text!r}")
        key, equals, written = text.partition("=")
        path = tuple(key.split("."))
        if not equals or not all(map(str.strip, path)):
            raise _refused(place, "an override is written key.key=value")
        if not written.strip():
            raise _refused(place, "no value; write null to clear a key", path)
        try:
            inner = read_text(written, origin=place.origin)
        except ConfigProblemsError as error:
            raise _refused(place, error.problems[0].said, path) from None
        branch = self.value
        for depth, name in enumerate(path[:-1]):
            branch = branch.setdefault(name, {}) if isinstance(branch, dict) else None
            if not isinstance(branch, dict):
                raise _refused(place, "is not a mapping, so it has no keys", path[: depth + 1])
            self.places.setdefault(path[: depth + 1], place)
        branch[path[-1]] = inner.value

        def below(other: Path) -> bool:
            return other[: len(path)] == path

        self.places = {p: at for p, at in self.places.items() if not below(p)} | {path: place}
        self.problems = [p for p in self.problems if not below(p.path)] + [
            Problem(path + p.path, p.said, place) for p in inner.problems
        ]


# ------------------------------------------------------------------------ from the file


def read_file(path: str | os.PathLike[str]) -> Document:
    """Read one YAML file.

    Raises:
        ConfigProblemsError: it is not a regular file of at most 256 KiB of UTF-8,
            or not one YAML document.
    """
    origin = os.fspath(path)
    return read_text(_decode(_read_bytes(origin), origin), origin=origin, lines=True)


def _read_bytes(path: str) -> bytes:
    place = Place(path)
    try:
        # Non-blocking: opening a FIFO waits for a writer otherwise.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        beside = os.listdir(folder) if os.path.isdir(folder) else []
        close = nearest(os.path.basename(path), beside)
        raise _refused(place, f"there is no such file{close}") from None
    except (OSError, ValueError) as error:
        raise _refused(place, f"cannot be opened: {error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(place, "is not a regular file")
    with open(descriptor, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _refused(place, f"is longer than {MAX_BYTES // 1024} KiB")
    return content


def _decode(content: bytes, origin: str) -> str:
    place = Place(origin)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _refused(place, "byte 0: this is UTF-16; save it as UTF-8")
    if (offset := content.find(b"\0")) >= 0:
        raise _refused(place, f"byte {offset}: a NUL byte; save the file as UTF-8 text")
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _refused(place, f"byte {error.start}: not UTF-8 ({error.reason})") from None


def read_text(text: str, *, origin: str, lines: bool = False) -> Document:
    """Read one YAML document.

    Args:
        origin: the file's path or the override, for errors.
        lines: whether a line number means something to the reader of an error.
    Raises:
        ConfigProblemsError: no YAML, nothing in it, or more than one document.
    """
    try:
        return _Builder(text, origin, lines).document()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, origin, lines) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        said = f"character {error.character:#06x} does not belong in a text file"
        raise _refused(Place(origin, line * lines), said) from None


def _syntax_error(
    error: yaml.MarkedYAMLError, text: str, origin: str, lines: bool
) -> ConfigProblemsError:
    mark = error.problem_mark or error.context_mark
    if mark is not None and mark.index >= len(text.rstrip()) and error.context_mark:
        mark = error.context_mark  # an unclosed quote is better shown where it opens
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    place = Place(origin, line, column) if lines else Place(origin)
    said = ", ".join(filter(None, [error.context, error.problem]))
    if mark and text[mark.index : mark.index + 1] == "\t":
        said = "a tab; YAML is indented with spaces"
    return _refused(place, f"not YAML: {said}")


def _refused(place: Place, said: str, path: Path = ()) -> ConfigProblemsError:
    return ConfigProblemsError.of([Problem(path, said, place)], place.origin)


class _Builder:
    """Builds one document from the parser's events; depth bounds its recursion."""

    def __init__(self, text: str, origin: str, lines: bool) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        self._lines = lines
        self._made = Document(origin)

    def document(self) -> Document:
        origin = Place(self._made.origin)
        next(self._events)  # StreamStart
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            raise _refused(origin, "no configuration: the file is empty")
        self._made.value = self._value(next(self._events), ())
        next(self._events)  # DocumentEnd
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise _refused(self._place(after), "a second document; one file is one configuration")
        return self._made

    def _place(self, event: yaml.Event) -> Place:
        return Place(self._made.origin, _line(event) * self._lines)

    def _problem(self, event: yaml.Event, path: Path, said: str) -> None:
        self._made.problems.append(Problem(path, said, self._place(event)))

    def _value(self, event: yaml.Event, path: Path) -> Any:
        if path:
            self._made.places.setdefault(path, self._place(event))
        if isinstance(event, yaml.AliasEvent):
            return self._problem(event, path, f"alias *{event.anchor}: write the value out")
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.anchor is not None:
            self._problem(event, path, f"anchor &{event.anchor}: write the value out each time")
        if event.tag is not None:
            self._problem(event, path, f"tag {event.tag}: tags are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if len(path) >= MAX_DEPTH:
            raise _refused(self._place(event), f"nested deeper than {MAX_DEPTH}")
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        return self._mapping(path) if is_mapping else self._sequence(path)

    def _mapping(self, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path)
            inner = (*path, key)
            if key in lines:
                first = f", first on line {lines[key]}" if self._lines else ""
                self._problem(event, inner, f"duplicate key{first}")
            else:
                self._made.places[inner] = self._place(event)
                lines[key] = _line(event)
            mapping.setdefault(key, self._value(next(self._events), inner))
        return mapping

    def _key(self, event: yaml.Event, path: Path) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise _refused(self._place(event), "a key must be text", path)
        if event.value == "<<" and not event.style:
            self._problem(event, path, "merge key <<: write the keys out")
        elif event.anchor or event.tag:
            self._problem(event, path, f"key {event.value!r}: no anchors, no tags")
        else:
            n_problems = len(self._made.problems)
            key = self._scalar(event, (*path, event.value))
            if not isinstance(key, str) and len(self._made.problems) == n_problems:
                said = f"is a key, and keys are text: quote it ('{event.value}')"
                self._problem(event, (*path, event.value), said)
        return str(event.value)

    def _sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return items

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        text: str = event.value
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            return self._problem(event, path, f"{shown(text)} holds a character that is no text")
        try:
            return text if event.style else plain(text)
        except ValueError as error:
            return self._problem(event, path, str(error))


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # the parser marks every event
    return event.start_mark.line + 1


# -------------------------------------------------------------------------- one scalar

_BOOLEANS = {w: v for v in (True, False) for w in (f"{v}", f"{v}".lower(), f"{v}".upper())}
_NULLS = {"", "~", "null", "Null", "NULL"}
_YAML_1_1_BOOLEANS = re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF")
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_PREFIXED = re.compile(r"[-+]?0[bo][0-9_]+|[-+]0x[0-9a-fA-F]+")
_UNDERSCORED = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?|0x[0-9a-fA-F_]*_[0-9a-fA-F_]*")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_WHOLE_EXPONENT = re.compile(r"[-+]?[0-9]+[eE]\+?[0-9]+")


def plain(text: str) -> str | int | float | bool | None:
    """Return what an unquoted scalar means.

    Raises:
        ValueError: it means different things to different readers, or is a
            number that no option can take. The message says what to write.
    """
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _YAML_1_1_BOOLEANS.fullmatch(text):
        raise ValueError(f"{text} is true or false to some readers: write that, or quote it")
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    if _LEADING_ZERO.fullmatch(text):
        raise ValueError(f"{text} is octal to some readers: write {_decimal(text)}, or quote it")
    if _PREFIXED.fullmatch(text) or _UNDERSCORED.fullmatch(text):
        raise ValueError(f"{shown(text)} is text to some readers: write plain digits, or quote it")
    if _SEXAGESIMAL.fullmatch(text):
        raise ValueError(f"{text} is a number in base 60 to some readers: quote it")
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _NUMBER.fullmatch(text):
        return _number(text)
    return text


def _decimal(text: str) -> str:
    digits = text.replace("_", "")
    octal = f" or {int(digits, 8)}" if set(digits) <= set("+-01234567") else ""
    return f"{int(digits)}{octal}" if len(digits) < 20 else "it without the zero"


def _integer(text: str) -> int:
    # The length first: int() itself refuses thousands of digits, in other words.
    value = int(text, 0) if len(text) <= 20 else 1 << 64
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{shown(text)} does not fit in 64 bits")
    return value


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{shown(text)} is too large for a number")
    if _WHOLE_EXPONENT.fullmatch(text):
        raise ValueError(f"{text} is text to some readers: write {value!r}, or quote it")
    return value


# ---------------------------------------------------------------------------- and back


class _Dumper(yaml.SafeDumper):
    """Writes what `read_text` reads back: every text quoted that would not stay text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        quoted = plain(text) != text or text == "<<" or not text.isprintable()
    except ValueError:
        quoted = True
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if quoted else None)


_Dumper.add_representer(str, _represent_text)


def write_text(value: Any) -> str:
    """Return `value` as YAML that `read_text` reads back equal."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
