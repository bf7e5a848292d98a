"""Timers around what a worker does, put there from outside: the code that is timed knows nothing.

A call of a timed function is on top of those that it was called in, and the clock runs for the top
one alone; so the parts add up to all of the time of the loop. It is CPU time of the loop's thread,
and beside it wall time of the poll. What a timer takes itself, some 2 us a call, falls to its part
and the one it was called in, and is told.

A function that was given another name or place stops the worker, by name.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

LOOP = "loop"
COMPUTE = ("forward", "backward", "accumulate")
PARTS: Mapping[str, Sequence[str]] = {
    "poll": ["amp_runtime.sockets.transport:Endpoint.poll"],
    "socket": [
        "amp_runtime.sockets.transport:Endpoint.send",
        "amp_runtime.sockets.transport:Endpoint.receive",
    ],
    "serialise": [
        "amp_runtime.sockets.peer_link:encode_message",
        "amp_runtime.sockets.peer_link:pack",
    ],
    "deserialise": [
        "amp_runtime.sockets.peer_link:decode",
        "amp_runtime.sockets.peer_link:split",
        "amp_runtime.sockets.peer_link:unpack",
    ],
    "copy": [
        "amp_runtime.sockets.peer_link:join",
        "amp_runtime.sockets.shared_memory:SharedRings.put",
        "amp_runtime.sockets.shared_memory:SharedRings.take",
        "amp_runtime.host.row_queues:merge",
    ],
    "host": [
        "amp_runtime.host.node_host:NodeHost.receive",
        "amp_runtime.host.node_host:NodeHost.work",
        "amp_runtime.host.node_host:NodeHost.settle",
    ],
    "records": [
        "amp_runtime.loops.worker_loop:WorkerLoop._obey",
        "amp_runtime.sockets.peer_link:PeerLink.send_record",
    ],
}
"""What is timed: module and function, by the part that it is told as; and the nodes."""


class Times:
    """Seconds by part; the part that runs now is on top.

    Attributes:
        cpu_s, calls: by part.
        waited_s: wall time in polls, less their CPU time.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._stack = [LOOP]
        self._last = clock()
        self.cpu_s: dict[str, float] = {LOOP: 0.0}
        self.calls: dict[str, int] = {}
        self.waited_s = 0.0

    def clear(self) -> None:
        """Count from now on."""
        self.cpu_s, self.calls, self.waited_s = {LOOP: 0.0}, {}, 0.0
        self._last = self._clock()

    def switch(self) -> None:
        """Give the time since the last switch to the part on top."""
        now = self._clock()
        top = self._stack[-1]
        self.cpu_s[top] = self.cpu_s.get(top, 0.0) + now - self._last
        self._last = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with a timer around it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self._stack.append(part)
            self.calls[part] = self.calls.get(part, 0) + 1
            try:
                return function(*args, **kwargs)
            finally:
                self.switch()
                self._stack.pop()

        return call

    def waiting(self, poll: Callable[..., Any]) -> Callable[..., Any]:
        """Return `poll` with the time that it waits counted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            began, cpu = time.perf_counter(), self._clock()
            try:
                return poll(*args, **kwargs)
            finally:
                self.waited_s += time.perf_counter() - began - (self._clock() - cpu)

        return call


def find(name: str) -> tuple[Any, str, Callable[..., Any]]:
    """Return what holds a function of PARTS, its name there, and the function.

    Raises:
        LookupError: it is not there.
    """
    module, _, path = name.partition(":")
    holder: Any = importlib.import_module(module)
    *classes, last = path.split(".")
    for part in classes:
        holder = getattr(holder, part, None)
    if not hasattr(holder, last):
        raise LookupError(f"no {path} in {module} to be timed: mend PARTS in benchmarks/timers.py")
    return holder, last, getattr(holder, last)


def install(folder: str) -> None:
    """Time this process, which is to be a worker; it leaves a file in `folder` when it stops.

    Raises:
        LookupError: what is to be timed is not there.
    """
    from amp_runtime.host import node_host
    from amp_runtime.loops.worker_loop import WorkerLoop

    times = Times()
    for part, names in PARTS.items():
        for name in names:
            holder, last, function = find(name)
            own = times.waiting(function) if part == "poll" else function
            setattr(holder, last, times.timed(part, own))
    make_node = node_host.make_node

    def make_timed(*args: Any, **kwargs: Any) -> Any:
        node = make_node(*args, **kwargs)
        for name in COMPUTE:
            if hasattr(node, name):
                setattr(node, name, times.timed(f"{name} {node.name}", getattr(node, name)))
        return node

    run = WorkerLoop.run

    def run_timed(loop: WorkerLoop, *args: Any) -> int:
        began, cpu = time.perf_counter(), time.process_time()
        times.clear()
        try:
            return run(loop, *args)
        finally:
            times.switch()
            nodes = {
                name: {"rows": report.rows, "batches": report.batches}
                for name, report in loop._host.report().nodes.items()
            }
            made = {
                "worker": loop._place.name,
                "wall_s": time.perf_counter() - began,
                "process_cpu_s": time.process_time() - cpu,
                "cpu_s": times.cpu_s,
                "calls": times.calls,
                "waited_s": times.waited_s,
                "call_s": call_s(),
                "nodes": nodes,
            }
            (Path(folder) / f"{os.getpid()}.json").write_text(json.dumps(made))

    node_host.make_node = make_timed
    WorkerLoop.run = run_timed  # type: ignore[method-assign]


def call_s(n: int = 2000) -> float:
    """Return the CPU seconds that a timer takes."""
    times = Times()
    nothing = times.timed("nothing", lambda: None)
    began = time.thread_time()
    for _ in range(n):
        nothing()
    return (time.thread_time() - began) / n
