"""A recurrent network over token sequences; the last state is classified.

tokens -> embedding ----------------+
                                    v
start -> loop (phi) ---------> joined (concat) -> linear-1 -> step (isu) -> more (cond)
          ^                                                                  |      |
          +--------------------------- yes ----------------------------------+      no
                                                                                    v
                                                                    linear-2 -> loss
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le

from amp_runtime.graph import POSITION, Graph, PerExample, zeros
from amp_runtime.names import needs
from amp_runtime.rows.spec import Array, Columns
from amp_runtime.rows.structure import StructureArena


def build(
    graph: Graph,
    *,
    hidden: Annotated[int, Gt(0)] = 128,
    embedding: Annotated[int, Gt(0)] = 128,
    vocabulary: Annotated[int, Gt(0)] = 14,
    classes: Annotated[int, Gt(0)] = 10,
    step_bits: Annotated[int, Ge(1), Le(31)] = 12,
) -> None:
    """Build the vanilla ReLU network: h = relu(W [embedding, h] + b).

    Args:
        graph: over fields `tokens` (int32) and `label`.
        hidden: width of the recurrent state.
        embedding: width of a token's embedding.
        vocabulary: tokens are 0 to vocabulary - 1.
        classes: labels are 0 to classes - 1.
        step_bits: sequences hold up to 2**step_bits - 1 tokens.
    Source: AMPNet, arXiv:1705.09786, list reduction.
    """
    graph.state(step=step_bits)
    tokens = graph.input("tokens", each="tokens", state={"step": POSITION}, payload={"x": "tokens"})
    start = graph.input(
        "start", each=PerExample, state={"step": 0}, payload={"x": zeros((hidden,))}
    )

    embedded = graph.add("embedding", "embedding", tokens, entries=vocabulary, features=embedding)
    loop = graph.add("phi", "loop", start, inputs=("start", "again"))
    joined = graph.add("concat", "joined", embedded, loop, inputs=("token", "hidden"))
    state = graph.add("linear", "linear-1", joined, features=hidden, activation="relu")
    stepped = graph.add("isu", "step", state, update=f"{__name__}:next_step")
    more = graph.add("cond", "more", stepped, choose=f"{__name__}:has_more")
    graph.connect(more["yes"], loop.port("again"))
    logits = graph.add("linear", "linear-2", more["no"], features=classes)
    graph.add("softmax_cross_entropy", "loss", logits, label="label")


def next_step(columns: Columns, structure: StructureArena) -> dict[str, Array]:
    return {"step": columns["step"] + 1}


@needs("len(tokens)")
def has_more(columns: Columns, structure: StructureArena) -> Array:
    return columns["step"] < structure.take("len(tokens)", columns)
