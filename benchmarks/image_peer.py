"""Images: our asynchronous run beside PyTorch, the same network trained the same way.

    AMP_DATA=... python benchmarks/image_peer.py CONFIG SEEDS [key=value ...]
    make mnist-peer fashion-peer

Both train the config's network (model `mlp`) as many epochs, with its optimizer and learning
rates, as many examples an update, and from initial weights of the same distribution; the
accuracy is that of the last epoch. Seconds are those of training and validation, start-up
left out. Needs PyTorch (make peers).
"""

from __future__ import annotations

import inspect
import itertools
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch

from amp_runtime.config.schema import Config, load_config
from amp_runtime.data import TRAIN, VALID, load_split
from amp_runtime.models import mlp
from amp_runtime.optim.lr_schedules import make_lr_schedule
from benchmarks.seeds import run_seed
from tests.peers import torch_models


def torch_run(config: Config, seed: int) -> tuple[float, float]:
    """Train with PyTorch; return the validation accuracy at the end, and the seconds taken."""
    train, valid = (
        load_split(config.data.source, split, seed, config.data.options) for split in (TRAIN, VALID)
    )
    x, y = train.field("pixels").values, train.field("label").values
    parameters = torch_models.random_parameters(_shapes(config, x.shape[1]), seed)
    size = config.training.update_every
    schedule = make_lr_schedule(config.node_defaults()["lr_schedule"])
    n_steps = config.training.max_epochs * -(-len(train) // size)
    factors = [schedule.at(step * size) for step in range(n_steps)]
    batches = (
        (x[rows], y[rows])
        for epoch in range(1, config.training.max_epochs + 1)
        for rows in np.split(train.order(seed, epoch), range(size, len(train), size))
    )
    started = time.monotonic()
    trained = torch_models.train_steps(
        torch_models.MLP,
        parameters,
        batches,
        config.training.optimizer.name,
        config.training.optimizer.options,
        "float32",
        factors,
    )
    held_out = (valid.field("pixels").values, valid.field("label").values)
    accuracy = torch_models.accuracy(torch_models.MLP, trained, held_out, "float32")
    return accuracy, time.monotonic() - started


def _shapes(config: Config, n_pixels: int) -> dict[str, tuple[int, int]]:
    """Return the shape of each weight, as `models.mlp` has them."""
    defaults = inspect.signature(mlp.build).parameters
    given = {name: p.default for name, p in defaults.items()} | config.model.options
    widths = [n_pixels, *given["hidden"], given["classes"]]
    return {
        f"linear-{number}": shape
        for number, shape in enumerate(itertools.pairwise(widths), start=1)
    }


def main() -> None:
    config_file, seeds, *settings = sys.argv[1:]
    config = load_config(config_file, settings)
    threads = torch.get_num_threads()
    print(f"{config_file} {' '.join(settings)}: {config.training.max_epochs} epochs; PyTorch with")
    print(f"{threads} thread{'s'[: threads > 1]} (set OMP_NUM_THREADS for another number)\n")
    print("| seed | ours, asynchronous | seconds | staleness | PyTorch | seconds |")
    print("|---|---|---|---|---|---|")
    rows = []
    for seed in map(int, seeds.split()):
        ours = run_seed(config_file, seed, settings)
        accuracy, seconds = torch_run(config, seed)
        rows.append((ours.accuracy, ours.seconds, ours.staleness, accuracy, seconds))
        print(_line(str(seed), rows[-1]), flush=True)
    mean = tuple(map(statistics.fmean, zip(*rows, strict=True)))
    print(_line("mean", mean))
    print(f"\nours is {100 * (mean[0] - mean[3]):+.2f} points from PyTorch")


def _line(name: str, row: tuple[float, ...]) -> str:
    ours, seconds, staleness, peer, peer_seconds = row
    return (
        f"| {name} | {ours:.4f} | {seconds:.0f} | {staleness:.1f} | {peer:.4f} | "
        f"{peer_seconds:.0f} |"
    )


if __name__ == "__main__":
    main()
