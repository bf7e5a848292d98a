"""The contract of a node, the bases of its kinds, when it updates and what it counts.

The kinds themselves are in `workers/`.
"""
