"""QM9 as it was published: an .xyz file a molecule, in a folder or a tar (dsgdb9nsd.xyz.tar.bz2).

    5                                               atoms, n
    gdb 1 <tab> 157.71 157.71 157.71 0. 13.21 ...   number; A, B, C; the twelve properties
    C   -0.0127   1.0858   8.e-3   -0.5357          n lines: element, x, y, z, charge
    1341.307 1341.3284 ...                          frequencies
    C <tab> C                                       SMILES of GDB-9; of the relaxed geometry
    InChI=1S/CH4/h1H4 <tab> InChI=1S/CH4/h1H4       likewise

A float may be written 1.5*^-6, as Mathematica does. The format has no table of bonds: they are
those of the first SMILES, which the geometry was made from. (Of 3,054 of the 133,885 molecules
the geometry became another molecule; `leave_out` leaves out those of the published list.)
Coordinates and charges are not used.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from amp_runtime.data.molecules.archive import ELEMENTS, Molecules
from amp_runtime.data.molecules.molecule_list import MoleculeList, Record
from amp_runtime.data.molecules.qm9_properties import PROPERTIES
from amp_runtime.data.molecules.rdkit_bonds import RdkitBonds
from amp_runtime.errors import DataError, MissingDataError

SUFFIX = ".xyz"
TARS = (".tar", ".tar.bz2", ".tar.gz", ".tgz", ".tar.xz")
_ROTATIONS = 3
_BEHIND = 3
"""Lines behind the atoms: frequencies, SMILES, InChI."""
_BROKEN = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)


class _Fault(Exception):  # noqa: N818 - never leaves this file
    """What is wrong with a line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def read_xyz(path: Path, rdkit: RdkitBonds | None) -> Molecules:
    """Read an .xyz file, a folder of them, or a tar, in the order of the molecules' numbers.

    Raises:
        MissingDataError: a file cannot be read.
        DataError: no .xyz file, or one that is wrong; names it with its line.
    """
    read = MoleculeList(rdkit)
    for text, name in _files(path):
        try:
            record, line = _record(text.decode("utf-8", errors="replace").splitlines())
        except _Fault as fault:
            raise DataError(
                str(fault), where=f"{name}:{fault.line}", fix="qm9_xyz.py says what a line holds"
            ) from None
        read.add(record, f"{name}:{line}")
    return read.molecules(str(path))


def _files(path: Path) -> Iterator[tuple[bytes, str]]:
    """Yield the content and the name of each .xyz file."""
    if not path.is_dir() and path.name.endswith(TARS):
        yield from _tar_members(path)
        return
    try:
        for file in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
            yield file.read_bytes(), str(file)
    except OSError as error:
        raise MissingDataError(
            f"cannot read {error.filename}: {error.strerror}", fix="check its permissions"
        ) from error


def _tar_members(path: Path) -> Iterator[tuple[bytes, str]]:
    try:
        # A stream: nothing is unpacked, and a compressed tar is read once, from front to back.
        with path.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|*") as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and name.endswith(SUFFIX) and not name.startswith("."):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    yield stream.read(), f"{path}:{member.name}"
    except (OSError, *_BROKEN) as error:
        if isinstance(error, OSError) and error.errno:
            raise MissingDataError(
                f"cannot read {path}: {error.strerror}", fix="check its permissions"
            ) from error
        raise DataError(
            f"is no whole tar ({error})", where=str(path), fix="fetch it again"
        ) from error


def _record(lines: Sequence[str]) -> tuple[Record, int]:
    """Return what a file states, and the line of its SMILES.

    Raises:
        _Fault: a line is not what it should be.
    """
    n = int(lines[0]) if lines and lines[0].strip().isdigit() else 0
    if n < 1:
        raise _Fault(1, "is not the number of atoms")
    end = 2 + n + _BEHIND
    if len(lines) < end or any(line.strip() for line in lines[end:]):
        raise _Fault(min(len(lines), end), f"{n} atoms make {end} lines; it has {len(lines)}")
    index, values = _properties(lines[1])
    atoms = [0] * len(ELEMENTS)
    names = list(ELEMENTS)
    for number, line in enumerate(lines[2 : 2 + n], start=3):
        fields = line.split()
        if len(fields) != 5 or fields[0] not in ELEMENTS:
            raise _Fault(number, f"{line[:60]!r} is not an element, x, y, z and charge")
        atoms[names.index(fields[0])] += 1
    at = 2 + n + 1
    smiles = lines[at].split()
    if len(smiles) != 2:
        raise _Fault(at + 1, f"{lines[at][:60]!r} is not two SMILES")
    return Record(index, smiles[0], atoms, values), at + 1


def _properties(line: str) -> tuple[int, list[float]]:
    """Return the number of a molecule, and its properties."""
    fields, wanted = line.split(), _ROTATIONS + len(PROPERTIES)
    is_one = len(fields) == 2 + wanted and fields[0] in ("gdb", "gdb9") and fields[1].isdigit()
    if not is_one:
        raise _Fault(2, f"is not gdb, a number and {wanted} values: {line[:60]!r}")
    try:
        values = [float(value.replace("*^", "e")) for value in fields[2 + _ROTATIONS :]]
    except ValueError as error:
        raise _Fault(2, str(error)) from None
    return int(fields[1]), values
