"""What a user would otherwise train our models with: the same models, sizes and work, by others.

model.py            what a model of a peer is, and what one update is made of, prepared once
one_process.py      PyTorch, one process with one thread or two
two_processes.py    PyTorch, two processes with half of a batch each
trees.py            the Tree-LSTM: branch by branch, or all branches of a level at once
sequences.py        the recurrent network: one sequence at a time, or many of one length at once
images.py           the perceptron
molecules.py        the gated graph network: one molecule at a time, or many as one graph
pyg_molecules.py    the same network by PyTorch Geometric
dynet_trees.py      the Tree-LSTM by DyNet, which finds batches itself
rates.py            examples a second

Every one of them is held equal to ours by tests/peers/test_bench_peers.py: loss and gradients.
"""
