"""What RDKit says of a molecule's bonds: which of them are aromatic.

RDKit is an extra (`pip install 'amp_runtime[qm9]'`), imported when it is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from amp_runtime.data.molecules.smiles import (
    AROMATIC,
    DOUBLE,
    SINGLE,
    TRIPLE,
    Skeleton,
    SmilesError,
)
from amp_runtime.errors import MissingDataError


class RdkitBonds:
    """Puts RDKit's types of bonds into molecules.

    Raises:
        MissingDataError: RDKit is not installed.
    """

    def __init__(self) -> None:
        try:
            self._chem: Any = import_module("rdkit.Chem")
            logger: Any = import_module("rdkit.RDLogger")
        except ImportError as error:
            raise MissingDataError(
                "RDKit, which data.bonds asks for, is not installed",
                fix="pip install 'rdkit>=2024.3' into the same environment (the extra qm9); or "
                "leave data.bonds out, and bonds are those that the SMILES write",
            ) from error
        logger.DisableLog("rdApp.*")  # what is wrong is told by our error
        kinds = self._chem.BondType
        self._types = {
            kinds.SINGLE: SINGLE,
            kinds.DOUBLE: DOUBLE,
            kinds.TRIPLE: TRIPLE,
            kinds.AROMATIC: AROMATIC,
        }

    def of(self, smiles: str, skeleton: Skeleton) -> Skeleton:
        """Return a molecule with RDKit's types of bonds; its atoms are numbered alike.

        Raises:
            SmilesError: RDKit refuses the SMILES.
        """
        molecule = self._chem.MolFromSmiles(smiles)
        if molecule is None:
            raise SmilesError(f"SMILES {smiles[:80]!r} is no molecule to RDKit")
        told = {
            frozenset((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())): self._types[
                bond.GetBondType()
            ]
            for bond in molecule.GetBonds()
        }
        bonds = [(a, told.get(frozenset((a, b)), kind), b) for a, kind, b in skeleton.bonds]
        return replace(skeleton, bonds=bonds)
