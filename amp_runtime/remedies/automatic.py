"""`compensation: auto`: remedies chosen by a node's optimizer, once it is seen to be stale.

Until the mean staleness of the node's recent rows has been above `ONSET`, nothing is done and
nothing kept. From then on, with s that mean as it changes:

    an optimizer with momentum      the forward computes with the weights predicted s updates
                                    ahead (predict: linear), and the momentum is at least
                                    1 - 1 / (1 + 4 s) (momentum: raised)
    no momentum to go along         the learning rate is divided by (1 + s)^0.5
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amp_runtime.remedies.remedy import Remedies
from amp_runtime.remedies.running import RunningMean
from amp_runtime.rows.saved import Saved

if TYPE_CHECKING:
    from amp_runtime.remedies.making import Updating

ONSET = 0.5


class Automatic(Remedies):
    """The remedies of a node whose `compensation` is `auto`."""

    def __init__(self, node: Updating) -> None:
        super().__init__(node, (), RunningMean(), may_drop=False)
        self._updating = node

    def stepped(self) -> None:
        super().stepped()
        if not self._remedies and self.staleness.mean > ONSET:
            self._choose()

    def save(self) -> Saved:
        saved = super().save()
        saved.numbers["chosen"] = bool(self._remedies)
        return saved

    def restore(self, saved: Saved, where: str) -> None:
        if saved.numbers["chosen"]:
            self._choose()
        super().restore(saved, where)

    def _choose(self) -> None:
        # Imported here: a worker that is ready has not met any delay, and may never.
        from amp_runtime.remedies.making import chosen

        self._remedies = tuple(chosen(self._updating, self.staleness))
