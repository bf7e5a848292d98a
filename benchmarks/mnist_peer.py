"""The digits of configs/mnist.yaml: our asynchronous run beside PyTorch, the same network.

    AMP_DATA=... python benchmarks/mnist_peer.py [SEEDS] [key=value ...]
    make mnist-peer

Both train as many epochs, with the same optimizer, batches of 100, and initial weights
of the same distribution. Needs PyTorch (make peers).
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from amp_runtime.config.schema import Config, load_config
from amp_runtime.data import load_split
from benchmarks.seeds import run_seed
from tests.peers import torch_models

CONFIG = "configs/mnist.yaml"


def torch_accuracy(config: Config, seed: int) -> float:
    """Train the network with PyTorch; return the validation accuracy after the last epoch."""
    data = [
        load_split(config.data.source, s, seed, config.data.options) for s in ("train", "valid")
    ]
    (x, y), (valid_x, valid_y) = (
        (d.fields["pixels"].values, d.fields["label"].values.reshape(-1)) for d in data
    )
    options = dict(config.training.optimizer.options)
    parameters = torch_models.random_parameters(torch_models.MLP_SHAPES, seed)
    batches = [
        (x[rows], y[rows])
        for epoch in range(1, config.training.max_epochs + 1)
        for rows in np.split(
            data[0].order(seed, epoch), range(config.data.batch, len(x), config.data.batch)
        )
    ]
    trained = torch_models.train_steps(
        torch_models.MLP, parameters, batches, config.training.optimizer.name, options, "float32"
    )
    return torch_models.accuracy(torch_models.MLP, trained, (valid_x, valid_y), "float32")


def main() -> None:
    seeds, *settings = sys.argv[1:] or ["0 1 2"]
    config = load_config(CONFIG, settings)
    print("| seed | ours, asynchronous | PyTorch | staleness |\n|---|---|---|---|")
    ours, peers = [], []
    for seed in map(int, seeds.split()):
        result = run_seed(CONFIG, seed, settings)
        ours.append(result.accuracy)
        peers.append(torch_accuracy(config, seed))
        print(f"| {seed} | {ours[-1]:.4f} | {peers[-1]:.4f} | {result.staleness:.1f} |", flush=True)
    print(f"| mean | {statistics.fmean(ours):.4f} | {statistics.fmean(peers):.4f} | |")


if __name__ == "__main__":
    main()
