"""A molecule's atoms and bonds from its SMILES, hydrogens added, without a chemistry toolkit.

    C#N     hydrogen cyanide    atoms C N H     bonds 0 triple 1, 0 single 2

What is read is what QM9 needs: H, C, N, O and F, charges, branches, rings, bonds as they are
written. A bond between two atoms in lower case is aromatic; rings of alternating single and
double bonds stay what they say (`aromatic.py` asks RDKit). Marks of stereochemistry are passed
over: they say nothing of which atoms are bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from amp_runtime.data.molecules.archive import BOND_TYPES, ELEMENTS

SINGLE, DOUBLE, TRIPLE, AROMATIC = range(len(BOND_TYPES))

_TOKEN = re.compile(
    r"(?P<atom>[CNOFcno])"
    r"|\[(?P<symbol>[HCNOFcno])@{0,2}(?P<hydrogens>H\d?)?(?P<charge>[+-]\d?|\+\++|--+)?\]"
    r"|(?P<bond>[-=#:/\\])"
    r"|(?P<ring>\d|%\d\d)"
    r"|(?P<branch>[()])",
    re.ASCII,
)
_ELEMENT = {name: place for place, name in enumerate(ELEMENTS)}
_WRITTEN = {"-": SINGLE, "/": SINGLE, "\\": SINGLE, "=": DOUBLE, "#": TRIPLE, ":": AROMATIC}
_ORDER = {SINGLE: 1, DOUBLE: 2, TRIPLE: 3, AROMATIC: 1}
_VALENCES = {"C": (4,), "N": (3, 5), "O": (2,), "F": (1,)}
"""Of atoms without brackets: hydrogens fill the least that their bonds do not exceed."""


class SmilesError(ValueError):
    """What is wrong with a SMILES; its readers say where it stands."""


@dataclass(slots=True)
class Skeleton:
    """A molecule: the atoms that its SMILES writes, in order, then the hydrogens of each.

    Attributes:
        element: places in ELEMENTS.
        bonds: (atom, place in BOND_TYPES, atom); each bond once.
    """

    element: list[int] = field(default_factory=list)
    bonds: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, element: str) -> int:
        self.element.append(_ELEMENT[element])
        return len(self.element) - 1


def read_smiles(smiles: str) -> Skeleton:
    """Return the molecule that a SMILES writes.

    Raises:
        SmilesError: it is none of such a molecule; says at which character.
    """
    reader, at = _Reader(), 0
    try:
        while at < len(smiles):
            token = _TOKEN.match(smiles, at)
            if token is None:
                raise SmilesError(f"{smiles[at]!r} is no atom, bond, ring or branch that is known")
            reader.take(token)
            at = token.end()
        return reader.finish()
    except SmilesError as error:
        place = f"character {at + 1}" if at < len(smiles) else "its end"
        raise SmilesError(f"SMILES {smiles[:80]!r}, {place}: {error}") from None


class _Reader:
    """Takes the tokens of one SMILES."""

    def __init__(self) -> None:
        self._read = Skeleton()
        self._hydrogens: list[int | None] = []  # None: as many as the valence leaves
        self._aromatic: list[bool] = []
        self._last: int | None = None  # the atom that the next one is bound to
        self._written: str | None = None  # the bond between them, where it is said
        self._branches: list[int] = []
        self._rings: dict[int, tuple[int, str | None]] = {}

    def take(self, token: re.Match[str]) -> None:
        found = token.lastgroup
        if token["ring"]:
            self._ring(int(token["ring"].lstrip("%")))
        elif token["bond"]:
            if self._last is None or self._written:
                raise SmilesError("a bond that no atom is before")
            self._written = token["bond"]
        elif token["branch"]:
            self._branch(opens=token["branch"] == "(")
        elif found == "atom":
            self._atom(token["atom"], None)
        else:
            counted = token["hydrogens"]
            self._atom(token["symbol"], int(counted[1:] or 1) if counted else 0)

    def finish(self) -> Skeleton:
        """Return the molecule, its hydrogens added."""
        for wrong, what in (
            (not self._hydrogens, "no atom"),
            (self._written, "a bond that no atom is behind"),
            (self._branches, "a branch that is not closed"),
            (self._rings, "a ring that is not closed"),
        ):
            if wrong:
                raise SmilesError(what)
        order = [0] * len(self._hydrogens)
        for first, bond_type, second in self._read.bonds:
            order[first] += _ORDER[bond_type]
            order[second] += _ORDER[bond_type]
        names = list(ELEMENTS)
        for atom, counted in enumerate(self._hydrogens):
            name = names[self._read.element[atom]]
            n = self._implicit(atom, name, order[atom]) if counted is None else counted
            for _ in range(n):
                self._read.bonds.append((atom, SINGLE, self._read.add("H")))
        return self._read

    def _implicit(self, atom: int, name: str, order: int) -> int:
        """Return how many hydrogens an atom without brackets has."""
        if self._aromatic[atom]:  # one electron is the ring's, where the valence leaves one
            return max(_VALENCES[name][0] - order - 1, 0)
        for valence in _VALENCES[name]:
            if order <= valence:
                return valence - order
        raise SmilesError(f"atom {atom}, counted from 0, is {name} with {order} bonds")

    def _atom(self, symbol: str, hydrogens: int | None) -> None:
        atom = self._read.add(symbol.upper())
        self._hydrogens.append(hydrogens)
        self._aromatic.append(symbol.islower())
        if self._last is not None:
            self._bind(self._last, atom, self._written)
        self._last, self._written = atom, None

    def _ring(self, number: int) -> None:
        if self._last is None:
            raise SmilesError("a ring that no atom is before")
        if number not in self._rings:
            self._rings[number] = self._last, self._written
        else:
            first, written = self._rings.pop(number)
            if first == self._last or (written and self._written and written != self._written):
                raise SmilesError(f"ring {number} closes with another bond, or on its own atom")
            self._bind(first, self._last, written or self._written)
        self._written = None

    def _branch(self, *, opens: bool) -> None:
        if self._written or (self._last is None if opens else not self._branches):
            raise SmilesError("a branch of no atom")
        if opens:
            assert self._last is not None
            self._branches.append(self._last)
        else:
            self._last = self._branches.pop()

    def _bind(self, first: int, second: int, written: str | None) -> None:
        both = self._aromatic[first] and self._aromatic[second]
        bond_type = _WRITTEN[written] if written else AROMATIC if both else SINGLE
        self._read.bonds.append((first, bond_type, second))
