"""Which rows go first: of one node, and of several that take turns."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from amp_runtime.host.row_queues import RowQueues
from amp_runtime.rows.message import Direction, Message, Mode


def queues(most_rows: float = math.inf, **order: bool) -> RowQueues:
    return RowQueues(lambda key: most_rows, **order)


def down(port: int, n_rows: int = 1, instance: int = 0, mode: Mode = Mode.TRAIN) -> Message:
    """Return forward rows for input port `port`."""
    columns = np.full((n_rows, 3), instance, np.int32)
    return Message(Direction.FORWARD, mode, port, columns, {})


def up(port: int, n_rows: int = 1) -> Message:
    """Return answers to rows that left by return port `port`."""
    return Message(Direction.BACKWARD, Mode.TRAIN, port, np.zeros((n_rows, 1), np.int32), None)


def served(
    it: RowQueues, then: Callable[[str], Message | None] = lambda batch: None, n: int = 100
) -> list[str]:
    """Return up to `n` batches as in `down 3: 2 rows`; what `then` makes of each is queued."""
    told: list[str] = []
    while len(told) < n and (batch := it.next_batch()) is not None:
        way = "down" if batch.direction is Direction.FORWARD else "up"
        told.append(f"{way} {batch.port}: {len(batch)}")
        if (caused := then(told[-1])) is not None:
            it.add(caused)
    return told


def test_of_one_node_answers_go_first_and_then_the_oldest_instance():
    it = queues(taking_turns=False)
    for message in (down(0, instance=5), down(1, 2, instance=3), up(0), up(0)):
        it.add(message)
    assert served(it, lambda told: up(7) if told == "down 1: 2" else None) == [
        "up 0: 2", "down 1: 2", "up 7: 1", "down 0: 1",
    ]  # fmt: skip


def test_several_nodes_are_served_in_rounds_answers_up_the_graph_and_then_rows_down_it():
    it = queues(taking_turns=True)
    for message in (down(2), down(0), up(1), down(1), up(3), down(0, mode=Mode.EVALUATE)):
        it.add(message)
    assert served(it) == ["up 3: 1", "up 1: 1", "down 0: 1", "down 0: 1", "down 1: 1", "down 2: 1"]
    assert not it


def test_what_comes_for_a_port_that_is_still_to_be_served_joins_its_batch():
    it = queues(taking_turns=True)
    for message in (down(0), down(2)):
        it.add(message)
    causes = {"down 0: 1": down(1, 3), "down 1: 3": down(2, 4)}
    assert served(it, causes.get) == ["down 0: 1", "down 1: 3", "down 2: 5"]


def test_a_loop_does_not_overtake_what_waits_and_nothing_waits_longer_than_a_round():
    """Each time round, port 0 is fed anew before port 1 and the answers are served."""
    it = queues(taking_turns=True)
    for message in (down(0), down(1), up(0)):
        it.add(message)
    again = {"up 0: 1": up(0), "down 0: 1": down(0), "down 1: 1": down(1)}
    assert served(it, again.get, n=6) == ["up 0: 1", "down 0: 1", "down 1: 1"] * 2


def test_null_answers_and_gradients_to_one_port_are_both_served_in_a_round():
    it = queues(taking_turns=True)
    gradient = Message(
        Direction.BACKWARD, Mode.TRAIN, 1, np.zeros((2, 1), np.int32), {"x": np.zeros(2)}
    )
    for message in (up(1), gradient, up(0)):
        it.add(message)
    assert served(it) == ["up 1: 2", "up 1: 1", "up 0: 1"]


def test_what_is_too_much_for_a_batch_waits_for_the_next_round():
    it = queues(taking_turns=True, most_rows=2)
    for message in (down(0), down(0), down(0), down(1)):
        it.add(message)
    assert served(it) == ["down 0: 2", "down 1: 1", "down 0: 1"]


@pytest.mark.parametrize("taking_turns", [False, True])
def test_forward_first_merges_the_answers_to_rows_that_leave_a_loop_at_different_times(
    taking_turns,
):
    """One row goes round a loop, and sends an answer each time: all are served as one batch."""
    it = queues(taking_turns=taking_turns, forward_first=True)
    it.add(down(0))
    rounds = iter(range(3))

    def then(told: str) -> Message | None:
        if not told.startswith("down"):
            return None
        it.add(up(1))
        return down(0) if next(rounds, None) is not None else None

    assert served(it, then) == ["down 0: 1"] * 4 + ["up 1: 4"]
