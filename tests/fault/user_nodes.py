"""A user's model, data and node kinds, which do what they must not. Copied beside a config.

x -> before (linear) -> suspect -> after (linear) -> loss
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from pathlib import Path

from amp_runtime.graph import PerExample
from amp_runtime.names import needs
from amp_runtime.sockets.transport import Endpoint
from workers.relu import Relu

CALLS_THAT_GO_WELL = 8


def source(split, seed, *, train: int = 200, valid: int = 20):
    for i in range(train if split == "train" else valid):
        yield {"x": [[i % 3, i % 5, 1.0, 0.5]], "label": i % 3}


def source_with_one_that_crashes(split, seed, *, train: int = 60):
    for i in range(train if split == "train" else 20):
        poison = split == "train" and i == 33
        yield {"x": [[77.0 if poison else i % 3, i % 5, 1.0, 0.5]], "label": i % 3}


def source_that_waits(split, seed):
    """Say that it was reached, and never come back."""
    Path("waiting").touch()
    while True:
        time.sleep(0.01)


def source_that_raises(split, seed):
    raise KeyError("column 7")
    yield {}


def source_that_exits(split, seed):
    sys.exit(0)


def build(graph, *, kind: str = "relu", update: str = "", first: bool = False):
    graph.state(step=4)
    x = graph.input("x", each=PerExample, state={"step": 0}, payload={"x": "x"})
    before = x if first else graph.add("linear", "before", x, features=4)
    if update:
        suspect = graph.add("isu", "suspect", before, update=f"user_nodes:{update}")
    else:
        suspect = graph.add(kind, "suspect", before)
    after = graph.add("linear", "after", suspect, features=3)
    graph.add("softmax_cross_entropy", "loss", after, label="label")


def build_loop(graph):
    """x -> before -> round (phi) -> turned (isu) -> ways (cond) -> after -> loss; a row never
    leaves."""
    graph.state(step=4)
    x = graph.input("x", each=PerExample, state={"step": 0}, payload={"x": "x"})
    before = graph.add("linear", "before", x, features=4)
    loop = graph.add("phi", "round", before, inputs=("start", "again"))
    turned = graph.add("isu", "turned", loop, update="user_nodes:turned")
    ways = graph.add("cond", "ways", turned, choose="user_nodes:goes_on")
    graph.connect(ways["yes"], loop.port("again"))
    after = graph.add("linear", "after", ways["no"], features=3)
    graph.add("softmax_cross_entropy", "loss", after, label="label")


def turned(columns, structure):
    return {"step": (columns["step"] + 1) % 16}  # what it must not: the same state comes again


@needs("endless")
def goes_on(columns, structure):
    return structure.take("endless", columns) + (columns["step"] < 3) > 0


def source_with_one_that_goes_round(split, seed):
    for i in range(40):
        endless = int(split == "train" and i == 17)
        yield {"x": [[i % 3, i % 5, 1.0, 0.5]], "label": i % 3, "endless": endless}


def build_fan_out(graph):
    """x -> first -> four linears -> joined -> last -> after -> loss.

    libzmq takes two messages in the processes of first and of last, and in the controller's.
    """
    hardly_any_room()
    graph.state(step=4)
    x = graph.input("x", each=PerExample, state={"step": 0}, payload={"x": "x"})
    first = graph.add("user_nodes:HardlyAnyRoom", "first", x)
    ways = [graph.add("linear", f"way-{n}", first, features=4) for n in range(4)]
    joined = graph.add("concat", "joined", *ways, inputs=("a", "b", "c", "d"))
    last = graph.add("user_nodes:HardlyAnyRoom", "last", joined)
    after = graph.add("linear", "after", last, features=3)
    graph.add("softmax_cross_entropy", "loss", after, label="label")


def hardly_any_room():
    Endpoint.__init__.__kwdefaults__["high_water_mark"] = 2


def build_on_a_slow_disk(graph):
    """Two nodes in one worker, and the controller, which wait for the disk."""
    slow_disk()
    build(graph, kind="user_nodes:SlowDisk")


def slow_disk():
    def slow(descriptor):
        time.sleep(0.1)
        with Path("waits").open("a") as file:
            file.write(f"{os.readlink(f'/proc/self/fd/{descriptor}')}\n")

    os.fsync = slow


def state_function_that_raises(columns, structure):
    raise LookupError("no such step")


class Counted(Relu):
    """Does well for a while: then the run is under way, and `misbehave` is called."""

    def __init__(self, context):
        super().__init__(context)
        self.calls = 0

    def forward(self, port, rows, mode):
        self.calls += 1
        if self.calls > CALLS_THAT_GO_WELL:
            self.misbehave()
        return super().forward(port, rows, mode)

    def misbehave(self):
        """Do what the kind is named after."""


class RaisesInForward(Counted):
    def misbehave(self):
        raise ValueError("the\nforward failed")


class RaisesInBackward(Relu):
    def backpropagate(self, saved, gradient, wants_input):
        raise ZeroDivisionError("the backward failed")


class RaisesInAccumulate(Relu):
    def accumulate(self):
        raise ArithmeticError("the update failed")


class RaisesInALibrary(Counted):
    def misbehave(self):
        import json

        json.loads("{")


class Segfaults(Counted):
    def misbehave(self):
        ctypes.string_at(0)


class ExitsUnasked(Counted):
    def misbehave(self):
        os._exit(0)


class LeavesPolitely(Counted):
    def misbehave(self):
        sys.exit(0)


class Swallows(Counted):
    def forward(self, port, rows, mode):
        self.calls += 1
        return () if self.calls > CALLS_THAT_GO_WELL else Relu.forward(self, port, rows, mode)


class Forgets(Counted):
    """Takes the rows down, and does not pass them on."""

    def forward(self, port, rows, mode):
        emissions = super().forward(port, rows, mode)
        return () if self.calls > CALLS_THAT_GO_WELL else emissions


class SendsNarrowRows(Relu):
    def compute(self, payload):
        output, saved = super().compute(payload)
        return {name: array[:, :2] for name, array in output.items()}, saved


class AnswersWithFloat64(Relu):
    def backpropagate(self, saved, gradient, wants_input):
        found = super().backpropagate(saved, gradient, wants_input)
        return {name: array.astype("f8") for name, array in found.items()}


class AnswersTwice(Relu):
    def backward(self, port, slots, gradient):
        return (*super().backward(port, slots, gradient),) * 2


class Hangs(Counted):
    def misbehave(self):
        Path("hanging").touch()
        while True:
            time.sleep(0.01)


class HangsOnce(Counted):
    def misbehave(self):
        if not Path("hanging").exists():
            Path("hanging").touch()
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()  # a second time: for ever


class HardlyAnyRoom(Relu):
    """In a process in which libzmq takes two messages a channel."""

    def __init__(self, context):
        super().__init__(context)
        hardly_any_room()  # nodes are made before sockets


class SlowDisk(Relu):
    """In a process that waits for the disk a tenth of a second each time."""

    def __init__(self, context):
        super().__init__(context)
        slow_disk()


class HoldsTheInterpreter(Counted):
    """In C, as a call into a library does that does not let other threads run meanwhile."""

    def misbehave(self):
        if self.calls == CALLS_THAT_GO_WELL + 1:
            ctypes.PyDLL(None).usleep(500_000)  # shortly
            Path("held").touch()
        elif self.calls == 2 * CALLS_THAT_GO_WELL and not Path("again").exists():
            Path("again").touch()
            ctypes.PyDLL(None).sleep(1_000_000)  # for ever


class CrashesAtAnExample(Relu):
    """That whose first value is 77."""

    def forward(self, port, rows, mode):
        if (rows.payload["x"][:, 0] == 77).any():
            ctypes.string_at(0)
        return super().forward(port, rows, mode)


class RaisesWhenMade(Relu):
    def __init__(self, context):
        raise RuntimeError("no licence found")


class ExitsWhenMade(Relu):
    def __init__(self, context):
        os._exit(3)


class EndsLate(Relu):
    """The process stays when it is told to stop: Python waits for its threads."""

    def __init__(self, context):
        super().__init__(context)
        threading.Thread(target=threading.Event().wait).start()


class CrashesAtTheEnd(Relu):
    def __init__(self, context):
        super().__init__(context)
        atexit.register(os._exit, 9)


class NotANode:
    pass
