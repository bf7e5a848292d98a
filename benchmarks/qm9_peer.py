"""QM9: our asynchronous run beside PyTorch, the same network trained synchronously.

    AMP_DATA=... python benchmarks/qm9_peer.py RESULTS SEEDS [key=value ...]
    make qm9-peer

Both train the network of configs/qm9.yaml for 3 epochs, from the same initial weights, on the
same molecules in the same order of each epoch, as many an update, by the config's optimizer,
the gradient of each node (layer) clipped by itself. PyTorch has the molecules of an update as
one graph, block-diagonal, and 2 threads at most (OMP_NUM_THREADS=1: one). Printed is the error
ratio on the molecules that are held out: mean absolute error over the accuracy that chemists
ask for.

RESULTS is a file of JSON lines, one a finished run; those that it holds are not run again.
`PEERS=pytorch` (or `ours`) in the environment runs one of the two. Needs PyTorch (make peers).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

# Threads of PyTorch that wait give up their core: spinning they keep each other from it where
# others are at work too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch

from amp_runtime.commands import node_kinds
from amp_runtime.config.schema import load_config
from amp_runtime.prepare import Prepared, prepare
from amp_runtime.reference import Reference
from benchmarks.results_file import ResultsFile
from benchmarks.seeds import run_seed
from tests.peers.torch_models import Parameters, peer_of
from tests.peers.torch_molecules import MoleculeGGSNN, graph_batch, mean_absolute_error

CONFIG = str(Path(__file__).parent.parent / "configs" / "qm9.yaml")
EPOCHS, THREADS = 3, 2
Epochs = list[dict[str, float]]
"""Of each epoch: `error_ratio` at its end, `seconds` of training."""


def ours(seed: int, settings: Sequence[str]) -> Epochs:
    result = run_seed(CONFIG, seed, list(settings))
    train = [stage for stage in result.stages if stage["split"] == "train"]
    return [
        {"error_ratio": valid["error_ratio"], "seconds": stage["seconds"],
         "staleness": stage["staleness"]}
        for stage, valid in zip(train, result.valid, strict=True)
    ]  # fmt: skip


def pytorch(seed: int, settings: Sequence[str]) -> Epochs:
    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    config = load_config(CONFIG, [*settings, f"seed={seed}"])
    prepared = prepare(config, node_kinds())
    net = MoleculeGGSNN(_initial(prepared), torch.float32)
    net.steps = config.model.options["steps"]
    cls, options = peer_of(config.node_defaults()["optimizer"])
    stepper = cls(net.parameters(), **options)
    clip, size = config.training.clip, config.training.update_every
    assert isinstance(clip, dict), "PyTorch clips as the config does: by norm"
    scale = prepared.valid.about.scales["target"]["error_ratio"]
    epochs: Epochs = []
    for epoch in range(1, config.training.max_epochs + 1):
        order = prepared.train.order(seed, epoch)
        started = time.monotonic()
        for examples in np.split(order, range(size, len(order), size)):
            stepper.zero_grad()
            net.loss(graph_batch(prepared.train, examples)).backward()
            for node in net.nodes.values():
                torch.nn.utils.clip_grad_norm_(node.parameters(), clip["norm"])
            stepper.step()
        seconds = time.monotonic() - started
        error = scale * mean_absolute_error(net, prepared.valid)
        epochs.append({"error_ratio": error, "seconds": seconds})
        print(f"PyTorch, seed {seed}, epoch {epoch}: {error:.3f}, {seconds:.0f} s", file=sys.stderr)
    return epochs


PEERS: dict[str, Callable[[int, Sequence[str]], Epochs]] = {"ours": ours, "pytorch": pytorch}


def _initial(prepared: Prepared) -> Parameters:
    """Return the parameters that our nodes begin with."""
    reference = Reference(
        prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
    )
    return {node.name: dict(node.parameters) for node in reference.host.parameterised()}


def main() -> None:
    file, seeds, *given = sys.argv[1:]
    results, settings = ResultsFile(Path(file)), [f"training.max_epochs={EPOCHS}", *given]
    peers = os.environ.get("PEERS", " ".join(PEERS)).split()
    for seed in map(int, seeds.split()):
        for peer in peers:
            key = {"peer": peer, "seed": seed, "settings": settings}
            results.get(key, lambda p=peer, s=seed: {"epochs": PEERS[p](s, settings)})
    done = results.lines(settings=settings)
    print(table({(line["peer"], line["seed"]): line["epochs"] for line in done}))


def table(done: dict[tuple[str, int], Epochs]) -> str:
    """Return error ratios by seed and epoch as Markdown, and how far ours is from PyTorch's."""
    lines = ["| | seed | error ratio by epoch | seconds an epoch |", "|---|---|---|---|"]
    last: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for (peer, seed), epochs in sorted(done.items()):
        ratios = ", ".join(f"{epoch['error_ratio']:.3f}" for epoch in epochs)
        seconds = statistics.fmean(epoch["seconds"] for epoch in epochs)
        lines.append(f"| {peer} | {seed} | {ratios} | {seconds:.0f} |")
        last[peer].append(epochs[-1]["error_ratio"])
    means = {peer: statistics.fmean(values) for peer, values in last.items() if values}
    lines += [f"| {peer} | mean | {mean:.3f} | |" for peer, mean in means.items()]
    if len(means) == len(PEERS):
        far = 100 * (means["ours"] / means["pytorch"] - 1)
        lines += ["", f"the error ratio of ours is {far:+.1f} % from PyTorch's"]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
