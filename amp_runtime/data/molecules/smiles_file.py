"""Files of SMILES, .smi: a molecule a line, and behind it what you like."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from amp_runtime.data.molecules.archive import Molecules
from amp_runtime.data.molecules.rdkit_bonds import RdkitBonds
from amp_runtime.data.molecules.smiles import Skeleton, SmilesError, read_smiles
from amp_runtime.data.paths import text_lines
from amp_runtime.errors import DataError

SUFFIXES = (".smi", ".smiles")


def read_smiles_file(file: Path, rdkit: RdkitBonds | None) -> tuple[Molecules, list[str]]:
    """Return the molecules of a file, gzip or not, in its order, and their SMILES.

    Args:
        rdkit: tells the types of bonds; None: they are as the SMILES write them.
    Raises:
        DataError: no molecule in it, or a line that begins with none; names the line.
    """
    written: list[str] = []
    read: list[Skeleton] = []
    for number, line in text_lines(file):
        smiles = line.split()[0]
        try:
            skeleton = read_smiles(smiles)
            read.append(rdkit.of(smiles, skeleton) if rdkit else skeleton)
        except SmilesError as error:
            raise DataError(str(error), where=f"{file}:{number}") from None
        written.append(smiles)
    if not read:
        raise DataError("holds no molecule", where=str(file), fix="a line begins with a SMILES")
    molecules = Molecules(
        np.array([len(molecule.element) for molecule in read], np.int32),
        np.array([len(molecule.bonds) for molecule in read], np.int32),
        np.array([place for molecule in read for place in molecule.element], np.int32),
        np.array([b for molecule in read for b in molecule.bonds], np.int32).reshape(-1, 3),
        {},
    )
    return molecules, written
