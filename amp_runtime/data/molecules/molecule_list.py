"""Molecules that are read one by one, from files that write each as a SMILES."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amp_runtime.data.molecules.archive import ELEMENTS, Molecules
from amp_runtime.data.molecules.qm9_properties import PROPERTIES
from amp_runtime.data.molecules.rdkit_bonds import RdkitBonds
from amp_runtime.data.molecules.smiles import SmilesError, read_smiles
from amp_runtime.errors import DataError


@dataclass(frozen=True, slots=True)
class Record:
    """A molecule as a file states it.

    Attributes:
        index: its number in QM9.
        atoms: how many H, C, N, O and F it has.
        values: the properties, in the order of PROPERTIES.
    """

    index: int
    smiles: str
    atoms: Sequence[int]
    values: Sequence[float]


class MoleculeList:
    """Takes records; gives molecules, in the order of their numbers.

    Args:
        rdkit: tells the types of bonds; None: they are as the SMILES write them.
    """

    def __init__(self, rdkit: RdkitBonds | None) -> None:
        self._rdkit = rdkit
        self._where: dict[int, str] = {}
        self._n_atoms, self._n_bonds = array("i"), array("i")
        self._element, self._bonds = array("i"), array("i")
        self._values = array("d")

    def add(self, record: Record, where: str) -> None:
        """Take a molecule.

        Raises:
            DataError: its SMILES is wrong or stands for other atoms; or its number came before.
        """
        try:
            read = read_smiles(record.smiles)
            read = self._rdkit.of(record.smiles, read) if self._rdkit else read
        except SmilesError as error:
            raise DataError(str(error), where=where) from None
        counted = [read.element.count(place) for place in range(len(ELEMENTS))]
        if counted != list(record.atoms):
            raise DataError(
                f"SMILES {record.smiles!r} stands for {_formula(counted)}, but its atoms are "
                f"{_formula(record.atoms)}",
                where=where,
            )
        if (before := self._where.setdefault(record.index, where)) != where:
            raise DataError(f"molecule {record.index} again, as in {before}", where=where)
        self._n_atoms.append(len(read.element))
        self._n_bonds.append(len(read.bonds))
        self._element.extend(read.element)
        for bond in read.bonds:
            self._bonds.extend(bond)
        self._values.extend(record.values)

    def molecules(self, where: str) -> Molecules:
        """Return all that were taken.

        Raises:
            DataError: there are none.
        """
        if not self._where:
            raise DataError("holds no molecule", where=where)
        index = np.array(list(self._where), np.int32)
        names = [asked.column for asked in PROPERTIES.values()]
        values = np.array(self._values).reshape(-1, len(names))
        read = Molecules(
            np.array(self._n_atoms, np.int32),
            np.array(self._n_bonds, np.int32),
            np.array(self._element, np.int32),
            np.array(self._bonds, np.int32).reshape(-1, 3),
            dict(zip(names, values.T, strict=True)),
            index,
        )
        return read.subset(np.argsort(index))


def _formula(atoms: Sequence[int]) -> str:
    return " ".join(f"{name}{n}" for name, n in zip(ELEMENTS, atoms, strict=True) if n) or "none"
