"""What became of every instance that was injected, over all generations of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from amp_runtime.control.in_flight import InFlight
from amp_runtime.nodes.statistics import ChannelCounts


@dataclass(slots=True)
class Accounts:
    """Each instance that was injected retired, or was lost with its generation.

    One that was lost, or retired after what its run went back to, is injected again: it is
    counted once for each time.
    """

    injected: int = 0
    retired: int = 0
    lost: int = 0

    def close(self, in_flight: InFlight) -> None:
        """Add those of a generation that is over."""
        self.injected += in_flight.admitted
        self.retired += in_flight.retired
        self.lost += in_flight.instances

    def words(self, left_out: int, restarts: int, channels: Iterable[ChannelCounts]) -> str:
        """Return the line of a report.

        Args:
            left_out: instances that are not injected any more.
            restarts: of workers.
            channels: the accounts of all processes.
        """
        dropped: Counter[str] = Counter()
        for counts in channels:
            dropped.update(counts.get("dropped", {}))
        reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(dropped.items())) or "0"
        return (
            f"instances: {self.injected} injected = {self.retired} retired + {self.lost} lost; "
            f"left out: {left_out}; workers started again: {restarts}; frames dropped: {reasons}"
        )
