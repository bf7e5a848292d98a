"""What something goes on from after a stop: plain numbers and arrays, by name.

A node's is put together from those of its parts, each under a name of its own:

    numbers   {"version": 12, "optimizer": {"steps": 12}}
    arrays    {"parameters/weight": ..., "optimizer/mean@weight": ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_runtime.errors import ParametersError
from amp_runtime.rows.spec import Array

Numbers = Mapping[str, Any]
"""Ints, floats, strings, truth values, None, and lists and string-keyed dicts of these."""


class Saved:
    """What one thing goes on from.

    Attributes:
        numbers: by name; of a part, a mapping under its name.
        arrays: by name; of a part, behind its name and a slash. They are those that are in
            use, no copies, and stand until whoever was saved goes on.
    """

    __slots__ = ("arrays", "numbers")

    def __init__(
        self, numbers: Numbers | None = None, arrays: Mapping[str, Array] | None = None
    ) -> None:
        self.numbers: dict[str, Any] = dict(numbers or {})
        self.arrays: dict[str, Array] = dict(arrays or {})

    def add(self, name: str, part: Saved) -> None:
        """Put in what a part goes on from."""
        if part.numbers:
            self.numbers[name] = part.numbers
        self.arrays |= {f"{name}/{inner}": array for inner, array in part.arrays.items()}

    def part(self, name: str) -> Saved:
        """Return what a part goes on from, as it was added; empty if it was not."""
        start = f"{name}/"
        arrays = {n.removeprefix(start): a for n, a in self.arrays.items() if n.startswith(start)}
        return Saved(self.numbers.get(name), arrays)

    def copy(self) -> Saved:
        """Return the same with arrays in new memory."""
        return Saved(self.numbers, {name: array.copy() for name, array in self.arrays.items()})

    def is_finite(self, but: tuple[str, ...]) -> bool:
        """Whether all floats are finite, in arrays whose names do not start with one of `but`."""
        return all(
            np.isfinite(array).all()
            for name, array in self.arrays.items()
            if array.dtype.kind == "f" and not name.startswith(but)
        )

    def fill(self, own: Mapping[str, Array], where: str) -> None:
        """Write the arrays into those of `own`, which must be the same ones.

        Raises:
            ParametersError: a name, shape or dtype is another; names all.
        """
        faults = [f"has no array {name!r}" for name in self.arrays.keys() - own.keys()]
        for name, array in own.items():
            given = self.arrays.get(name)
            if given is None:
                faults.append(f"is given no {name!r}")
            elif (given.dtype, given.shape) != (array.dtype, array.shape):
                faults.append(
                    f"is given {name!r} as {given.dtype}{list(given.shape)}, "
                    f"but has {array.dtype}{list(array.shape)}"
                )
        if faults:
            raise ParametersError(
                ", ".join(sorted(faults)),
                where=where,
                fix="the model must be the one that the parameters come from",
            )
        for name, array in own.items():
            array[...] = self.arrays[name]  # in place: others hold the same array
