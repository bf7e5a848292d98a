"""The interface of a remedy for delay, and all remedies of one node together.

A node asks at four moments, and does what it would do anyhow where no remedy answers:

    forward        ahead()              weights to compute with
    accumulation   shares(staleness)    how much of each row's gradient counts
    step           lr_factor()          what its learning rate is multiplied by
                   momentum()           how much of it the optimiser has at least
                   before_step(), stepped(), overwritten()     looks at the weights

The weights of a backward are `backward_weights`'s, behind a key of their own: they may be
combined with any remedy. Imported by workers with a node that asks for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from amp_runtime.remedies.running import RunningMean
from amp_runtime.remedies.weight_versions import put_together
from amp_runtime.rows.message import Payload
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array, Int32


class Remedy:
    """One remedy; here none.

    Attributes:
        horizon: updates ahead that the weights were last predicted; None: they are not.
    """

    horizon: float | None = None

    def ahead(self) -> Mapping[str, Any] | None:
        """Return what the forward computes with, by parameter; None: the weights as they are.

        They stay the same until `overwritten` or `stepped` is called.
        """
        return None

    def shares(self, staleness: Int32) -> Array | None:
        """Return what each row's gradient is multiplied by [rows], 0 to 1; None: 1.

        Args:
            staleness: updates since each row's forward, [rows].
        """
        return None

    def lr_factor(self) -> float:
        """Return what the learning rate of the next step is multiplied by."""
        return 1.0

    def momentum(self) -> float:
        """Return the least momentum of an optimiser that has any, at its next step."""
        return 0.0

    def before_step(self) -> None:
        """Look at the weights that are about to be updated."""

    def stepped(self) -> None:
        """Look at the weights that were updated."""

    def overwritten(self) -> None:
        """Learn that the weights are others now, by an update or otherwise."""

    def save(self) -> Saved:
        """Return what it goes on from; no row is in flight."""
        return Saved()

    def restore(self, saved: Saved, where: str) -> None:
        """Go on from what `save` returned; the weights have been restored before."""


class Backward(Protocol):
    """What is used here of `LiveWeights` and its kin."""

    def backpropagate(
        self, kept: Payload, versions: Int32, gradient: Payload, wants_input: bool
    ) -> Payload | None: ...
    def add_gradients(self, into: Mapping[str, Any]) -> None: ...


class Accumulating(Protocol):
    """What is used here of a parameterised node."""

    version: int
    parameters: dict[str, Array]

    @property
    def weights(self) -> Backward: ...
    @property
    def gradients(self) -> Mapping[str, Any]: ...
    def row_sums(self) -> Mapping[str, Any]: ...


class Remedies:
    """The remedies of one node.

    Attributes:
        staleness: of the rows whose gradients are used, over recent updates.
        dropped: rows whose gradients were not used; None where none can be.
        horizon: as of its remedies.
    """

    def __init__(
        self,
        node: Accumulating,
        remedies: Sequence[Remedy],
        staleness: RunningMean,
        *,
        may_drop: bool,
    ) -> None:
        self._node = node
        self._remedies = tuple(remedies)
        self.staleness = staleness
        self.dropped: int | None = 0 if may_drop else None

    @property
    def horizon(self) -> float | None:
        found = (r.horizon for r in self._remedies if r.horizon is not None)
        return next(found, None)

    def ahead(self) -> Mapping[str, Any]:
        """Return what rows of the version of now are computed with."""
        for remedy in self._remedies:
            if (weights := remedy.ahead()) is not None:
                return weights
        return self._node.parameters

    def lr_factor(self) -> float:
        factor = 1.0
        for remedy in self._remedies:
            factor *= remedy.lr_factor()
        return factor

    def momentum(self) -> float:
        return max((remedy.momentum() for remedy in self._remedies), default=0.0)

    def before_step(self) -> None:
        for remedy in self._remedies:
            remedy.before_step()

    def stepped(self) -> None:
        self.staleness.close()
        for remedy in self._remedies:
            remedy.stepped()

    def overwritten(self) -> None:
        for remedy in self._remedies:
            remedy.overwritten()

    def save(self) -> Saved:
        """Return what they go on from; no row is in flight."""
        saved = Saved({"dropped": self.dropped})
        saved.add("staleness", self.staleness.save())
        for number, remedy in enumerate(self._remedies):
            saved.add(str(number), remedy.save())
        return saved

    def restore(self, saved: Saved, where: str) -> None:
        """Go on from what `save` returned of the same remedies; the weights are restored."""
        self.dropped = saved.numbers["dropped"]
        self.staleness.restore(saved.part("staleness"))
        for number, remedy in enumerate(self._remedies):
            remedy.restore(saved.part(str(number)), where)

    def backpropagate(
        self, kept: Payload, versions: Int32, gradient: Payload, wants_input: bool
    ) -> tuple[Payload | None, Array | None]:
        """Do what `Backward.backpropagate` does, with each row's share of dL/dparameters.

        Returns:
            dL/dx of all rows, whole; and which rows count, bool [rows], None: all.
        """
        staleness = self._node.version - versions
        shares = self._shares(staleness)
        if shares is None:
            self.staleness.add(staleness)
            whole = self._node.weights.backpropagate(kept, versions, gradient, wants_input)
            return whole, None
        used = shares > 0
        self.staleness.add(staleness[used])
        if used.all():
            return self._weighed(kept, versions, gradient, wants_input, shares), None
        assert self.dropped is not None
        self.dropped += int((~used).sum())
        parts = []
        for places in (~used, used):
            at = np.flatnonzero(places)
            if not len(at):
                continue
            saved, delta = (
                {name: array[at] for name, array in arrays.items()} for arrays in (kept, gradient)
            )
            if used[at[0]]:
                part = self._weighed(saved, versions[at], delta, wants_input, shares[at])
            else:
                part = self._without_gradients(saved, versions[at], delta, wants_input)
            if part is not None:
                parts.append((at, part))
        return (put_together(parts, len(used)) if parts else None), used

    def _shares(self, staleness: Int32) -> Array | None:
        """Return the product of all remedies' shares [rows]; None: 1 for all."""
        found: Array | None = None
        for remedy in self._remedies:
            shares = remedy.shares(staleness)
            if shares is not None:
                found = shares if found is None else found * shares
        return None if found is None or (found == 1).all() else found

    def _weighed(
        self,
        kept: Payload,
        versions: Int32,
        gradient: Payload,
        wants_input: bool,
        shares: Array,
    ) -> Payload | None:
        """Backpropagate shares, all above 0, of the rows.

        dL/dx and dL/dparameters of a row are both linear in its dL/dy: that is multiplied,
        and dL/dx divided.
        """
        if (shares == 1).all():
            return self._node.weights.backpropagate(kept, versions, gradient, wants_input)
        scaled = {name: array * _beside(array, shares) for name, array in gradient.items()}
        found = self._node.weights.backpropagate(kept, versions, scaled, wants_input)
        if not wants_input or not isinstance(found, Mapping):
            return found
        return {name: array / _beside(array, shares) for name, array in found.items()}

    def _without_gradients(
        self, kept: Payload, versions: Int32, gradient: Payload, wants_input: bool
    ) -> Payload | None:
        """Return dL/dx of rows whose dL/dparameters are let go."""
        node = self._node
        _ = node.gradients  # those of rows before are summed: what is summed next is let go
        found = node.weights.backpropagate(kept, versions, gradient, wants_input)
        nowhere: dict[str, Any] = {n: np.zeros_like(a) for n, a in node.parameters.items()}
        node.weights.add_gradients(nowhere | dict(node.row_sums()))
        return found


def _beside(array: Array, shares: Array) -> Array:
    """Return shares [rows] in the dtype of an array [rows, ...], one for each of its rows."""
    return shares.astype(array.dtype).reshape(-1, *[1] * (array.ndim - 1))
