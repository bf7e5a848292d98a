"""Molecules as graphs of atoms and bonds, and the archive that holds them.

A .npz archive of n molecules, atoms and bonds of all of them end to end:

    atomic_number [atoms]               1, 6, 7, 8 or 9
    node_offset [n + 1]                 first atom of each molecule, and behind the last
    edge_offset [n + 1]                 first bond of each molecule, and behind the last
    edge_src, edge_dst [bonds]          atoms, counted within the molecule; each bond once
    edge_type [bonds]                   0 single, 1 double, 2 triple, 3 aromatic
    target [n, properties]              with their names in target_name [properties]
    qm9_index [n]                       the number of each molecule in QM9; may be left out
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.rows.segments import ranges
from amp_runtime.rows.spec import Array, Int32, Int64

ELEMENTS = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
"""By atomic number."""
BOND_TYPES = ("single", "double", "triple", "aromatic")

_NAMES, _TYPES = ", ".join(ELEMENTS), ", ".join(BOND_TYPES)
_FORM = "its arrays are described in amp_runtime/data/molecules/molecules.py"
_ARRAYS = {
    **dict.fromkeys(("atomic_number", "node_offset", "edge_offset"), ("iu", 1)),
    **dict.fromkeys(("edge_src", "edge_dst", "edge_type"), ("iu", 1)),
    "target": ("f", 2),
    "target_name": ("U", 1),
}
"""{array: (kinds of its dtype, axes)}."""
_INDEX = "qm9_index"


@dataclass(frozen=True, slots=True)
class Molecules:
    """Molecules end to end; atoms are numbered within a molecule, from 0.

    Attributes:
        n_atoms, n_bonds: int32 [molecules].
        element: int32 [atoms], a place in ELEMENTS.
        bonds: int32 [bonds, 3]: atom, place in BOND_TYPES, atom; each bond once.
        properties: {name: float [molecules]}.
        index: int32 [molecules], numbers in QM9; None where the file has none.
    """

    n_atoms: Int32
    n_bonds: Int32
    element: Int32
    bonds: Int32
    properties: Mapping[str, Array]
    index: Int32 | None = None

    def __len__(self) -> int:
        return len(self.n_atoms)

    def subset(self, chosen: Int64) -> Molecules:
        """Return these molecules, in this order, new memory."""
        n_atoms, n_bonds = self.n_atoms[chosen], self.n_bonds[chosen]
        atoms = ranges((np.cumsum(self.n_atoms) - self.n_atoms)[chosen], n_atoms)
        bonds = ranges((np.cumsum(self.n_bonds) - self.n_bonds)[chosen], n_bonds)
        properties = {name: values[chosen] for name, values in self.properties.items()}
        index = None if self.index is None else self.index[chosen]
        return Molecules(
            n_atoms, n_bonds, self.element[atoms], self.bonds[bonds], properties, index
        )


def read_archive(file: Path) -> Molecules:
    """Read an archive of molecules; nothing in it is unpickled.

    Raises:
        MissingDataError: it cannot be opened.
        DataError: it is no such archive; names the array, and the molecule where one is wrong.
    """
    arrays, where = _arrays(file), str(file)
    n_atoms = _counts(arrays, "node_offset", "atomic_number", where)
    n_bonds = _counts(arrays, "edge_offset", "edge_type", where)
    if not len(n_atoms) == len(n_bonds) == len(arrays["target"]):
        raise DataError(
            f"holds {len(n_atoms)} molecules by node_offset, {len(n_bonds)} by edge_offset, and "
            f"{len(arrays['target'])} by target",
            where=where,
        )
    numbers = np.array(list(ELEMENTS.values()))
    element = np.searchsorted(numbers, arrays["atomic_number"]).clip(max=len(numbers) - 1)
    bonds = np.stack([arrays[name] for name in ("edge_src", "edge_type", "edge_dst")], axis=1)
    of_atom, of_bond = (np.repeat(np.arange(len(n)), n) for n in (n_atoms, n_bonds))
    ends, size = bonds[:, ::2], n_atoms[of_bond]
    for wrong, molecule, what in (
        (numbers[element] != arrays["atomic_number"], of_atom, f"an atom not of {_NAMES}"),
        ((bonds[:, 1] < 0) | (bonds[:, 1] >= len(BOND_TYPES)), of_bond, f"a type not of {_TYPES}"),
        ((ends.min(axis=1) < 0) | (ends.max(axis=1) >= size), of_bond, "a bond to no atom of it"),
        (ends[:, 0] == ends[:, 1], of_bond, "an atom that is bound to itself"),
        (n_atoms == 0, np.arange(len(n_atoms)), "no atom"),
    ):
        if wrong.any():
            number = int(molecule[np.flatnonzero(wrong)[0]])
            raise DataError(f"molecule {number}, counted from 0, has {what}", where=where)
    if _INDEX in arrays and len(arrays[_INDEX]) != len(n_atoms):
        raise DataError(f"{_INDEX} has not a number for each molecule", where=where, fix=_FORM)
    names = arrays["target_name"].tolist()
    properties = dict(zip(names, arrays["target"].T.astype(np.float64), strict=True))
    return Molecules(
        n_atoms, n_bonds, element.astype(np.int32), bonds, properties, arrays.get(_INDEX)
    )


def _arrays(file: Path) -> dict[str, Array]:
    """Return the arrays of an archive, of the right types and axes, whole numbers as int32."""
    where, found = str(file), {}
    try:
        # Opened here: numpy leaves a file that is no archive open.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            also = {_INDEX: ("iu", 1)} if _INDEX in archive else {}
            for name, (kinds, n_axes) in (_ARRAYS | also).items():
                if name not in archive:
                    raise DataError(f"has no array {name!r}", where=where, fix=_FORM)
                array = archive[name]
                if array.dtype.kind not in kinds or array.ndim != n_axes:
                    raise DataError(
                        f"array {name!r} is {array.dtype}{list(array.shape)}",
                        where=where,
                        fix=_FORM,
                    )
                found[name] = array.astype(np.int32) if "i" in kinds else array
    except OSError as error:
        raise MissingDataError(
            f"cannot read {file}: {error.strerror or error}", fix="check its permissions"
        ) from error
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"is no .npz archive of arrays ({error})", where=where, fix=_FORM
        ) from error
    if len({len(found[name]) for name in ("edge_src", "edge_type", "edge_dst")}) > 1:
        raise DataError("edge_src, edge_type and edge_dst differ in length", where=where)
    if len(found["target_name"]) != found["target"].shape[1]:
        raise DataError("target_name has not a name for each column of target", where=where)
    return found


def _counts(arrays: Mapping[str, Array], offset: str, rows: str, where: str) -> Int32:
    """Return how many rows each molecule has.

    Raises:
        DataError: offsets that do not begin at 0, or do not cover all rows in order.
    """
    offsets, n_rows = arrays[offset], len(arrays[rows])
    counts = np.diff(offsets)
    if not len(offsets) or offsets[0] != 0 or (counts < 0).any() or offsets[-1] != n_rows:
        raise DataError(
            f"{offset} does not lead from 0 to the {n_rows} of {rows} without a step back",
            where=where,
        )
    return counts
