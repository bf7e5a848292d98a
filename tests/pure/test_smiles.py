"""SMILES become atoms and bonds, hydrogens added; what is none is told with its character."""

from __future__ import annotations

import pytest

from amp_runtime.data.molecules.archive import BOND_TYPES, ELEMENTS
from amp_runtime.data.molecules.smiles import SmilesError, read_smiles


def molecule(smiles: str) -> tuple[str, list[str]]:
    """Return the atoms, and each bond as `0=1`."""
    read = read_smiles(smiles)
    sign = dict(zip(range(len(BOND_TYPES)), "-=#:", strict=True))
    return (
        "".join(list(ELEMENTS)[place] for place in read.element),
        sorted(f"{min(a, b)}{sign[kind]}{max(a, b)}" for a, kind, b in read.bonds),
    )


@pytest.mark.parametrize(
    ("smiles", "atoms", "bonds"),
    [
        ("C", "CHHHH", ["0-1", "0-2", "0-3", "0-4"]),
        ("N", "NHHH", ["0-1", "0-2", "0-3"]),
        ("O", "OHH", ["0-1", "0-2"]),
        ("F", "FH", ["0-1"]),
        ("[H][H]", "HH", ["0-1"]),
        ("C#N", "CNH", ["0#1", "0-2"]),
        ("C=O", "COHH", ["0-2", "0-3", "0=1"]),
        ("FC(F)(F)F", "FCFFF", ["0-1", "1-2", "1-3", "1-4"]),
        # a branch goes on from the atom that it began at
        ("C(=O)O", "COOHH", ["0-2", "0-3", "0=1", "2-4"]),
        ("O=C(N)F", "OCNFHH", ["0=1", "1-2", "1-3", "2-4", "2-5"]),
        # rings: oxirane; two rings that share an atom; the bond said at either end
        ("C1CO1", "CCOHHHH", ["0-1", "0-2", "0-3", "0-4", "1-2", "1-5", "1-6"]),
        ("N12CC1C2", "NCCCHHHHH",
         ["0-1", "0-2", "0-3", "1-2", "1-4", "1-5", "2-3", "2-6", "3-7", "3-8"]),
        ("C=1OC1", "COCHH", ["0-1", "0-3", "0=2", "1-2", "2-4"]),
        ("C1OC=1", "COCHH", ["0-1", "0-3", "0=2", "1-2", "2-4"]),
        ("C%10CO%10", "CCOHHHH", ["0-1", "0-2", "0-3", "0-4", "1-2", "1-5", "1-6"]),
        # charges, and hydrogens that are counted: glycine as a zwitterion; N-oxide of nitro
        ("[NH3+]CC([O-])=O", "NCCOOHHHHH",
         ["0-1", "0-5", "0-6", "0-7", "1-2", "1-8", "1-9", "2-3", "2=4"]),
        ("[CH-]", "CH", ["0-1"]),
        ("O=N(=O)F", "ONOF", ["0=1", "1-3", "1=2"]),
        # aromatic as it is written: pyrrole, pyridine's ring of one carbon less, furan
        ("c1cc[nH]c1", "CCCNCHHHHH",
         ["0-5", "0:1", "0:4", "1-6", "1:2", "2-7", "2:3", "3-8", "3:4", "4-9"]),
        ("c1ccoc1", "CCCOCHHHH", ["0-5", "0:1", "0:4", "1-6", "1:2", "2-7", "2:3", "3:4", "4-8"]),
        ("c1ncon1", "CNCONHH", ["0-5", "0:1", "0:4", "1:2", "2-6", "2:3", "3:4"]),
        # stereochemistry says nothing of what is bound
        ("F/C=C\\F", "FCCFHH", ["0-1", "1-4", "1=2", "2-3", "2-5"]),
        ("N[C@@H](F)O", "NCFOHHHH", ["0-1", "0-4", "0-5", "1-2", "1-3", "1-6", "3-7"]),
    ],
)  # fmt: skip
def test_atoms_bonds_and_hydrogens(smiles, atoms, bonds):
    assert molecule(smiles) == (atoms, bonds)


@pytest.mark.parametrize(
    ("smiles", "message"),
    [
        ("", "its end: no atom"),
        ("CX", "'CX', character 2: 'X' is no atom"),
        ("Cl", "character 2: 'l' is no atom"),
        ("C[Na]", r"character 2: '\[' is no atom"),
        ("C.C", r"character 2: '\.' is no"),
        ("=C", "character 1: a bond that no atom is before"),
        ("C=-C", "character 3: a bond that no atom is before"),
        ("C=", "its end: a bond that no atom is behind"),
        ("C(C", "its end: a branch that is not closed"),
        ("CC)", "character 3: a branch of no atom"),
        ("(C)", "character 1: a branch of no atom"),
        ("C1CC", "its end: a ring that is not closed"),
        ("1CC", "character 1: a ring that no atom is before"),
        ("C11", "character 3: ring 1 closes .* on its own atom"),
        ("C=1CC#1", "character 7: ring 1 closes with another bond"),
        ("C(C)(C)(C)(C)C", "its end: atom 0, counted from 0, is C with 5 bonds"),
        ("O=O=O", "its end: atom 1, counted from 0, is O with 4 bonds"),
    ],
)
def test_what_is_no_molecule_is_told_with_its_character(smiles, message):
    with pytest.raises(SmilesError, match=message):
        read_smiles(smiles)
