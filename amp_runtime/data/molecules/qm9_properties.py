"""The twelve properties of a molecule in QM9, in the order of its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Target = Literal[
    "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv"
]

HARTREE_EV = 27.211386


@dataclass(frozen=True, slots=True)
class Property:
    """One of the twelve targets.

    Attributes:
        column: its name in tables and archives, with the unit.
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
    "h298": Property("Enthalphy_298K_au", "hartree", _ENERGY),  # as the tables spell it
    "g298": Property("GibbsFreeEnergy_298K_au", "hartree", _ENERGY),
    "cv": Property("Heatcapacity_Cv_cal_mol_K", "cal_mol_k", 0.05),
}
"""Accuracies as in Faber et al., arXiv:1702.05532, and Gilmer et al., arXiv:1704.01212."""
