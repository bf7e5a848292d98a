"""A multi-layer perceptron: linear-1 ... linear-n, relu between them."""

from __future__ import annotations

from typing import Annotated

from amp_runtime.graph import Graph, NodeHandle, OutPort, PerExample
from amp_runtime.limits import Gt


def build(
    graph: Graph,
    *,
    hidden: tuple[Annotated[int, Gt(0)], ...] = (784, 784, 784),
    classes: Annotated[int, Gt(0)] = 10,
) -> None:
    """Build the classifier of images: one linear per layer, relu fused behind all but the last.

    Args:
        graph: over fields `pixels` [1, n] and `label`.
        hidden: widths of the hidden layers.
        classes: labels are 0 to classes - 1.
    Source: AMPNet, arXiv:1705.09786, MNIST.
    """
    layer: OutPort | NodeHandle = graph.input(
        "pixels", each=PerExample, state={}, payload={"x": "pixels"}
    )
    for number, width in enumerate(hidden, start=1):
        name = f"linear-{number}"
        layer = graph.add("linear", name, layer, features=width, activation="relu")
    logits = graph.add("linear", f"linear-{len(hidden) + 1}", layer, features=classes)
    graph.add("softmax_cross_entropy", "loss", logits, label="label")
