"""Examples a second of PyTorch, after a warm-up; of all processes that work together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.peers.clock import timed
from benchmarks.peers.model import Step
from benchmarks.peers.one_process import OneProcess

AT_ONCE = 8
"""Steps that are evaluated before the clock is looked at: who evaluates waits for nobody."""


def rates(
    trainer: OneProcess,
    train: Sequence[Step],
    valid: Sequence[Step],
    warm_up_s: float,
    seconds: float,
) -> dict[str, Any]:
    """Return examples a second in training and in evaluation.

    Args:
        train: of this process, its share of each.
        valid: of this process, all of each.
        seconds: of either.
    """
    chunks = [valid[i : i + AT_ONCE] for i in range(0, len(valid), AT_ONCE)]

    def evaluate(steps: Sequence[Step]) -> None:
        for step in steps:
            trainer.evaluate(step)

    def n_examples(steps: Sequence[Step]) -> int:
        return sum(step.n_examples for step in steps)

    def of_one(step: Step) -> int:
        return step.n_examples

    all_of = trainer.all_of
    timed(trainer.update, train, of_one, warm_up_s, all_of)
    n, taken = timed(trainer.update, train, of_one, seconds, all_of)
    timed(evaluate, chunks, n_examples, warm_up_s / 2, all_of)
    n_evaluated, took = timed(evaluate, chunks, n_examples, seconds, all_of)
    return {
        "train_per_s": n / taken,
        "evaluate_per_s": trainer.sum(n_evaluated) / took,
        "examples": n,
    }
