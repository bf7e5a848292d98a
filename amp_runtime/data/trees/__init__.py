"""Trees: treebanks, and the syntax of Python functions."""
