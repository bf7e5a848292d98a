"""Graphs with typed edges: bAbI task 15, and how graphs become fields."""
