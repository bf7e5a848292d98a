"""QM9: small organic molecules as graphs of atoms and bonds, and what they are like.

data.path   a .npz archive of graphs (`molecules.py` says what is in it)
            a folder with qm9_part1.csv, ... of the package qm9pack, or one such file
            a folder, or a .tar.bz2, of the .xyz files that were published, or one of them

An archive says how atoms are bound. Of the others the SMILES do: single, double and triple
bonds as they are written, hydrogens added; or, with `bonds: rdkit`, as RDKit sees them, which
finds the aromatic ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from amp_runtime.data.about import About, Unit
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.graphs.typed_graphs import Graphs
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.molecules.archive import BOND_TYPES, ELEMENTS, Molecules, read_archive
from amp_runtime.data.molecules.qm9_properties import PROPERTIES, Target
from amp_runtime.data.molecules.qm9_table import PATTERN, read_tables
from amp_runtime.data.molecules.qm9_xyz import SUFFIX, TARS, read_xyz
from amp_runtime.data.molecules.rdkit_bonds import RdkitBonds
from amp_runtime.data.molecules.smiles_file import SUFFIXES, read_smiles_file
from amp_runtime.data.paths import find_data_file, find_data_path, text_lines
from amp_runtime.errors import DataError, nearest
from amp_runtime.rows.spec import Array

Bonds = Literal["written", "rdkit"]

ORIGIN = (
    "QM9 is read from the tables of the package qm9pack (`make fetch NAME=qm9`, which is "
    "`python -m amp_runtime data fetch qm9`, gets them; then set data.path to qm9/qm9pack), "
    "from the .xyz files as published (dsgdb9nsd.xyz.tar.bz2 of "
    "https://doi.org/10.6084/m9.figshare.978904, or their folder), or from an "
    "archive of graphs, qm9_graphs.npz (its arrays: amp_runtime/data/molecules/molecules.py)"
)


def source(
    split: str,
    seed: int,
    *,
    path: str = "qm9/qm9_graphs.npz",
    target: Target = "mu",
    bonds: Bonds = "written",
    leave_out: str | None = None,
    train: int | None = None,
    valid: int = 13_082,
    split_seed: int = 0,
) -> Dataset:
    """Return `train` or `valid` molecules.

    Fields with one row for each atom:
        annotation  float32 [5], one-hot: H, C, N, O or F.
        n_out, n_in, first_edge     int32, as of source `babi15`.
    Fields with one row for each direction of a bond, by the atom that it leaves:
        edge_source, edge_target    int32, atoms, from 0.
        edge_type                   int32: single, double, triple, aromatic.
    and with one row for each molecule:
        target      float32, the property, less its mean, over its standard deviation.

    Mean and deviation are those of all molecules of the file, so that neither changes with
    `train`, `valid` or the split. Metrics of a model that asks for them (`Graph.scales`):
    `error_ratio`, the mean absolute error over the accuracy that chemists ask for (0.1 debye
    of mu; that of the standardised target over 0.0665), and `error_<unit>`.

    Args:
        split: `train` or `valid`.
        seed: the run's; not used: every run of a file learns from the same molecules.
        path: a file or folder; see `find_data_path` for relative paths.
        target: the property: dipole moment, polarizability, energies of HOMO and LUMO and
            the gap between them, electronic spatial extent, zero-point energy, internal
            energy at 0 K and 298 K, enthalpy, free energy, heat capacity.
        bonds: where path is no archive: as the SMILES write them, or as RDKit (the extra
            `qm9`) sees them. 139 nitro groups are N=O twice in the one, and once in the other.
        leave_out: a text file, of which each line that begins with a number names a molecule
            to leave out, as the list of 3,054 uncharacterized ones does.
        train: how many molecules to train on; None: all that are left.
        valid: how many to validate on.
        split_seed: shuffles the molecules before they are cut in two. Validation ones come
            first, so that they stay the same when `train` changes.
    Raises:
        MissingDataError: no such file.
        DataError: an option out of range, or the file is wrong.
    """
    for name, number in (("train", train), ("valid", valid)):
        if number is not None and number < 0:
            raise DataError(f"{name} is {number}; it must be at least 0", fix=f"set data.{name}")
    found = find_data_path(path, ORIGIN)
    molecules = _read(found, _signature(found), bonds)
    if leave_out is not None:
        molecules = _without(
            molecules, find_data_file(leave_out, setting="data.leave_out"), str(found)
        )
    n = len(molecules)
    n_train = max(n - valid, 0) if train is None else train
    if n_train + valid > n:
        raise DataError(
            f"holds {n} molecules, too few for train {n_train} + valid {valid}",
            where=str(found),
            fix="lower data.train or data.valid",
        )
    order = np.random.default_rng(split_seed).permutation(n)
    chosen = order[:valid] if split == "valid" else order[valid : valid + n_train]
    of_all, asked = _values(molecules, target, str(found)), PROPERTIES[target]
    deviation = float(of_all.std())
    if not 0 < deviation < np.inf:
        raise DataError(f"all molecules have one {asked.column}, or one has none", where=str(found))
    return Dataset.from_columns(
        {
            **_columns(molecules.subset(chosen)),
            "target": ((of_all[chosen] - of_all.mean()) / deviation).astype(np.float32),
        },
        about=About(
            {"edge_type": BOND_TYPES},
            scales={
                "target": {
                    "error_ratio": deviation / asked.accuracy,
                    f"error_{asked.unit}": deviation,
                }
            },
            units={"target": Unit(asked.unit, float(of_all.mean()), deviation)},
        ),
    )


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return the molecules of a file of QM9, or of SMILES: one a line, with what you like behind.

    Bonds are as `bonds` of the run says. What is told of a molecule: its number in QM9
    (`molecule`), or its `smiles`.

    Raises:
        DataError: the file is wrong, with its line.
    """
    told: dict[str, Sequence[Any]] = {}
    if file.name.removesuffix(".gz").endswith(SUFFIXES):
        rdkit = RdkitBonds() if options["bonds"] == "rdkit" else None
        molecules, told["smiles"] = read_smiles_file(file, rdkit)
    else:
        molecules = _read(file, _signature(file), options["bonds"])
        if molecules.index is not None:
            told["molecule"] = molecules.index.tolist()
    return Dataset.from_columns(_columns(molecules), where=str(file), about=About(told=told))


