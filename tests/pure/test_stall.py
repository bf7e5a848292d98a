"""Who owes at a stall: told from what each worker took and sent since the last barrier."""

from __future__ import annotations

import pytest

from amp_runtime.control.stall import who_owes
from amp_runtime.graph import Graph, PerExample
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.statistics import NodeReport, ProcessFacts, WorkerReport
from amp_runtime.rows.message import Mode
from amp_runtime.rows.spec import ArraySpec
from workers.registry import Registry

NAMES = ("before", "suspect", "after", "loss")
PEER_OF = [1, 2, 3, 4]


def chain(suspect: str, **options: str) -> Wiring:
    """Return controller -> before -> suspect -> after -> loss; all but the loss answer."""
    fields = {"x": ArraySpec((2,), "float32"), "label": ArraySpec((), "int32")}
    graph = Graph(Registry(), fields=fields)
    x = graph.input("x", each=PerExample, state={}, payload={"x": "x"})
    row = graph.add(suspect, "suspect", graph.add("linear", "before", x, features=2), **options)
    graph.add(
        "softmax_cross_entropy",
        "loss",
        graph.add("linear", "after", row, features=2),
        label="label",
    )
    return graph.build()


def worker(
    peer: int,
    took: int,
    sent: int,
    answered: int,
    was_answered: int,
    queued: int = 0,
    mode: Mode = Mode.TRAIN,
) -> WorkerReport:
    """Return the report of a worker in the chain; in evaluation all answer the controller."""
    answers_to = peer - 1 if mode is Mode.TRAIN else 0
    accounts = {
        "received": [[peer - 1, "forward", 1, took], [peer + 1, "backward", 1, was_answered]],
        "sent": [[peer + 1, "forward", 1, sent], [answers_to, "backward", 1, answered]],
    }
    nodes = {
        NAMES[peer - 1]: NodeReport(
            rows_forward=took,
            rows_emitted=sent,
            rows_answered=answered,
            rows_backward=was_answered,
        )
    }
    return WorkerReport(nodes, ProcessFacts(accounts), queued_rows=queued)


def blamed(wiring: Wiring, mode: Mode, *rows: tuple[int, ...]) -> list[str]:
    now = {p: worker(p, *counts, mode=mode) for p, counts in enumerate(rows, start=1)}
    controller = {"sent": [[1, "forward", 1, rows[0][0]]]}
    return who_owes(wiring, PEER_OF, mode, {}, now, controller)


TOOK = "'suspect' took 6 rows and neither answered nor passed them on"
LEFT = "'suspect' has not worked on 6 rows that were sent to it"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        # (took, sent, answered, was answered) of before, suspect, after, loss
        ([(10, 10, 4, 4), (10, 4, 4, 4), (4, 4, 4, 4), (4, 0, 4, 0)], TOOK),  # swallowed
        ([(10, 10, 4, 4), (10, 10, 4, 10), (10, 10, 10, 10), (10, 0, 10, 0)], TOOK),  # no answer
        ([(10, 10, 4, 4), (4, 4, 4, 4), (4, 4, 4, 4), (4, 0, 4, 0)], LEFT),  # hangs
        ([(10, 10, 4, 4), (10, 4, 4, 4, 6), (4, 4, 4, 4), (4, 0, 4, 0)], LEFT),  # queued
    ],
)
def test_in_training_the_node_that_answers_too_few_is_told_and_not_those_that_wait(rows, told):
    assert blamed(chain("linear", features=2), Mode.TRAIN, *rows) == [told]


def test_in_evaluation_rows_pass_and_only_the_loss_answers():
    wiring = chain("linear", features=2)
    well = [(10, 10, 0, 0), (10, 10, 0, 0), (10, 10, 0, 0), (10, 0, 10, 0)]
    assert blamed(wiring, Mode.EVALUATE, *well) == []
    swallowed = [(10, 10, 0, 0), (10, 4, 0, 0), (4, 4, 0, 0), (4, 0, 4, 0)]
    assert blamed(wiring, Mode.EVALUATE, *swallowed) == [TOOK]


def test_a_loss_that_does_not_answer_is_told():
    rows = [(10, 10, 4, 4), (10, 10, 4, 4), (10, 10, 4, 4), (10, 0, 4, 0)]
    (told,) = blamed(chain("linear", features=2), Mode.TRAIN, *rows)
    assert told.startswith("'loss' took 6 rows")


def test_what_was_settled_before_the_last_barrier_does_not_count():
    """In evaluation nobody answered `suspect`: that is no debt in the stage behind it."""
    before = {2: worker(2, 100, 100, 0, 0)}
    rows = [(10, 10, 4, 4), (110, 110, 4, 4), (10, 10, 4, 4), (10, 0, 4, 0)]
    now = {peer: worker(peer, *counts) for peer, counts in enumerate(rows, start=1)}
    told = who_owes(chain("linear", features=2), PEER_OF, Mode.TRAIN, before, now, {})
    assert not any("'suspect' took" in line for line in told)


def test_a_worker_that_never_reported_is_told_by_what_was_sent_to_it():
    now = {1: worker(1, 6, 6, 0, 0)}
    controller = {"sent": [[1, "forward", 1, 6]]}
    wiring = chain("linear", features=2)
    assert who_owes(wiring, PEER_OF, Mode.TRAIN, {}, now, controller) == [LEFT]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(10, 10, 4, 4), (10, 4, 4, 4), (4, 4, 4, 4), (4, 0, 4, 0)], [TOOK]),
        ([(10, 10, 10, 10), (10, 10, 10, 10), (10, 10, 10, 10), (10, 0, 10, 0)], []),
    ],
)
def test_nodes_that_share_a_worker_are_told_apart(rows, told):
    nodes: dict[str, NodeReport] = {}
    for peer, counts in enumerate(rows, start=1):
        nodes |= worker(peer, *counts).nodes
    accounts = {"received": [[0, "forward", 1, 10]], "sent": [[0, "backward", 1, 4]]}
    now = {1: WorkerReport(nodes, ProcessFacts(accounts))}
    controller = {"sent": [[1, "forward", 1, 10]]}
    wiring = chain("linear", features=2)
    assert who_owes(wiring, [1, 1, 1, 1], Mode.TRAIN, {}, now, controller) == told


def test_of_a_worker_that_hangs_all_nodes_are_told():
    now = {1: WorkerReport({}), 2: worker(3, 4, 4, 4, 4)}
    controller = {"sent": [[1, "forward", 1, 6]]}
    told = who_owes(chain("linear", features=2), [1, 1, 2, 1], Mode.TRAIN, {}, now, controller)
    assert told == ["'before' or 'suspect' or 'loss' has not worked on 6 rows that were sent to it"]
