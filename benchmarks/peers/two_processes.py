"""PyTorch in two processes of one thread each: half of every batch, one gradient.

Parameters lie in memory that both processes share; so do the gradients, end to end, a vector of
each process. When both are there, each sums its half of the vector and updates that half of the
parameters, so that the optimiser's work is shared too. Both wait for each other twice a step, by
looking: there are as many cores. A library of collective communication (gloo) does the same over
sockets, with all of the optimiser's work in each process; here nothing is sent.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.peers.model import PeerModel, Step
from benchmarks.peers.one_process import OneProcess, backward
from benchmarks.peers.updating import Rule, TableRows, node_slices

PEERS = 2
LOOKS = 1 << 14
"""After so many, who waits asks whether the other process is still there."""
CACHE_LINE = 8
"""In int64: what one process writes and the other reads lies in a line of its own."""


def shared(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros in memory that a forked process shares; it has no name, so none is left."""
    n = math.prod(shape)
    memory = mmap.mmap(-1, max(1, n) * torch.empty(0, dtype=dtype).element_size())
    return torch.frombuffer(memory, dtype=dtype)[:n].view(shape)


class Meeting:
    """Where both processes wait for each other.

    Attributes:
        rank: of this process.
        other: number of the other process; 0: this one ends when it does.
    """

    def __init__(self) -> None:
        self._arrived = np.frombuffer(mmap.mmap(-1, 8 * PEERS * CACHE_LINE), np.int64)
        self._said = np.frombuffer(mmap.mmap(-1, 8 * PEERS), np.float64)
        self.rank = self.other = 0

    def wait(self) -> None:
        """Wait until the other process has come as often.

        Raises:
            RuntimeError: it has ended.
        """
        mine, others = CACHE_LINE * self.rank, CACHE_LINE * (1 - self.rank)
        self._arrived[mine] += 1
        times, looks = self._arrived[mine], 0
        while self._arrived[others] < times:
            os.sched_yield()
            looks += 1
            if looks % LOOKS == 0 and self.other and os.waitpid(self.other, os.WNOHANG)[0]:
                raise RuntimeError("the second process has ended; its error is above")

    def say(self, number: float) -> list[float]:
        """Return what both have said, by rank."""
        self._said[self.rank] = number
        self.wait()
        said: list[float] = self._said.tolist()
        self.wait()
        return said


class HalfOfTwo(OneProcess):
    """Trains a model with half of each step; `start_second` makes the process of the other half.

    Args:
        most_words: of a step, that the model's table is read by.
    """

    of = PEERS

    def __init__(self, net: PeerModel, rule: Rule, most_words: int = 0) -> None:
        self.net = net
        self._rule = rule
        self._nodes = node_slices(net)
        self._parameters = list(net.parameters())
        sizes = [p.numel() for p in self._parameters]
        self._all = shared((sum(sizes),), net.dtype)
        for p, values in zip(self._parameters, self._all.split(sizes), strict=True):
            p.data = values.copy_(p.detach().reshape(-1)).view_as(p)
        self._gradients = shared((PEERS, sum(sizes)), net.dtype)
        self._meeting = Meeting()
        self._table = None
        if net.table is not None:
            shape = tuple(net.table.shape)
            table, state = shared(shape, net.dtype), shared(shape, net.dtype)
            net.table = table.copy_(net.table)
            self._table = TableRows(rule, table, state)
            self._row_gradients = shared((PEERS, most_words, shape[1]), net.dtype)
        self._be(0)

    def _be(self, rank: int) -> None:
        self.rank = self._meeting.rank = rank
        self._own = _half(len(self._all), rank)
        self._updated = torch.nn.Parameter(self._all[self._own])
        self._updated.grad = torch.zeros_like(self._updated)
        self._optimizer = self._rule.make([self._updated])

    def start_second(self, work: Callable[[], Any]) -> None:
        """Do `work` as the other half, in a new process that ends with this one."""
        first = os.getpid()
        if pid := os.fork():
            self._meeting.other = pid
            return
        status = 1
        try:
            _die_with(first)
            self._be(1)
            work()
            status = 0
        except Exception:  # noqa: BLE001 - this process is ours to end
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def wait_for_second(self) -> None:
        """Wait until the other process has done its work, and ended."""
        os.waitpid(self._meeting.other, 0)

    def update(self, step: Step) -> float:
        """Take a step together; return this process's part of the mean loss it began with."""
        rows = None
        if self._table is not None and step.words is not None:
            rows = self._table.take(step.words)
        self.net.zero_grad()
        loss = backward(self.net, step, rows)
        # A type of edges that this half does not have gave no gradient.
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        torch.cat([gradient.reshape(-1) for gradient in own], out=self._gradients[self.rank])
        if rows is not None:
            mine = self._row_gradients[self.rank, : len(rows)]
            mine.copy_(torch.zeros_like(rows) if rows.grad is None else rows.grad)
        self._meeting.wait()
        self._sum_gradients()
        self._optimizer.step()
        if self._table is not None and step.words is not None:
            some = _half(len(step.words), self.rank)
            both = self._row_gradients[0, some] + self._row_gradients[1, some]
            self._table.update(step.words[some], both)
        self._meeting.wait()
        return loss

    def _sum_gradients(self) -> None:
        """Sum this process's half of the gradient, clipped as the whole is."""
        one, other = self._gradients
        if self._rule.clip_norm is None:
            torch.add(one[self._own], other[self._own], out=self._updated.grad)
            return
        whole = one + other
        for of_node in self._nodes:
            norm = torch.linalg.vector_norm(whole[of_node])
            whole[of_node] *= (self._rule.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        assert self._updated.grad is not None
        self._updated.grad.copy_(whole[self._own])

    def all_of(self, go_on: bool) -> bool:
        """Return what the first process says."""
        return bool(self._meeting.say(float(go_on))[0])

    def sum(self, number: float) -> float:
        """Return the sum over both."""
        return sum(self._meeting.say(number))


def _half(n: int, rank: int) -> slice:
    return slice(rank * n // PEERS, (rank + 1) * n // PEERS)


def _die_with(first: int) -> None:
    """Have the kernel end this process when the first one ends, however it does."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != first:
        os._exit(1)
