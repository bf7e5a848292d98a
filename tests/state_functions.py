"""Functions on states that tests name in graphs and options."""

from __future__ import annotations

import numpy as np

from amp_runtime.names import needs
from amp_runtime.rows.spec import POSITION, Array, Columns
from amp_runtime.rows.structure import StructureArena


def is_odd(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] % 2 == 1


def thirds(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] % 3


def negative(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] - 5


def one_number(columns: Columns, structure: StructureArena) -> int:
    return 1


def real_numbers(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] * 1.0


def children(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": 10 * columns["step"] + columns[POSITION]}


def edges(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"edge": 3 * columns["step"] + columns[POSITION]}


@needs("n_children")
def n_children(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("n_children", columns, columns["step"])


def by_four(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] // 4}


def place_of_four(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] % 4


def backwards_of_two(columns: Columns, structure: StructureArena) -> Array:
    return 1 - columns["step"] % 4


def to_node(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"node": columns["step"] // 4}


@needs("n_children")
def n_children_of_node(columns: Columns, structure: StructureArena) -> Array:
    return structure.take("n_children", columns, columns["node"])


def nothing(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {}


def raises(columns: Columns, structure: StructureArena) -> Array:
    return columns["stepp"]


@needs("last")
def is_last(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] == structure.take("last", columns)


def next_step(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] + 1}


def to_seven(columns: Columns, structure: StructureArena) -> dict[str, int]:
    return {"step": 7}


def too_far(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] + 300}


def beyond_int32(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"].astype(np.int64) + 2**32}


def other_instance(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"instance": columns["instance"] + 1}


def misspelt(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"stop": columns["step"]}


def too_few(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"][1:]}


def halves(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] * 0.5}


not_a_function = 5
