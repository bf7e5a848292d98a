"""QM9 as others publish it: tables, .xyz files in folders and tars, all one set of graphs."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from amp_runtime.data import load_split
from amp_runtime.data.molecules.qm9_properties import PROPERTIES
from amp_runtime.errors import DataError

# number: (GDB-9's SMILES, of the relaxed geometry, atoms as the file has them)
MOLECULES = {
    3: ("O", "O", "OHH"),
    5: ("C#N", "C#N", "CNH"),
    12: ("C(=O)N", "NC=O", "CONHHH"),
    214: ("C1=CC=CN1", "c1ccc[nH]1", "CCCCNHHHHH"),
}
VALUES = {
    number: [round(number / 8 + 0.25 * column, 3) for column in range(len(PROPERTIES))]
    for number in MOLECULES
}


def xyz(number: int) -> str:
    """Return the file of a molecule, floats as Mathematica writes them."""
    smiles, relaxed, atoms = MOLECULES[number]
    values = "\t".join(f"{value / 10:g}*^1" for value in VALUES[number])
    lines = [
        str(len(atoms)),
        f"gdb {number}\t1.5\t0.\t-2.*^-6\t{values}\t",
        *(f"{element}\t0.1\t-1.2*^-6\t0.\t-0.3" for element in atoms),
        "1671.4222\t3803.6305",
        f"{smiles}\t{relaxed}\t",
        "InChI=1S/H2O/h1H2\tInChI=1S/H2O/h1H2",
    ]
    return "\n".join(lines) + "\n"


def table() -> str:
    names = ("XYZ_file", "Index", "SMILES", "InChi", "N_atoms", "Stoichiometry", "Elements")
    lines = [",".join((*names, *(asked.column for asked in PROPERTIES.values())))]
    for number, (smiles, _, atoms) in MOLECULES.items():
        counted = ",".join(str(atoms.count(element)) for element in "HCNOF")
        elements = "[" + ",".join(f"'{a}'" for a in atoms) + "]"
        fields = f'"x.xyz",{number},"{smiles}","InChI=1S/x/h1H,2H",{len(atoms)},"[{counted}]"'
        lines.append(",".join((fields, f'"{elements}"', *map(str, VALUES[number]))))
    return "\n".join(lines) + "\n"


def write_folder(folder: Path) -> Path:
    folder.mkdir()
    for number in reversed(MOLECULES):
        (folder / f"dsgdb9nsd_{number:06}.xyz").write_text(xyz(number))
    return folder


def write_tar(path: Path, mode: str) -> Path:
    with tarfile.open(path, mode) as archive:
        for name, text in [
            *((f"./dsgdb9nsd_{number:06}.xyz", xyz(number)) for number in (12, 3, 214, 5)),
            ("readme.txt", "not a molecule"),
            ("./._dsgdb9nsd_000003.xyz", "of a file system"),
        ]:
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def write_tables(folder: Path) -> Path:
    folder.mkdir()
    header, *lines = table().splitlines(keepends=True)
    (folder / "qm9_part1.csv").write_text(header + "".join(lines[:1]))
    (folder / "qm9_part2.csv").write_text(header + "".join(lines[1:]))
    (folder / "qm9_polarizability.csv").write_text("A_xx\n1\n")
    return folder


def write_one_table(path: Path) -> Path:
    path.write_text(table())
    return path


FORMS = {
    "a folder of .xyz": lambda at: write_folder(at / "xyz"),
    "a tar": lambda at: write_tar(at / "x.tar", "w"),
    "a tar.bz2": lambda at: write_tar(at / "x.tar.bz2", "w:bz2"),
    "a folder of tables": lambda at: write_tables(at / "qm9pack"),
    "a table": lambda at: write_one_table(at / "x.csv"),
}


def load(path: Path, split="train", **options):
    return load_split("qm9", split, 0, {"path": str(path), "valid": 0, **options})


def columns(data) -> dict[str, list]:
    return {name: field.values.tolist() for name, field in data.fields.items()}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_molecules_in_the_same_order(tmp_path, form):
    data = load(FORMS[form](tmp_path), target="cv")
    assert columns(data) == columns(load(FORMS["a table"](tmp_path), target="cv"))
    order = np.random.default_rng(0).permutation(4)
    sizes = np.array([len(atoms) for _, _, atoms in MOLECULES.values()])
    assert data.field("annotation").counts.tolist() == sizes[order].tolist()
    values = np.array([of_one[-1] for of_one in VALUES.values()])
    wanted = (values - values.mean()) / values.std()
    np.testing.assert_allclose(data.field("target").values, wanted[order], rtol=1e-6)


@pytest.mark.parametrize("form", ["a folder of .xyz", "a table"])
def test_bonds_are_those_that_the_smiles_write(tmp_path, form):
    data = load(FORMS[form](tmp_path), train=4)
    (at,) = np.flatnonzero(data.field("annotation").counts == 3 + 3)  # formamide
    one = {name: data.gather(name, np.array([at])).values.tolist() for name in data.fields}
    bonds = [one[f"edge_{name}"] for name in ("source", "type", "target")]
    assert {b for b in zip(*bonds, strict=True) if b[0] < b[2]} == {
        (0, 1, 1), (0, 0, 2), (0, 0, 3), (2, 0, 4), (2, 0, 5),
    }  # fmt: skip
    (at,) = np.flatnonzero(data.field("annotation").counts == 10)  # pyrrole, as GDB-9 writes it
    kinds = data.gather("edge_type", np.array([at])).values
    assert np.bincount(kinds).tolist() == [2 * 8, 2 * 2]


@pytest.mark.parametrize("target", PROPERTIES)
def test_any_of_the_twelve_targets_is_read_from_its_place(tmp_path, target):
    place = list(PROPERTIES).index(target)
    values = {number: list(of_one) for number, of_one in VALUES.items()}
    for number, of_one in values.items():
        of_one[place] = number**2
    wanted = np.array([number**2 for number in MOLECULES], float)
    for form in ("a folder of .xyz", "a table"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{__name__}.VALUES", values)
            data = load(FORMS[form](tmp_path), target=target)
        spread = data.about.scales["target"]["error_ratio"] * PROPERTIES[target].accuracy
        assert spread == pytest.approx(wanted.std())
        np.testing.assert_allclose(
            np.sort(data.field("target").values), (wanted - wanted.mean()) / wanted.std(), rtol=1e-6
        )


def test_one_file_is_one_molecule_and_one_has_no_spread(tmp_path):
    (tmp_path / "one.xyz").write_text(xyz(5))
    with pytest.raises(DataError, match=r"one\.xyz: all molecules have one Dipole_debye"):
        load(tmp_path / "one.xyz")


def test_listed_molecules_are_left_out(tmp_path):
    (tmp_path / "list").write_text("# Index  SMILES\n  3 O O\n")
    data = load(write_folder(tmp_path / "xyz"), leave_out=str(tmp_path / "list"))
    assert sorted(data.field("annotation").counts.tolist()) == [3, 6, 10]


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (1, "x", r":1: is not the number of atoms"),
        (1, "4", r":8: 4 atoms make 9 lines; it has 8"),
        (1, "2", r":7: 2 atoms make 7 lines; it has 8"),
        (2, "gdb 3 1.", r":2: is not gdb, a number and 15 values: 'gdb 3 1\.'"),
        (2, "gdb 3 " + "1. " * 14 + "1*^", r":2: could not convert string to float: '1e'"),
        (4, "Cl 0. 0. 0. 0.", r":4: 'Cl 0\. 0\. 0\. 0\.' is not an element, x, y, z and charge"),
        (4, "H 0. 0. 0.", r":4: 'H 0\. 0\. 0\.' is not an element"),
        (7, "O", r":7: 'O' is not two SMILES"),
        (7, "OX OX", r":7: SMILES 'OX', character 2: 'X' is no atom"),
        (7, "OO O", r":7: SMILES 'OO' stands for H2 O2, but its atoms are H2 O1"),
        (2, "gdb 5 " + "1. " * 15, r"molecule 5 again, as in .*000003\.xyz:7"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, line, text, message):
    folder = write_folder(tmp_path / "xyz")
    path = folder / "dsgdb9nsd_000003.xyz"
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=message) as error:
        load(folder)
    assert ".xyz:" in str(error.value)


def test_a_wrong_member_of_a_tar_is_named_and_a_cut_tar_told(tmp_path):
    path = tmp_path / "x.tar.bz2"
    with tarfile.open(path, "w:bz2") as archive:
        member = tarfile.TarInfo("deep/one.xyz")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"x\n"))
    with pytest.raises(DataError, match=r"x\.tar\.bz2:deep/one\.xyz:1: is not the number"):
        load(path)
    whole = write_tar(tmp_path / "y.tar.bz2", "w:bz2").read_bytes()
    for content in (whole[: len(whole) // 2], b"no tar at all, but long enough" * 99, b""):
        (tmp_path / "y.tar.bz2").write_bytes(content)
        with pytest.raises(DataError, match=r"y\.tar\.bz2: is no whole tar"):
            load(tmp_path / "y.tar.bz2")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Index,", "index,", r"x\.csv:1: has no column 'Index' \(did you mean 'index'\?\)"),
        ('"C#N"', '"C#"', r"x\.csv:3: SMILES 'C#', its end: a bond that no atom is behind"),
        ("[1,1,1,0,0]", "[1,1,2,0,0]", r"x\.csv:3: SMILES 'C#N' stands for H1 C1 N1, but its"),
        ("[1,1,1,0,0]", "[1,1,1]", r"x\.csv:3: Stoichiometry '\[1,1,1\]' is not a number for"),
        (",5,", ",five,", r"x\.csv:3: invalid literal for int.*'five'"),
        (",5,", ",3,", r"x\.csv:3: molecule 3 again, as in .*x\.csv:2"),
        (',"C#N"', "", r"x\.csv:3: has 18 fields where the first line has 19"),
        ('"C#N"', '"C#N', r"x\.csv:3: SMILES 'C#N,InChI=1S/x/h1H', character 4: ','"),
        ("C#N", "C#N" * 50_000, r"x\.csv:3: field larger than field limit"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(tmp_path, old, new, message):
    (tmp_path / "x.csv").write_text(table().replace(old, new))
    with pytest.raises(DataError, match=message):
        load(tmp_path / "x.csv")


def test_what_is_no_form_of_qm9_is_told(tmp_path):
    (tmp_path / "x.sdf").write_text("")
    with pytest.raises(DataError, match=r"x\.sdf: is named neither \.npz, \.csv, \.xyz nor \.tar"):
        load(tmp_path / "x.sdf")
    with pytest.raises(DataError, match=r"holds none of qm9_part\*\.csv\* and \*\.xyz"):
        load(tmp_path)
    (tmp_path / "x.csv").write_text(table().splitlines()[0])
    with pytest.raises(DataError, match=r"x\.csv: holds no molecule"):
        load(tmp_path / "x.csv")


def test_a_file_that_changes_is_read_again(tmp_path):
    path = write_one_table(tmp_path / "x.csv")
    assert len(load(path)) == 4
    path.write_text("".join(table().splitlines(keepends=True)[:3]))
    assert len(load(path)) == 2


def test_without_rdkit_asking_for_its_bonds_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    path = write_one_table(tmp_path / "x.csv")
    with pytest.raises(DataError.__base__, match=r"RDKit.*is not installed; pip install 'rdkit"):
        load(path, bonds="rdkit")


TABLES = Path(os.environ.get("AMP_DATA", ""), "qm9", "qm9pack")
ARCHIVE = TABLES.with_name("qm9_graphs.npz")


@pytest.mark.slow
@pytest.mark.skipif(
    not (TABLES.is_dir() and ARCHIVE.is_file()), reason="AMP_DATA/qm9/qm9pack is not there"
)
def test_all_real_molecules_have_the_atoms_and_bonds_of_the_archive():
    ours, theirs = (load(path, "valid", valid=130_831) for path in (TABLES, ARCHIVE))
    for name in ("annotation", "n_out", "n_in", "first_edge", "edge_source"):
        np.testing.assert_array_equal(ours.field(name).values, theirs.field(name).values)
    graph = np.repeat(np.arange(len(ours)), ours.field("edge_source").counts)
    targets = []
    for data in (ours, theirs):  # of an atom bonds are in the order of types, which differ
        source, target = (data.field(f"edge_{end}").values for end in ("source", "target"))
        targets.append(target[np.lexsort((target, source, graph))])
    np.testing.assert_array_equal(*targets)
