"""A known delay, made on purpose at one node: an instrument to study what asynchrony costs.

A node computes rows with its own weights of some updates ago, and remembers so. All else is
as where rows were as long under way: what their gradients are counted as, what remedies see.
A worker imports of it what one of its nodes asks for.
"""
