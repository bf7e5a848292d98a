"""How replicas of a node become one again: plain averaging, elastic averaging, block momentum.

A scheme is given snapshots x_j of replicas, and says what each goes on from. It holds the
centre: the parameters that are evaluated and saved. A replica that has made no update since
it last shared holds nothing new: it is told, and not counted.

What the optimiser keeps of each parameter (momenta, mean squares) is averaged as well, or
left to each replica, or begun anew: `optimizer_state`, docs/replicas.md says why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from amp_runtime.limits import Ge, Gt, Le, Lt
from amp_runtime.optim.snapshot import Snapshot
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array

Arrays = Mapping[str, Array]

OptimizerState = Annotated[
    Literal["averaged", "kept", "reset"],
    "what the optimizer keeps of each parameter: averaged too; each replica keeps its own; "
    "or reset: begun anew at each averaging",
]


class Averaging(ABC):
    """Base of the schemes.

    Class attributes:
        together: all replicas share when one is to, and meet when all have.

    Attributes:
        centre: {parameter: array}, evaluated and saved; never written to.

    Args:
        options: an instance of this class's `Options`.
        n: replicas.
        begin: what all of them began with.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]]
    together: ClassVar[bool] = True

    def __init__(self, options: Any, n: int, begin: Arrays) -> None:
        self.options = options
        self.n = n
        self.centre = begin

    def save(self) -> Saved:
        """Return what it goes on from."""
        saved = Saved()
        for name, arrays in self._kept().items():
            saved.add(name, Saved(arrays=arrays))
        return saved

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` returned of such a scheme."""
        for name in self._kept():
            setattr(self, name, saved.part(name).arrays)

    def _kept(self) -> Mapping[str, Arrays]:
        """Return the arrays that it goes on from, by attribute."""
        return {"centre": self.centre}

    @property
    def apart(self) -> bool:
        """Whether replicas go on from other parameters than the centre."""
        return False

    @abstractmethod
    def meet(self, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
        """Move the centre; return what each of these replicas goes on from, in their order."""


class Mean(Averaging):
    """Plain averaging: x_j <- mean of all x_j."""

    name = "mean"

    @dataclass(frozen=True, slots=True)
    class Options:
        optimizer_state: OptimizerState = "averaged"

    def meet(self, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
        news = [s for s in snapshots if s.count]
        if not news:
            return list(snapshots)
        mean = _mean(news)
        self.centre = mean.arrays
        return [mean] * len(snapshots)


class Elastic(Averaging):
    """Elastic averaging: e = alpha (x_j - c), x_j <- x_j - e, c <- c + e; c is the centre.

    Each replica does so at its own time, and stays where it is but for the pull; so the
    optimiser of each keeps what it has. alpha is `beta` / replicas.

    Source: EASGD, Zhang, Choromanska and LeCun, arXiv:1412.6651.
    """

    name = "elastic"
    together = False

    @dataclass(frozen=True, slots=True)
    class Options:
        beta: Annotated[
            float,
            Gt(0),
            Le(1),
            "how far all replicas together move the centre to their mean; each is pulled to the "
            "centre by beta / replicas",
        ] = 0.9

    @property
    def apart(self) -> bool:
        return True

    def meet(self, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
        alpha, centre = self.options.beta / self.n, dict(self.centre)
        going_on = []
        for snapshot in snapshots:
            own = {}
            for name, x in snapshot.arrays.items():
                pull = alpha * (x - self.centre[name])
                own[name] = x - pull
                if snapshot.count:
                    centre[name] = centre[name] + pull
            going_on.append(Snapshot(own, steps=snapshot.steps))
        self.centre = centre
        return going_on


class BlockMomentum(Averaging):
    """Block momentum: the mean's move since the last meeting is a gradient with momentum.

    d <- momentum * d + lr * (mean of x_j - g),  c <- c + d;  replicas go on from g = c, or
    with `nesterov` from g = c + momentum * d. c is the centre.

    Source: BMUF, Chen and Huo, ICASSP 2016.
    """

    name = "block_momentum"

    @dataclass(frozen=True, slots=True)
    class Options:
        momentum: Annotated[
            float | None, Ge(0), Lt(1), "decay of the move; null: 1 - 1 / replicas"
        ] = None
        lr: Annotated[float, Gt(0), "times the mean's move"] = 1.0
        nesterov: Annotated[bool, "replicas go on from one move of the momentum ahead"] = False
        optimizer_state: OptimizerState = "averaged"

    def __init__(self, options: Any, n: int, begin: Arrays) -> None:
        super().__init__(options, n, begin)
        self._start = begin
        self._move: dict[str, Array] = {name: 0 * array for name, array in begin.items()}

    def _kept(self) -> Mapping[str, Arrays]:
        return {**super()._kept(), "_start": self._start, "_move": self._move}

    @property
    def apart(self) -> bool:
        return bool(self.options.nesterov)

    @property
    def momentum(self) -> float:
        given = self.options.momentum
        return 1 - 1 / self.n if given is None else float(given)

    def meet(self, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
        news = [s for s in snapshots if s.count]
        if not news:
            return list(snapshots)
        mean, momentum = _mean(news), self.momentum
        for name, x in mean.arrays.items():
            moved = self.options.lr * (x - self._start[name])
            self._move[name] = momentum * self._move[name] + moved
        self.centre = {name: c + self._move[name] for name, c in self.centre.items()}
        self._start = self.centre
        if self.options.nesterov:
            self._start = {n: c + momentum * self._move[n] for n, c in self.centre.items()}
        return [Snapshot(self._start, mean.beside, steps=mean.steps)] * len(snapshots)


def _mean(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Return the mean of all that snapshots hold; summed in their order."""

    def mean(every: Sequence[Arrays]) -> dict[str, Array]:
        sums = {name: array.copy() for name, array in every[0].items()}
        for arrays in every[1:]:
            for name, total in sums.items():
                total += arrays[name]
        for total in sums.values():
            total /= len(every)
        return sums

    steps = round(sum(s.steps for s in snapshots) / len(snapshots))
    arrays = mean([s.arrays for s in snapshots])
    return Snapshot(arrays, mean([s.beside for s in snapshots]), steps=steps)


AVERAGING: Mapping[str, type[Averaging]] = {cls.name: cls for cls in (Mean, Elastic, BlockMomentum)}


def make_averaging(options: Mapping[str, Any], n: int, begin: Arrays) -> Averaging:
    """Return the scheme for validated `options`, `name` among them."""
    values = dict(options)
    cls = AVERAGING[values.pop("name")]
    return cls(cls.Options(**values), n, begin)
