"""Recurrent models with the cells and the kinds around them.

tokens -> embedding -> tanh -> joined (join) -> cell -> step (isu) -> more (cond) -> ...
             start -> loop (phi) --^    ^---------------- yes --------------+
"""

from __future__ import annotations

from amp_runtime.graph import POSITION, PerExample, zeros


def recurrence(graph, kind, names, hidden):
    """Add a cell over the tokens; return the output that its last state leaves by."""
    graph.state(step=6)
    tokens = graph.input("tokens", each="tokens", state={"step": POSITION}, payload={"x": "tokens"})
    start = graph.input(
        "start",
        each=PerExample,
        state={"step": 0},
        payload=dict.fromkeys(names, zeros((hidden,))),
    )
    embedded = graph.add("embedding", "embedding", tokens, entries=14, features=6)
    squashed = graph.add("tanh", "squashed", embedded)
    loop = graph.add("phi", "loop", start, inputs=("start", "again"))
    # An array alone is named by its port, {h, c} keep their names.
    port = "h" if names == ("h",) else "state"
    joined = graph.add("join", "joined", squashed, loop, inputs=("x", port))
    cell = graph.add(kind, "cell", joined)
    stepped = graph.add("isu", "step", cell, update="amp_runtime.models.rnn:next_step")
    more = graph.add("cond", "more", stepped, choose="amp_runtime.models.rnn:has_more")
    graph.connect(more["yes"], loop.port("again"))
    return more["no"]


def lstm(graph, *, hidden: int = 10):
    """Classify by h after a dropout, and by the sigmoid of c."""
    last = recurrence(graph, "lstm", ("h", "c"), hidden)
    h = graph.add("dropout", "dropped", graph.add("take", "last-h", last, arrays=("h",)), rate=0.3)
    c = graph.add("sigmoid", "open", graph.add("take", "last-c", last, arrays=("c",)))
    both = graph.add("concat", "both", h, c, inputs=("h", "c"))
    logits = graph.add("linear", "readout", both, features=10)
    graph.add("softmax_cross_entropy", "loss", logits, label="label")


def gru(graph, *, hidden: int = 10):
    """Classify by the softmax of h."""
    share = graph.add("softmax", "share", recurrence(graph, "gru", ("h",), hidden))
    logits = graph.add("linear", "readout", share, features=10)
    graph.add("softmax_cross_entropy", "loss", logits, label="label")
