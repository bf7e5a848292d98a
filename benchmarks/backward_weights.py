"""What a row in flight and a past version of the weights take, by `backward_weights`.

    python benchmarks/backward_weights.py [FEATURES]

Bytes of a node's stash per row, addresses and lineage included, and of one copy of what
its backward reads of the weights; in float32, inputs as wide as outputs.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from amp_runtime.nodes.node import NodeContext
from amp_runtime.remedies.backward_weights import BackwardWeights
from amp_runtime.rows.message import Mode, Rows
from amp_runtime.rows.spec import INSTANCE, ArraySpec, PortSpec, StateSchema
from amp_runtime.rows.structure import StructureArena
from workers.registry import Registry

ROWS = 256


def kinds(n: int) -> list[tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]]:
    """Return (kind, options, shapes of the input) with `n` features."""
    cell = {"x": (n,), "h": (n,), "c": (n,)}
    return [
        ("linear", {"features": n}, {"x": (n,)}),
        ("linear", {"features": n, "activation": "tanh"}, {"x": (n,)}),
        ("layer_norm", {}, {"x": (n,)}),
        ("gru", {}, {"x": (n,), "h": (n,)}),
        ("lstm", {}, cell),
        ("tree_lstm_branch", {}, {"h": (2, n), "c": (2, n)}),
        ("child_sum_lstm", {}, cell),
        ("embedding", {"entries": 20_000, "features": n}, {"x": ()}),
    ]


def made(kind: str, options: Any, shapes: Any, which: BackwardWeights) -> Any:
    """Return a node that has `ROWS` rows in flight and was about to be updated."""
    dtype = "int32" if kind == "embedding" else "float32"
    arrays = {name: ArraySpec(shape, dtype) for name, shape in shapes.items()}
    inputs = {"x": PortSpec(arrays, StateSchema(((INSTANCE, 24),)))}
    cls = Registry().load(kind)
    node: Any = cls(
        NodeContext(
            name=kind,
            kind=kind,
            options=(given := cls.Options(**options)),
            inputs=inputs,
            outputs=cls.infer(given, inputs, "float32"),
            wants_gradient=frozenset({"x"}),
            return_ports={"y": 1},
            dtype="float32",
            seed=0,
            structure=StructureArena({}),
            backward_weights=which,
        )
    )
    payload = {name: np.zeros((ROWS, *shape), dtype) for name, shape in shapes.items()}
    node.forward("x", Rows(np.zeros((ROWS, 3), np.int32), payload, 1), Mode.TRAIN)
    node.before_overwriting()
    return node


def main() -> None:
    n = int(sys.argv[1]) if sys.argv[1:] else 128
    print("| kind | live, stashed: bytes a row | recompute | stashed: bytes a version |")
    print("|---|---|---|---|")
    for kind, options, shapes in kinds(n):
        live, stashed, recompute = (made(kind, options, shapes, which) for which in BackwardWeights)
        rows = [node.stash.nbytes // node.stash.capacity for node in (live, recompute)]
        name = f"{kind}, {options['activation']}" if "activation" in options else kind
        print(f"| {name} | {rows[0]:,} | {rows[1]:,} | {stashed.weights.versions.peak_bytes:,} |")


if __name__ == "__main__":
    main()
