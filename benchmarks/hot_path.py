"""What a merged batch costs in a node, by kind, and what a message costs on its way.

    python benchmarks/hot_path.py [EXAMPLES [REPEATS]]

Nodes: a binary Tree-LSTM on random trees, 16 in flight, in one process without sockets.
Messages: rows of 256 floats from one endpoint to another, 4 messages at a time. Medians of repeats
that take turns.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from amp_runtime.config.schema import load_config
from amp_runtime.prepare import prepare
from amp_runtime.reference import Reference
from amp_runtime.rows.message import Direction, Message, Mode
from amp_runtime.sockets import shared_memory
from amp_runtime.sockets.directory import SocketDirectory
from amp_runtime.sockets.peer_link import PeerLink
from amp_runtime.sockets.shared_memory import SharedRings
from amp_runtime.sockets.transport import Endpoint
from amp_runtime.wire.ledger import Lane
from workers.registry import Registry

CONFIG = """
name: hot_path
model: {builder: tree_lstm, vocabulary: 1000, classes: 5}
data: {source: "hot_path:examples", batch: 1}
training:
  max_active_keys: 16
  update_every: 25
  optimizer: {name: adagrad, lr: 0.05}
  max_epochs: 1
"""
AT_ONCE, MESSAGES, ROWS = 4, 800, (13, 100, 800)


def examples(split: str, seed: int, *, train: int = 100) -> Iterator[dict[str, Any]]:
    """Yield binary trees of 10 to 30 leaves, neighbours joined in random order."""
    generator = np.random.default_rng([seed, split == "valid"])
    for _ in range(train if split == "train" else 0):
        n = int(generator.integers(10, 31))
        roots, parent, side = list(range(n)), np.zeros(2 * n - 1, int), np.zeros(2 * n - 1, int)
        for node in range(n, 2 * n - 1):
            at = int(generator.integers(len(roots) - 1))
            parent[roots[at : at + 2]], side[roots[at + 1]] = node, 1
            roots[at : at + 2] = [node]
        yield {
            "token": generator.integers(0, 1000, n),
            "leaf": np.arange(n),
            "parent": parent,
            "side": side,
            "is_root": np.arange(2 * n - 1) == 2 * n - 2,
            "label": generator.integers(0, 5, 2 * n - 1),
        }


def nodes(n_examples: int) -> dict[str, float]:
    """Return the microseconds of a batch in each node, and over all with the host."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(CONFIG + f"folder: {Path(__file__).parent}\n")
        prepared = prepare(load_config(path, [f"data.train={n_examples}"]), Registry())
    reference = Reference(
        prepared.wiring, Registry(), prepared.train, prepared.valid, prepared.settings
    )
    began = time.thread_time()
    reference.run()
    total = time.thread_time() - began
    reports = reference.host.report().nodes
    taken = {name: 1e6 * node.busy_s / node.batches for name, node in reports.items()}
    return taken | {"all, host included": 1e6 * total / sum(n.batches for n in reports.values())}


def message(n_rows: int, *, shared: bool) -> float:
    """Return the CPU microseconds of a message, of both ends with libzmq's threads."""
    x = np.zeros((n_rows, 128), np.float32)
    columns = np.zeros((n_rows, 5), np.int32)
    sent = Message(Direction.FORWARD, Mode.TRAIN, 3, columns, {"h": x, "c": x})
    directory, channels = SocketDirectory.create(3), [(1, 2, Lane.FORWARD)]
    fd = shared_memory.create(1)
    rings = [SharedRings(fd, channels, peer) if shared else None for peer in (1, 2)]
    with Endpoint(directory, 1) as one, Endpoint(directory, 2) as two:
        one.connect(2, lanes=[Lane.FORWARD])
        one.wait_linked(10)
        sender, receiver = (
            PeerLink(end, "0" * 32, {1: 0, 2: 0}, rings=ring)
            for end, ring in zip((one, two), rings, strict=True)
        )
        began = time.process_time()
        for _ in range(MESSAGES // AT_ONCE):
            for _ in range(AT_ONCE):
                sender.send_message(2, sent)
            left = AT_ONCE
            while left:
                for lane in two.poll(10).lanes:
                    left -= len(list(receiver.receive(lane, AT_ONCE)))
        taken = time.process_time() - began
    for ring in filter(None, rings):
        ring.close()
    os.close(fd)
    directory.remove()
    return 1e6 * taken / MESSAGES


def messages() -> dict[str, float]:
    return {
        f"a message of {n_rows} rows through {'shared memory' if shared else 'sockets'}": message(
            n_rows, shared=shared
        )
        for n_rows in ROWS
        for shared in (False, True)
    }


def main() -> None:
    n_examples, repeats = (int(a) for a in (*sys.argv[1:], *("100", "3")[len(sys.argv) - 1 :]))
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        for what, microseconds in (nodes(n_examples) | messages()).items():
            taken[what].append(microseconds)
    print("| CPU of | us, median | least |\n|---|---|---|")
    for what, values in taken.items():
        print(f"| {what} | {median(values):.1f} | {min(values):.1f} |")


if __name__ == "__main__":
    main()
