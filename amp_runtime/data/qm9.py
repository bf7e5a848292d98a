"""QM9: small organic molecules as graphs of atoms and bonds, and what they are like.

data.path   a .npz archive of graphs (`molecules.py` says what is in it)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.graphs import Graphs
from amp_runtime.data.molecules import BOND_TYPES, ELEMENTS, Molecules, read_archive
from amp_runtime.data.paths import find_data_file
from amp_runtime.errors import DataError, nearest
from amp_runtime.rows.spec import Array

Target = Literal[
    "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv"
]

ORIGIN = (
    "QM9 is read from an archive of graphs, qm9_graphs.npz (arrays atomic_number, node_offset, "
    "edge_offset, edge_src, edge_dst, edge_type, target, target_name)"
)
HARTREE_EV = 27.211386


@dataclass(frozen=True, slots=True)
class Property:
    """One of the twelve targets.

    Attributes:
        column: its name in the archive, with the unit.
        unit: as it stands in the name of a metric.
        accuracy: the error, in that unit, that chemists ask for.
    """

    column: str
    unit: str
    accuracy: float


_ENERGY = 0.043 / HARTREE_EV
PROPERTIES: dict[str, Property] = {
    "mu": Property("Dipole_debye", "debye", 0.1),
    "alpha": Property("Polarizability_bohr3", "bohr3", 0.1),
    "homo": Property("HOMO_au", "hartree", _ENERGY),
    "lumo": Property("LUMO_au", "hartree", _ENERGY),
    "gap": Property("HOMO_LUMO_gap_au", "hartree", _ENERGY),
    "r2": Property("R2_bohr2", "bohr2", 1.2),
    "zpve": Property("ZPVE_au", "hartree", 0.0012 / HARTREE_EV),
    "u0": Property("InternalEnergy_0K_au", "hartree", _ENERGY),
    "u298": Property("InternalEnergy_298K_au", "hartree", _ENERGY),
    "h298": Property("Enthalphy_298K_au", "hartree", _ENERGY),  # as the archive spells it
    "g298": Property("GibbsFreeEnergy_298K_au", "hartree", _ENERGY),
    "cv": Property("Heatcapacity_Cv_cal_mol_K", "cal_mol_k", 0.05),
}
"""Accuracies as in Faber et al., arXiv:1702.05532, and Gilmer et al., arXiv:1704.01212."""


def source(
    split: str,
    seed: int,
    *,
    path: str = "qm9/qm9_graphs.npz",
    target: Target = "mu",
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
        path: see `find_data_path` for relative paths.
        target: the property: dipole moment, polarizability, energies of HOMO and LUMO and
            the gap between them, electronic spatial extent, zero-point energy, internal
            energy at 0 K and 298 K, enthalpy, free energy, heat capacity.
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
    file = find_data_file(path, ORIGIN)
    if file.suffix != ".npz":
        raise DataError(
            "is no .npz archive; files of coordinates (.xyz) do not say which atoms are bound, "
            "nor how, which takes a chemistry toolkit",
            where=str(file),
            fix=ORIGIN,
        )
    molecules = read_archive(file)
    n = len(molecules)
    n_train = max(n - valid, 0) if train is None else train
    if n_train + valid > n:
        raise DataError(
            f"holds {n} molecules, too few for train {n_train} + valid {valid}",
            where=str(file),
            fix="lower data.train or data.valid",
        )
    order = np.random.default_rng(split_seed).permutation(n)
    chosen = order[:valid] if split == "valid" else order[valid : valid + n_train]
    of_all, asked = _values(molecules, target, str(file)), PROPERTIES[target]
    deviation = float(of_all.std())
    if not 0 < deviation < np.inf:
        raise DataError(f"all molecules have one {asked.column}, or one has none", where=str(file))
    picked = molecules.subset(chosen)
    graphs = Graphs.undirected(picked.n_atoms, picked.n_bonds, picked.bonds)
    one_hot = np.eye(len(ELEMENTS), dtype=np.float32)
    return Dataset.from_columns(
        {
            "annotation": (one_hot[picked.element], picked.n_atoms),
            **graphs.columns(np.arange(len(graphs))),
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
        ),
    )


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
