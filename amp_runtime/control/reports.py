"""The newest report of each worker, and what all of them show together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from amp_runtime.control.actions import Action, Warn
from amp_runtime.control.stall import who_owes
from amp_runtime.errors import InvariantError, WireError
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.statistics import ChannelCounts, NodeReport, WorkerReport
from amp_runtime.rows.message import Mode
from amp_runtime.wire.ledger import check_accounts
from amp_runtime.wire.plain import shown
from amp_runtime.wire.protocol import CONTROLLER, Acknowledged, Status


class Reports:
    """Keeps the reports of workers.

    Attributes:
        newest: {peer: its report}.
        last_moved: when rows were last seen to be worked on.

    Args:
        peer_of: peer number by node number.
        channels: the controller's own channel counts.
    """

    def __init__(
        self,
        wiring: Wiring,
        peer_of: Sequence[int],
        channels: Callable[[], ChannelCounts],
        now: float,
    ) -> None:
        self._wiring = wiring
        self._peer_of = peer_of
        self._channels = channels
        self._warned_of: set[str] = set()
        self.newest: dict[int, WorkerReport] = {}
        self._taken_at: dict[int, float] = {}
        self._moved_at: dict[str, float] = {}
        self.last_moved = now

    def take(self, record: Acknowledged | Status, epoch: int, now: float) -> list[Action]:
        """Take a report; return a warning of each node whose training loss is not finite,
        once in a run; and of one that did not apply an update.

        Raises:
            WireError: it is of nodes that the worker does not host.
        """
        peer, report = record.worker + 1, record.report
        pairs = zip(self._wiring.nodes, self._peer_of, strict=True)
        own = {node.name for node, p in pairs if p == peer}
        if strangers := report.nodes.keys() - own:
            raise WireError(
                f"{record.verb}.report.nodes holds {shown(min(strangers))}; it must hold "
                f"{', '.join(sorted(own))}",
                where=f"from worker {self.node_names(peer)!r}",
            )
        before = self.newest.get(peer)
        if before is None or report.rows != before.rows:
            self.last_moved = now
        known = before.nodes if before is not None else {}
        for name, node in report.nodes.items():
            if node.rows != (known[name].rows if name in known else 0):
                self._moved_at[name] = now
        self.newest[peer], self._taken_at[peer] = report, now
        return self._warnings(report, epoch)

    def _warnings(self, report: WorkerReport, epoch: int) -> list[Action]:
        found: list[Action] = []
        for name, node in report.nodes.items():
            if name in self._warned_of:
                continue
            if said := _not_finite(name, node):
                self._warned_of.add(name)
                found.append(Warn(f"epoch {epoch}: {said}"))
        return found

    def node_names(self, peer: int) -> str:
        """Return the names of the nodes that a worker hosts, for messages."""
        if peer == CONTROLLER:
            return "the controller"
        pairs = zip(self._wiring.nodes, self._peer_of, strict=True)
        return "+".join(node.name for node, p in pairs if p == peer)

    def assert_all_received(self) -> None:
        """Assert that every row sent on any channel was received.

        Raises:
            InvariantError: names the channel and both counts.
        """
        counts = {peer: report.process.channels for peer, report in self.newest.items()}
        check_accounts({CONTROLLER: self._channels(), **counts}, self.node_names)

    def lost(self) -> InvariantError | None:
        """Return which channel has lost messages; None where no worker's word says so.

        Only of workers that have all reported since rows last moved: what was sent to one that
        is silent may still be under way.
        """
        reported = [self._taken_at.get(peer, 0.0) for peer in set(self._peer_of)]
        if min(reported) <= self.last_moved:
            return None
        try:
            self.assert_all_received()
        except InvariantError as error:
            return error
        return None

    def moving(self, since: float) -> list[str]:
        """Return the nodes that have worked on rows at a later time, in the order of the graph."""
        names = (node.name for node in self._wiring.nodes)
        return [name for name in names if self._moved_at.get(name, since) > since]

    def who_owes(self, mode: Mode, before: Mapping[int, WorkerReport]) -> str:
        """Say where rows are.

        Args:
            mode: theirs.
            before: the reports at the last barrier.
        """
        owing = who_owes(self._wiring, self._peer_of, mode, before, self.newest, self._channels())
        held = [
            f"{name}: {node.stash_used} rows unanswered, {node.join_waiting} keys wait in its join"
            for report in self.newest.values()
            for name, node in report.nodes.items()
            if node.stash_used or node.join_waiting
        ]
        return "; ".join(owing or held) or "no node reports rows"


def _not_finite(name: str, node: NodeReport) -> str:
    """Say what is not finite at a node; '' where all is."""
    if node.not_applied:
        return f"node {name!r} has not applied {node.not_finite}: its gradient is not finite"
    if (loss := node.diverged_loss()) is None:
        return ""
    first = f", first {node.not_finite}" if node.not_finite else ""
    return (
        f"the training loss of node {name!r} is {loss}{first}; the run goes on, but has most "
        "likely diverged: try a smaller training.optimizer.lr"
    )