def _columns(molecules: Molecules) -> dict[str, Any]:
    """Return all fields but the target."""
    graphs = Graphs.undirected(molecules.n_atoms, molecules.n_bonds, molecules.bonds)
    one_hot = np.eye(len(ELEMENTS), dtype=np.float32)
    return {
        "annotation": (one_hot[molecules.element], molecules.n_atoms),
        **graphs.columns(np.arange(len(graphs))),
    }


@lru_cache(maxsize=1)
def _read(path: Path, signature: object, bonds: Bonds) -> Molecules:
    """Read all molecules; a second split need not read them again unless `signature` changed."""
    is_folder, name = path.is_dir(), path.name.removesuffix(".gz")
    if path.suffix == ".npz":
        if bonds != "written":
            raise DataError(
                f"is an archive, which says the types of bonds itself; data.bonds is {bonds!r}",
                where=str(path),
                fix="leave data.bonds out, or read another form of QM9",
            )
        return read_archive(path)
    rdkit = RdkitBonds() if bonds == "rdkit" else None
    if name.endswith(".csv") or (is_folder and any(path.glob(PATTERN))):
        return read_tables(path, rdkit)
    if path.name.endswith((SUFFIX, *TARS)) or (is_folder and any(path.glob(f"*{SUFFIX}"))):
        return read_xyz(path, rdkit)
    raise DataError(
        f"holds none of {PATTERN} and *{SUFFIX}"
        if is_folder
        else f"is named neither .npz, .csv, {SUFFIX} nor {', '.join(TARS)}",
        where=str(path),
        fix=ORIGIN,
    )


def _signature(path: Path) -> object:
    """Return what changes with a file, or with the files of a folder."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(file.name, file.stat()) for file in files]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _without(molecules: Molecules, listed: Path, where: str) -> Molecules:
    """Return the molecules whose numbers a file does not list.

    Raises:
        DataError: the molecules have no numbers, or the file lists none of them.
    """
    if molecules.index is None:
        raise DataError("has no qm9_index to leave out by", where=where, fix="set no leave_out")
    firsts = (line.split()[0] for _, line in text_lines(listed))
    numbers = [int(first) for first in firsts if first.isascii() and first.isdigit()]
    kept = np.flatnonzero(~np.isin(molecules.index, numbers))
    if not numbers:
        raise DataError("no line begins with a number", where=str(listed), fix="set data.leave_out")
    return molecules.subset(kept)


def _values(molecules: Molecules, target: Target, where: str) -> Array:
    """Return a property of all molecules.

    Raises:
        DataError: the archive does not hold it.
    """
    column = PROPERTIES[target].column
    if column not in molecules.properties:
        raise DataError(
            f"has no property {column!r}{nearest(column, molecules.properties)}",
            where=where,
            fix=f"it has {', '.join(molecules.properties) or 'none'}",
        )
    return molecules.properties[column]
