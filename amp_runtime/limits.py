"""Limits in annotations, as `Annotated[int, Gt(0), "width"]`: said here, checked elsewhere.

pydantic knows those of `annotated_types`, which take 12 ms of each worker's start, and no
worker checks an option. So ours stand for them, and turn into them where somebody asks;
a node kind of your own may use either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Limit:
    """A bound of a number or a length.

    Attributes:
        bound: what the value, or its length, is held against.
    """

    __slots__ = ("bound",)
    # The protocol of `annotated_types.GroupedMetadata`: a limit that is made of others.
    __is_annotated_types_grouped_metadata__ = True

    def __init__(self, bound: float) -> None:
        self.bound = bound

    def __iter__(self) -> Iterator[Any]:
        import annotated_types

        yield getattr(annotated_types, type(self).__name__)(self.bound)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bound!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.bound == self.bound

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.bound))


class Gt(Limit):
    """More than `bound`."""

    __slots__ = ()


class Ge(Limit):
    """`bound` or more."""

    __slots__ = ()


class Lt(Limit):
    """Less than `bound`."""

    __slots__ = ()


class Le(Limit):
    """`bound` or less."""

    __slots__ = ()


class MinLen(Limit):
    """As many elements as `bound`, or more."""

    __slots__ = ()
