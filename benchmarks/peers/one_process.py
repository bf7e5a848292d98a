"""PyTorch in one process; with how many threads it computes is set before, for the process."""

from __future__ import annotations

import torch

from benchmarks.peers.model import PeerModel, Step
from benchmarks.peers.updating import Rule, TableRows, clip_by_node


def backward(net: PeerModel, step: Step, rows: torch.Tensor | None) -> float:
    """Give all parameters, and `rows` of the table, their gradient; return the loss."""
    loss = 0.0
    for part in step.parts:
        of_part = net.measure(part, rows).loss / step.n_examples
        of_part.backward()
        loss += of_part.item()
    return loss


class OneProcess:
    """Trains a model step by step."""

    rank, of = 0, 1

    def __init__(self, net: PeerModel, rule: Rule) -> None:
        self.net = net
        self._clip_norm = rule.clip_norm
        self._optimizer = rule.make(net.parameters())
        self._table = None if net.table is None else TableRows(rule, net.table)

    def update(self, step: Step) -> float:
        """Take a step; return the mean loss that it began with."""
        rows = None
        if self._table is not None and step.words is not None:
            rows = self._table.take(step.words)
        self._optimizer.zero_grad()
        loss = backward(self.net, step, rows)
        if self._clip_norm is not None:
            clip_by_node(self.net, self._clip_norm)
        self._optimizer.step()
        if self._table is not None and step.words is not None and rows is not None:
            assert rows.grad is not None
            self._table.update(step.words, rows.grad)
        return loss

    def evaluate(self, step: Step) -> tuple[float, float]:
        """Return loss and metric, summed over the step's examples."""
        rows = None
        if self.net.table is not None and step.words is not None:
            rows = self.net.table.index_select(0, step.words)
        loss = metric = 0.0
        with torch.inference_mode():
            for part in step.parts:
                found = self.net.measure(part, rows)
                loss += found.loss.item()
                metric += found.metric.item()
        return loss, metric

    def all_of(self, go_on: bool) -> bool:
        """Return what the first of the processes says."""
        return go_on

    def sum(self, number: float) -> float:
        """Return the sum over the processes."""
        return number
