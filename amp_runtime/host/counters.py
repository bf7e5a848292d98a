"""What is counted about each node of a worker, and the report made of it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

from amp_runtime.nodes.loss import Loss
from amp_runtime.nodes.node import Node
from amp_runtime.nodes.parameterised import Parameterised
from amp_runtime.nodes.statistics import MetricSum, NodeReport
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.rows.saved import Saved


@dataclass(slots=True)
class Counters:
    """What the host counts about a node.

    Attributes:
        rows, batches: by direction, all modes.
        sent: rows that it emitted, and rows that it answered, by direction.
        train_rows: forward rows in training.
    """

    rows: list[int] = field(default_factory=lambda: [0, 0])
    batches: list[int] = field(default_factory=lambda: [0, 0])
    sent: list[int] = field(default_factory=lambda: [0, 0])
    busy_s: float = 0.0
    train_rows: int = 0

    def worked_on(self, batch: Message) -> None:
        """Count a batch that the node was run on."""
        n_rows, direction = len(batch), batch.direction
        self.rows[direction] += n_rows
        self.batches[direction] += 1
        if direction is Direction.FORWARD and batch.mode is Mode.TRAIN:
            self.train_rows += n_rows

    def save(self) -> Saved:
        """Return what it goes on from: all but the seconds, which are this process's."""
        return Saved({name: copy(getattr(self, name)) for name in _GOES_ON})

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` returned."""
        for name in _GOES_ON:
            setattr(self, name, copy(saved.numbers[name]))

    def report(self, node: Node, moves: int | None) -> NodeReport:
        """Return the report of `node`.

        Args:
            moves: how often a replica went on from what it was sent; None: it has no replicas.
        """
        metrics = {
            mode.name.lower(): {  # a kind may well sum with numpy; a record holds plain numbers
                n: MetricSum(float(m.total), int(m.count))
                for n, m in node.take_metrics(mode).items()
            }
            for mode in Mode
        }
        return NodeReport(
            rows_forward=self.rows[Direction.FORWARD],
            rows_backward=self.rows[Direction.BACKWARD],
            rows_emitted=self.sent[Direction.FORWARD],
            rows_answered=self.sent[Direction.BACKWARD],
            batches_forward=self.batches[Direction.FORWARD],
            batches_backward=self.batches[Direction.BACKWARD],
            busy_s=self.busy_s,
            stash_used=node.stash.used,
            stash_peak=node.stash.peak,
            stash_bytes=node.stash.nbytes,
            join_waiting=node.waiting,
            metrics={mode: values for mode, values in metrics.items() if values},
            **_of_kind(node, moves),
        )


_GOES_ON = ("rows", "batches", "sent", "train_rows")


def _of_kind(node: Node, moves: int | None) -> dict[str, Any]:
    """Return what a report says of a node with parameters, or of a loss."""
    if isinstance(node, Parameterised):
        return _updates(node, moves)
    return {"not_finite": node.not_finite} if isinstance(node, Loss) else {}


def _updates(node: Parameterised, moves: int | None) -> dict[str, Any]:
    """Return what a report says of the updates of a node with parameters."""
    updates: dict[str, Any] = {
        "averagings": moves,
        "updates": node.version - (moves or 0),
        "staleness": node.staleness.counts.tolist(),
        "gradient_rows": node.updates.rows,
        "lr": node.optimizer.lr,
        "clipped": node.clipped if node.clip is not None else None,
        "not_applied": node.not_applied.count,
        "not_finite": node.not_applied.first,
    }
    if node.remedies is not None:
        updates |= {"dropped": node.remedies.dropped, "horizon": node.remedies.horizon}
    if node.delay is not None:
        updates["delay_bytes"] = node.delay.n_bytes
    if (versions := node.weights.versions) is not None:
        updates |= {
            "weight_copies_peak": versions.peak,
            "weight_copies_peak_bytes": versions.peak_bytes,
        }
    return updates
