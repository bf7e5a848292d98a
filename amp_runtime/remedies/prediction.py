"""Weights predicted for the forward: what they will be when the row's gradient is applied.

    linear       the optimiser's momentum goes on as it is: SpecTrain's form for SGD, XPipe's
                 for Adam
    decaying     no gradient comes any more: momentum decays, as in multi-step Nesterov
    last_update  the update that was applied last is applied again, whatever made it

They are computed once for each version, at its first forward. Of a large table whose gradient
is summed by rows, rows are predicted when they are read: a prediction costs what they cost.

Sources: SpecTrain, arXiv:1809.02839; XPipe, arXiv:1911.04610; FTPipe, USENIX ATC 2021;
linear weight prediction, arXiv:2003.11666.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from amp_runtime.optim.base import Optimizer
from amp_runtime.remedies.remedy import Remedy
from amp_runtime.rows.picking import picked
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array

Horizon = Callable[[], float]
"""How many updates ahead; 0: none."""

WHOLE_TABLE_ROWS = 256
"""A table of no more is predicted as a whole: an update reads as many, and most of them often."""


NOT_PREDICTED = "set this node's compensation: none, or without predict"


def unpredictable(form: str, tables: Collection[str], lazy: bool) -> str:
    """Say why tables whose gradient is summed by rows cannot be predicted; '' if they can.

    Args:
        form: the option `predict`.
        lazy: whether an update leaves rows without a gradient alone.
    """
    if not tables or form == "none":
        return ""
    names = ", ".join(map(repr, tables))
    if form == "last_update":
        return (
            f"predict: last_update would copy all of {names} at each update, however few rows "
            "it changes"
        )
    return lazy * (
        f"predict: {form} goes so many updates ahead, but a row of {names} moves in updates "
        "with a gradient of it alone (sparse: lazy)"
    )


class _Predicting(Remedy, ABC):
    """Keeps a prediction as long as the weights are those that it was made of.

    Args:
        after: updates of the node before it predicts.

    Attributes:
        horizon: of the newest prediction.
    """

    def __init__(self, horizon: Horizon, after: int) -> None:
        self.horizon = 0.0
        self._how_far = horizon
        self._after = after
        self._updates = 0
        self._asked = False
        self._ahead: Mapping[str, Any] | None = None

    def ahead(self) -> Mapping[str, Any] | None:
        if not self._asked:
            self._asked = True
            self.horizon = self._how_far() if self._updates >= self._after else 0.0
            self._ahead = self.predict(self.horizon) if self.horizon > 0 else None
        return self._ahead

    def overwritten(self) -> None:
        self._asked, self._ahead = False, None

    def stepped(self) -> None:
        self._updates += 1

    def save(self) -> Saved:
        return Saved({"updates": self._updates, "horizon": self.horizon})

    def restore(self, saved: Saved, where: str) -> None:
        self._updates, self.horizon = saved.numbers["updates"], saved.numbers["horizon"]

    @abstractmethod
    def predict(self, horizon: float) -> Mapping[str, Any] | None:
        """Return the weights so many updates ahead; None: nothing is known of them."""


class AlongMomentum(_Predicting):
    """Goes as far as the optimiser's momentum will.

    Args:
        tables: parameters whose gradient is summed by rows: larger ones are predicted where
            they are read.
        lr_factors: `lr_factors(k)` is what the learning rate is multiplied by k updates on.
        decaying: whether momentum decays on the way.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        tables: Collection[str],
        horizon: Horizon,
        after: int,
        lr_factors: Callable[[int], float],
        *,
        decaying: bool,
    ) -> None:
        super().__init__(horizon, after)
        self._optimizer = optimizer
        self._lr_factors = lr_factors
        self._decaying = decaying
        parameters = optimizer.parameters
        self._tables = tuple(name for name in tables if len(parameters[name]) > WHOLE_TABLE_ROWS)
        self._arrays = {
            name: np.empty_like(array)
            for name, array in parameters.items()
            if name not in self._tables
        }

    def save(self) -> Saved:
        self.overwritten()  # predicted anew by who goes on, and by who goes on from this
        return super().save()

    def predict(self, horizon: float) -> Mapping[str, Any]:
        optimizer = self._optimizer
        base = float(optimizer.options.lr)
        lrs = [base * self._lr_factors(k) for k in range(math.ceil(horizon))]
        lrs[-1] *= horizon - (len(lrs) - 1)  # of the last step a part
        for name, array in self._arrays.items():
            own, state = optimizer.parameters[name], optimizer.state[name]
            optimizer.ahead(own, state, lrs, array, decaying=self._decaying)
        tables = {name: RowsAhead(optimizer, name, lrs, self._decaying) for name in self._tables}
        return self._arrays | tables


class RowsAhead:
    """A table some updates ahead: rows are predicted when they are read, as of an array."""

    def __init__(self, optimizer: Optimizer, name: str, lrs: list[float], decaying: bool) -> None:
        self._optimizer = optimizer
        self._name = name
        self._lrs = lrs
        self._decaying = decaying

    def __getitem__(self, rows: Any) -> Array:
        return self._ahead(lambda array: array[rows])

    def take(self, rows: Array, axis: int = 0) -> Array:
        """Return some rows, as an array's `take` does along its first axis."""
        return self._ahead(lambda array: picked(array, rows))

    def _ahead(self, of: Callable[[Array], Array]) -> Array:
        optimizer = self._optimizer
        own = of(optimizer.parameters[self._name])
        state = {kept: of(array) for kept, array in optimizer.state[self._name].items()}
        found: Array = np.empty_like(own)
        optimizer.ahead(own, state, self._lrs, found, decaying=self._decaying)
        return found


class LastUpdate(_Predicting):
    """Applies the update that was applied last again, `horizon` times.

    One copy of the weights: those before the update, and from the first forward on those
    that are predicted.
    """

    def __init__(self, parameters: Mapping[str, Array], horizon: Horizon, after: int) -> None:
        super().__init__(horizon, after)
        self._parameters = parameters
        self._copy = {name: np.empty_like(array) for name, array in parameters.items()}
        self._known = False

    def before_step(self) -> None:
        for name, own in self._parameters.items():
            self._copy[name][...] = own

    def stepped(self) -> None:
        super().stepped()
        self._known = True

    def overwritten(self) -> None:
        super().overwritten()
        self._known = False

    def predict(self, horizon: float) -> Mapping[str, Any] | None:
        if not self._known:
            return None
        for name, own in self._parameters.items():
            array = self._copy[name]
            np.subtract(own, array, out=array)
            array *= horizon
            array += own
        return self._copy

    def save(self) -> Saved:
        saved = super().save()
        saved.numbers |= {
            "known": self._known,
            "asked": self._asked,
            "ahead": self._ahead is not None,
        }
        if self._known or self._ahead is not None:
            saved.arrays |= self._copy
        return saved

    def restore(self, saved: Saved, where: str) -> None:
        super().restore(saved, where)
        self._known, self._asked = saved.numbers["known"], saved.numbers["asked"]
        if saved.arrays:
            saved.fill(self._copy, where)
        self._ahead = self._copy if saved.numbers["ahead"] else None
