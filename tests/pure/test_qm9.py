"""QM9: molecules of each form of its files become graphs, bonds leading both ways, and a target."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from amp_runtime.checking.rules import ConfigProblemsError
from amp_runtime.data import load_split
from amp_runtime.data.molecules.qm9 import PROPERTIES
from amp_runtime.errors import DataError, MissingDataError

ARCHIVE = Path(os.environ.get("AMP_DATA", ""), "qm9", "qm9_graphs.npz")

# water: O-H, O-H; formaldehyde: C=O, C-H, C-H; a proton by itself; hydrogen cyanide: H-C, C#N
SMALL = {
    "atomic_number": np.array([8, 1, 1, 6, 8, 1, 1, 1, 1, 6, 7], np.uint8),
    "node_offset": np.array([0, 3, 7, 8, 11], np.int32),
    "edge_offset": np.array([0, 2, 5, 5, 7], np.int32),
    "edge_src": np.array([0, 0, 0, 0, 2, 0, 2], np.uint8),
    "edge_dst": np.array([1, 2, 1, 3, 0, 1, 1], np.uint8),
    "edge_type": np.array([0, 0, 1, 0, 0, 0, 2], np.uint8),
    "target": np.array([[1.0, 6.0], [3.0, 6.0], [5.0, 6.0], [7.0, 6.0]], np.float32),
    "target_name": np.array(["Dipole_debye", "HOMO_au"]),
}
DEVIATION = 5**0.5  # of 1, 3, 5, 7, whose mean is 4


@pytest.fixture
def archive(tmp_path):
    def write(**arrays):
        given = {name: a for name, a in {**SMALL, **arrays}.items() if a is not None}
        np.savez(tmp_path / "x.npz", **given)
        return str(tmp_path / "x.npz")

    return write


def load(path, split="train", **options):
    return load_split("qm9", split, 0, {"path": path, "valid": 0, **options})


def molecules(data) -> list[dict[str, list]]:
    """Return all examples, by their target."""
    found = [
        {name: data.gather(name, np.array([n])).values.tolist() for name in data.fields}
        for n in range(len(data))
    ]
    return sorted(found, key=lambda example: example["target"])


def test_atoms_are_one_hot_and_each_bond_leads_both_ways(archive):
    data = load(archive())
    _, formaldehyde, proton, cyanide = molecules(data)
    h, c, n, o = np.eye(5)[:4].tolist()
    assert formaldehyde["annotation"] == [c, o, h, h]
    bonds = [formaldehyde[f"edge_{name}"] for name in ("source", "type", "target")]
    assert list(zip(*bonds, strict=True)) == [
        (0, 0, 2), (0, 0, 3), (0, 1, 1), (1, 1, 0), (2, 0, 0), (3, 0, 0),
    ]  # fmt: skip
    assert formaldehyde["n_out"] == formaldehyde["n_in"] == [3, 1, 1, 1]
    assert formaldehyde["first_edge"] == [0, 3, 4, 5]
    assert (proton["annotation"], proton["edge_type"], proton["n_in"]) == ([h], [], [0])
    assert (cyanide["annotation"], cyanide["edge_type"]) == ([h, c, n], [0, 0, 2, 2])
    assert data.about.vocabularies["edge_type"] == ("single", "double", "triple", "aromatic")


def test_the_target_is_standardised_over_the_file_whatever_is_taken_of_it(archive):
    path = archive()
    whole = load(path)
    wanted = [(value - 4) / DEVIATION for value in (1, 3, 5, 7)]
    assert [m["target"][0] for m in molecules(whole)] == pytest.approx(wanted)
    scales = whole.about.scales["target"]
    assert scales == {
        "error_ratio": pytest.approx(DEVIATION / 0.1),
        "error_debye": pytest.approx(DEVIATION),
    }
    train, valid = (load(path, split, train=1, valid=2) for split in ("train", "valid"))
    assert (len(train), len(valid)) == (1, 2)
    parts = [m["target"][0] for m in molecules(train) + molecules(valid)]
    assert len(set(parts)) == 3
    assert set(parts) <= {m["target"][0] for m in molecules(whole)}
    assert train.about.scales == whole.about.scales


def test_splits_do_not_overlap_and_valid_ones_stay_when_train_changes(archive):
    path = archive()
    valid = molecules(load(path, "valid", valid=2))
    assert valid == molecules(load(path, "valid", valid=2, train=1))
    rest = molecules(load(path, valid=2))
    assert sorted(m["target"] for m in valid + rest) == [m["target"] for m in molecules(load(path))]
    others = [molecules(load(path, "valid", valid=2, split_seed=s)) for s in range(1, 6)]
    assert any(other != valid for other in others)


def with_value(name: str, at: int, value: float) -> dict[str, np.ndarray]:
    changed = SMALL[name].copy()
    changed[at] = value
    return {name: changed}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"edge_type": None}, "has no array 'edge_type'"),
        ({"edge_src": np.zeros((7, 1), int)}, r"array 'edge_src' is int64\[7, 1\]"),
        ({"target": np.zeros((4, 2), int)}, r"array 'target' is int64\[4, 2\]"),
        ({"edge_dst": np.zeros(6, int)}, "edge_src, edge_type and edge_dst differ in length"),
        ({"target_name": np.array(["a"])}, "target_name has not a name for each column"),
        ({"target": np.zeros((3, 2))}, "4 molecules by node_offset, 4 by edge_offset, and 3 by"),
        (with_value("node_offset", 1, 8), "node_offset does not lead from 0 to the 11 of"),
        (with_value("edge_offset", 4, 6), "edge_offset does not lead from 0 to the 7 of"),
        ({"node_offset": np.array([0, 3, 7, 7, 11])}, "molecule 2, counted from 0, has no atom"),
        (with_value("atomic_number", 3, 17), "molecule 1, counted from 0, has an atom not of H, C"),
        (with_value("edge_type", 6, 4), "molecule 3, counted from 0, has a type not of single"),
        (with_value("edge_dst", 1, 3), "molecule 0, counted from 0, has a bond to no atom of it"),
        (with_value("edge_dst", 1, 0), "molecule 0, counted from 0, has an atom that is bound to"),
        (with_value("target", 2, np.nan), "one has none"),
        ({"target_name": np.array(["Dipole", "b"])}, "has no property 'Dipole_debye'.*'Dipole'"),
        ({"target": np.ones((4, 2))}, "all molecules have one Dipole_debye"),
        ({"qm9_index": np.arange(3)}, "qm9_index has not a number for each molecule"),
    ],
)
def test_an_archive_that_is_wrong_is_told_with_what_and_where(archive, arrays, message):
    path = archive(**arrays)
    with pytest.raises(DataError, match=message) as error:
        load(path)
    assert path in str(error.value)


def test_nothing_is_unpickled(archive):
    with pytest.raises(DataError, match=r"is no \.npz archive of arrays"):
        load(archive(target_name=np.array([{"a": 1}, None], object)))


@pytest.mark.parametrize("content", [b"", b"PK\3\4 cut off", pickle.dumps([1])])
def test_a_file_that_is_no_archive_is_told(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.npz: is no \.npz archive of arrays"):
        load(str(tmp_path / "x.npz"))


def test_what_is_not_there_is_told():
    with pytest.raises(
        MissingDataError, match=r"nowhere.npz.*data fetch qm9.*an archive of graphs"
    ):
        load("nowhere.npz")


def test_an_archive_says_its_bonds_itself_and_numbers_only_where_it_has_them(archive, tmp_path):
    with pytest.raises(DataError, match=r"data\.bonds is 'rdkit'; leave data\.bonds out"):
        load(archive(), bonds="rdkit")
    (tmp_path / "list").write_text("Uncharacterized:\n\n 12  NC#N\n14 N\n9\n")
    with pytest.raises(DataError, match="has no qm9_index to leave out by"):
        load(archive(), leave_out=str(tmp_path / "list"))
    kept = load(archive(qm9_index=np.array([12, 13, 14, 15])), leave_out=str(tmp_path / "list"))
    assert sorted(kept.field("edge_type").counts.tolist()) == [4, 6]  # all but water, the proton


def test_a_list_of_what_to_leave_out_names_molecules(archive, tmp_path):
    path = archive(qm9_index=np.arange(4))
    (tmp_path / "list").write_text("none\n")
    with pytest.raises(DataError, match="list: no line begins with a number"):
        load(path, leave_out=str(tmp_path / "list"))
    with pytest.raises(MissingDataError, match=r"nolist.*data\.leave_out"):
        load(path, leave_out="nolist")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": -1}, "train is -1; it must be at least 0; set data.train"),
        ({"valid": 5}, "holds 4 molecules, too few for train 0 \\+ valid 5"),
        ({"train": 3, "valid": 2}, "too few for train 3 \\+ valid 2"),
    ],
)
def test_options_out_of_range_are_refused(archive, options, message):
    with pytest.raises(DataError, match=message):
        load(archive(), **options)


def test_a_property_that_is_none_of_the_twelve_is_refused(archive):
    with pytest.raises(ConfigProblemsError, match="'dipole'"):
        load(archive(), target="dipole")


@pytest.mark.slow
@pytest.mark.skipif(not ARCHIVE.is_file(), reason="AMP_DATA/qm9/qm9_graphs.npz is not there")
def test_the_real_archive_is_read_with_each_of_its_properties():
    counts = [len(load_split("qm9", s, 0, {"path": str(ARCHIVE)})) for s in ("train", "valid")]
    assert counts == [117_749, 13_082]
    for name in PROPERTIES:
        data = load(str(ARCHIVE), "valid", target=name, valid=2000)
        values = data.field("target").values
        assert abs(values.mean()) < 0.1
        assert values.std() == pytest.approx(1, abs=0.1)
    # the error of the standardised dipole moment that counts as 1 elsewhere
    ratio = load(str(ARCHIVE), "valid", valid=1).about.scales["target"]["error_ratio"]
    assert 1 / ratio == pytest.approx(0.066513725, rel=1e-3)
