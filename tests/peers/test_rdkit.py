"""Molecules that we read from SMILES are RDKit's: atoms, bonds, and types but for aromatic ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rdkit", reason="RDKit is not installed (make peers)")

from rdkit import Chem

from amp_runtime.data import load_split
from amp_runtime.data.molecules.archive import ELEMENTS
from amp_runtime.data.molecules.rdkit_bonds import RdkitBonds
from amp_runtime.data.molecules.smiles import (
    AROMATIC,
    DOUBLE,
    SINGLE,
    TRIPLE,
    SmilesError,
    read_smiles,
)

pytestmark = pytest.mark.peers

TYPES = {1.0: SINGLE, 2.0: DOUBLE, 3.0: TRIPLE, 1.5: AROMATIC}
SMILES = [
    *("C", "N", "O", "C#C", "C#N", "C=O", "CC", "CO", "CC#C", "CC#N", "CC=O", "NC=O", "CCC"),
    *("C1CC1", "C1CO1", "CC(C)=O", "CC(N)=O", "NC(N)=O", "CC(C)(C)C", "O=CC#C", "C1=CC=CN1"),
    *("C1=COC=C1", "O=C1CC2CC(O2)C1=O", "O=C1CN2CC(C2)C1=O", "[NH3+]CC([O-])=O"),
    *("C[NH2+]CC([O-])=O", "[NH+]12CC1C2", "C12C3C4C1C5C2C3C45", "FC1=NC(F)=NC(F)=N1"),
    *("N12CC1C2", "C1=CC2=CC=CC2=C1", "OC1=CC=CC=C1", "CN1C=NC=N1", "N=C1NC=CO1"),
    *("c1ccccc1", "c1cc[nH]c1", "c1ccoc1", "Cn1cccc1", "c1ccc2occc2c1", "C%10CCCCC%10", "F/C=C\\F"),
    *("N[C@@H](F)O", "[H][H]", "c1cnc[nH]1", "c1ccncc1", "C=1OC1", "[O-]c1cc[nH+]cc1"),
    *("n1nnn[n-]1", "O=N(=O)C1=CC=CN1"),
]  # fmt: skip
TABLES = Path(os.environ.get("AMP_DATA", ""), "qm9", "qm9pack")
ARCHIVE = TABLES.with_name("qm9_graphs.npz")


def by_rdkit(smiles: str) -> tuple[list[int], dict[frozenset[int], int]]:
    molecule = Chem.AddHs(Chem.MolFromSmiles(smiles))
    numbers = list(ELEMENTS.values())
    return [numbers.index(atom.GetAtomicNum()) for atom in molecule.GetAtoms()], {
        frozenset((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())): TYPES[bond.GetBondTypeAsDouble()]
        for bond in molecule.GetBonds()
    }


@pytest.mark.parametrize("smiles", SMILES)
def test_atoms_and_bonds_are_rdkits(smiles):
    # A hydrogen molecule is all that RDKit numbers otherwise, and it has but one bond.
    elements, bonds = by_rdkit(smiles)
    read = read_smiles(smiles)
    assert read.element == elements
    ours = {frozenset((a, b)): kind for a, kind, b in read.bonds}
    assert ours.keys() == bonds.keys()
    assert len(ours) == len(read.bonds)
    nitro = smiles.startswith("O=N(=O)")
    for ends, kind in bonds.items():
        assert ours[ends] == kind or kind == AROMATIC or (nitro and ours[ends] == DOUBLE)
    told = RdkitBonds().of(smiles, read)
    assert {frozenset((a, b)): kind for a, kind, b in told.bonds} == bonds
    assert told.element == read.element


def test_what_rdkit_refuses_is_told_with_its_smiles():
    smiles = "[CH4]=O"
    with pytest.raises(SmilesError, match=r"SMILES '\[CH4\]=O' is no molecule to RDKit"):
        RdkitBonds().of(smiles, read_smiles(smiles))


@pytest.mark.slow
@pytest.mark.skipif(
    not (TABLES.is_dir() and ARCHIVE.is_file()), reason="AMP_DATA/qm9/qm9pack is not there"
)
def test_all_real_molecules_are_to_rdkit_what_the_archive_says():
    given = {"valid": 130_831, "train": 0}
    ours = load_split("qm9", "valid", 0, {"path": str(TABLES), "bonds": "rdkit", **given})
    theirs = load_split("qm9", "valid", 0, {"path": str(ARCHIVE), **given})
    for name, field in ours.fields.items():
        if name == "target":
            np.testing.assert_allclose(field.values, theirs.field(name).values, atol=1e-5)
        else:
            np.testing.assert_array_equal(field.values, theirs.field(name).values)
