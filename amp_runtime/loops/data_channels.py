"""Which processes send rows to which: all of them agree on this list."""

from __future__ import annotations

from collections.abc import Sequence

from amp_runtime.graph.wiring import CONTROLLER_NODE, Wiring
from amp_runtime.sockets.shared_memory import Channel
from amp_runtime.wire.ledger import Lane
from amp_runtime.wire.protocol import CONTROLLER


def data_channels(wiring: Wiring, peer_of: Sequence[int]) -> list[Channel]:
    """Return all channels of rows between two processes, sorted."""

    def number(node: int) -> int:
        return CONTROLLER if node == CONTROLLER_NODE else peer_of[node]

    found = {
        (number(source), number(target), lane)
        for lane, pairs in (
            (Lane.FORWARD, wiring.forward_channels()),
            (Lane.BACKWARD, wiring.backward_channels()),
        )
        for source, target in pairs
    }
    return sorted(channel for channel in found if channel[0] != channel[1])
