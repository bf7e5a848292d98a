"""The static graph: built, checked, turned into the tables that rows are routed by, placed.

A model's builder needs no more than the names below. They are imported when they are
first asked for: a worker needs the tables, and nothing that builds or checks a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amp_runtime.graph.builder import POSITION, Graph, NodeHandle, OutPort, PerExample, zeros

__all__ = ["POSITION", "Graph", "NodeHandle", "OutPort", "PerExample", "zeros"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from amp_runtime.graph import builder

    return getattr(builder, name)
