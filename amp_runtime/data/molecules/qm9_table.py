"""QM9 as tables: the CSV files of the package qm9pack.

A line is a molecule; of its columns are read Index, SMILES, Stoichiometry ("[4,1,0,0,0]": how
many H, C, N, O, F) and the twelve properties. Coordinates are not.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from amp_runtime.data.molecules.archive import ELEMENTS, Molecules
from amp_runtime.data.molecules.molecule_list import MoleculeList, Record
from amp_runtime.data.molecules.qm9_properties import PROPERTIES
from amp_runtime.data.molecules.rdkit_bonds import RdkitBonds
from amp_runtime.data.paths import open_data_file
from amp_runtime.errors import DataError, nearest

PATTERN = "qm9_part*.csv*"
"""The files of the package, in the folder that is named."""
_COLUMNS = ("Index", "SMILES", "Stoichiometry", *(asked.column for asked in PROPERTIES.values()))


def read_tables(path: Path, rdkit: RdkitBonds | None) -> Molecules:
    """Read a table, or all of a folder that are called as qm9pack calls them; gzip or not.

    Raises:
        DataError: no such table, a column that is not there, or a wrong line; names it.
    """
    read = MoleculeList(rdkit)
    for file in sorted(path.glob(PATTERN)) if path.is_dir() else [path]:
        for record, where in _records(file):
            read.add(record, where)
    return read.molecules(str(path))


def _records(file: Path) -> Iterator[tuple[Record, str]]:
    with open_data_file(file) as stream:
        # Each line by itself: a quote that is not closed must not swallow those behind it.
        lines = (line.decode("utf-8-sig", errors="replace") for line in stream)
        header = _fields(next(lines, ""), f"{file}:1")
        for name in _COLUMNS:
            if name not in header:
                raise DataError(
                    f"has no column {name!r}{nearest(name, header)}",
                    where=f"{file}:1",
                    fix=f"columns are {', '.join(_COLUMNS)}, and others if you like",
                )
        places = [header.index(name) for name in _COLUMNS]
        for number, line in enumerate(lines, start=2):
            if not line.strip():
                continue
            where = f"{file}:{number}"
            fields = _fields(line, where)
            if len(fields) != len(header):
                raise DataError(
                    f"has {len(fields)} fields where the first line has {len(header)}", where=where
                )
            yield _record([fields[place] for place in places], where), where


def _fields(line: str, where: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise DataError(str(error), where=where, fix="fetch the file again") from None


def _record(fields: Sequence[str], where: str) -> Record:
    index, smiles, stoichiometry, *values = fields
    try:
        atoms = [int(n) for n in stoichiometry.strip("[]").split(",")]
        if len(atoms) != len(ELEMENTS):
            raise ValueError(f"Stoichiometry {stoichiometry!r} is not a number for each of 5")
        return Record(int(index), smiles, atoms, [float(value) for value in values])
    except ValueError as error:
        raise DataError(f"{error}", where=where, fix="index and atoms are whole numbers") from None
