"""One peer at one experiment, in a process of its own: prints its rates as a line of JSON.

    python -m benchmarks.contestant JSON

JSON: {"config", "settings", "contestant": of experiments.py, "warm_up_s", "seconds"}. Data is
read and every batch made before the clock starts; it goes over the same ones again and again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

if __name__ == "__main__":
    GIVEN: Mapping[str, Any] = json.loads(sys.argv[1])
    N_THREADS = 2 if GIVEN["contestant"]["cores"] == "2 threads" else 1
    # Read when a library is loaded.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(N_THREADS)

import numpy as np

from amp_runtime.commands import node_kinds
from amp_runtime.config.schema import load_config
from amp_runtime.data.dataset import Dataset
from amp_runtime.prepare import Prepared, prepare
from amp_runtime.reference import Reference
from benchmarks.experiments import EAGER

MOST_EXAMPLES = 20_000
"""Prepared batches lie in memory; more examples than these are as many again."""


def initial(prepared: Prepared) -> dict[str, dict[str, np.ndarray]]:
    """Return the parameters that our nodes begin with."""
    reference = Reference(
        prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
    )
    return {node.name: dict(node.parameters) for node in reference.host.parameterised()}


def batches(data: Dataset, size: int) -> list[np.ndarray]:
    """Return batches of examples in random order; of sequences, those of one length together."""
    order = data.order(0, 1)[:MOST_EXAMPLES]
    if "tokens" in data.fields:
        from benchmarks.peers.sequences import of_one_length

        return of_one_length(data, order, size)
    return [order[i : i + size] for i in range(0, len(order), size)]


def pytorch(prepared: Prepared, given: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a model of PyTorch, or of PyTorch Geometric."""
    import torch

    from benchmarks.peers.model import PeerModel, prepare_steps
    from benchmarks.peers.one_process import OneProcess
    from benchmarks.peers.rates import rates
    from benchmarks.peers.two_processes import HalfOfTwo
    from benchmarks.peers.updating import Rule

    contestant = given["contestant"]
    torch.set_num_threads(2 if contestant["cores"] == "2 threads" else 1)
    model: type[PeerModel] = _model(given["experiment"], contestant)
    net = model(initial(prepared), torch.float32)
    options = {"one_by_one": contestant["way"] in EAGER}
    of_train, of_valid = (batches(d, contestant["size"]) for d in (prepared.train, prepared.valid))
    rule = Rule.of(prepared.config)

    def measure(trainer: OneProcess) -> dict[str, Any]:
        rank, of = trainer.rank, trainer.of
        train = prepare_steps(model, prepared.train, of_train, rank=rank, of=of, **options)
        valid = prepare_steps(model, prepared.valid, of_valid[rank::of], **options)
        return rates(trainer, train, valid, given["warm_up_s"], given["seconds"])

    if contestant["cores"] != "2 processes":
        return measure(OneProcess(net, rule))
    words = [model.words_of(prepared.train, examples) for examples in of_train]
    both = HalfOfTwo(net, rule, max(len(some) if some is not None else 0 for some in words))
    both.start_second(lambda: measure(both))
    found = measure(both)
    both.wait_for_second()
    return found


def _model(experiment: str, contestant: Mapping[str, Any]) -> Any:
    """Return the class of a contestant."""
    from benchmarks.peers import images, molecules, sequences, trees

    if contestant["who"] == "geometric":
        from benchmarks.peers.pyg_molecules import ByGeometric

        return ByGeometric
    return {
        ("trees", "by level"): trees.ByLevel,
        ("trees", "branch by branch"): trees.ByBranch,
        ("sequences", "by step"): sequences.ByStep,
        ("sequences", "by module"): sequences.ByModule,
        ("sequences", "one at a time"): sequences.ByStep,
        ("images", "batches"): images.Perceptron,
        ("images", "one at a time"): images.Perceptron,
        ("molecules", "block-diagonal"): molecules.ByHand,
        ("molecules", "one at a time"): molecules.ByHand,
    }[experiment, contestant["way"]]


def dynet(prepared: Prepared, given: Mapping[str, Any]) -> dict[str, Any]:
    """Measure DyNet."""
    from benchmarks.peers.clock import timed
    from benchmarks.peers.dynet_trees import DynetTrees, trees_of
    from benchmarks.peers.options import optimizer_of

    net = DynetTrees(initial(prepared), optimizer_of(prepared.config))
    size, seconds = given["contestant"]["size"], given["seconds"]
    train, valid = (
        [trees_of(data, examples) for examples in batches(data, size)]
        for data in (prepared.train, prepared.valid)
    )
    timed(net.update, train, len, given["warm_up_s"])
    n, taken = timed(net.update, train, len, seconds)
    timed(net.evaluate, valid, len, given["warm_up_s"] / 2)
    n_evaluated, took = timed(net.evaluate, valid, len, seconds)
    return {"train_per_s": n / taken, "evaluate_per_s": n_evaluated / took, "examples": n}


def main(given: Mapping[str, Any]) -> None:
    prepared = prepare(load_config(given["config"], given["settings"]), node_kinds())
    peer = dynet if given["contestant"]["who"] == "dynet" else pytorch
    print(json.dumps(peer(prepared, given)))


if __name__ == "__main__":
    main(GIVEN)
