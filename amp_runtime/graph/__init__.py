"""The static graph: built, checked, turned into the tables that rows are routed by, placed.

A model's builder needs no more than the names below.
"""

from amp_runtime.graph.builder import POSITION, Graph, NodeHandle, OutPort, PerExample, zeros

__all__ = ["POSITION", "Graph", "NodeHandle", "OutPort", "PerExample", "zeros"]
