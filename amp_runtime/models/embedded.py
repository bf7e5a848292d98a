"""The embedding of a field of ids, which begins with pre-trained vectors if there are any."""

from __future__ import annotations

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.graph import Graph, NodeHandle, OutPort

WIDTH = 128
"""Of an embedding where nothing says otherwise."""


def embedded(
    graph: Graph, ids: OutPort, field: str, entries: int | None, features: int | None
) -> NodeHandle:
    """Add the node `embedding`.

    Args:
        ids: rows of the ids of `field`.
        entries: how many there are; None: as the data source says.
        features: width; None: that of the pre-trained vectors, or `WIDTH` without such.
    Raises:
        ShapeMismatchError: the pre-trained vectors are of another width than `features`.
        GraphError: nothing says how many ids there are.
    """
    vectors = graph.vectors(field)
    width = (WIDTH if vectors is None else vectors.shape[1]) if features is None else features
    if vectors is not None and vectors.shape[1] != width:
        raise ShapeMismatchError(
            f"option 'embedding' is {width}, but the pre-trained vectors hold "
            f"{vectors.shape[1]} numbers",
            fix="leave model.embedding out, or choose other data.vectors",
        )
    n_entries = graph.entries(field) if entries is None else entries
    # What training never sees, such as the id of unknown words, stays as it begins; at random
    # it would be taken for some word or other, and for another one with each seed.
    unseen = () if vectors is not None or entries is not None else graph.unseen(field)
    node = graph.add("embedding", "embedding", ids, entries=n_entries, features=width, zero=unseen)
    if vectors is not None:
        graph.begin(node, table=vectors)
    return node
