"""What `make bench` measures: experiments, and who takes part in each."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MODULES = {"pytorch": "torch", "geometric": "torch_geometric", "dynet": "dynet_config"}
"""What a peer needs to be installed."""

CALLED = {"pytorch": "PyTorch", "geometric": "PyTorch Geometric", "dynet": "DyNet"}


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who takes part, and how.

    Attributes:
        who: `ours`, `pytorch`, `geometric` or `dynet`.
        way: of ours a placement; of a peer a model in benchmarks/peers.
        size: examples of an update of a peer; of ours `max_active_keys`, 0: as the config says.
        cores: `1 thread`, `2 threads`, `2 processes`; of ours always both.
    """

    who: str
    way: str
    size: int
    cores: str = ""

    @property
    def name(self) -> str:
        if self.who == "ours":
            return f"ours, {self.way}{f', {self.size} in flight' if self.size else ''}"
        return f"{CALLED[self.who]}, {self.way}, {self.size} an update, {self.cores}"

    @property
    def is_batched_by_hand(self) -> bool:
        return self.who in ("pytorch", "geometric") and not self.is_eager

    @property
    def is_eager(self) -> bool:
        """Whether it computes one example at a time."""
        return self.way in EAGER

    @property
    def missing(self) -> str:
        """The module that it lacks; '': none."""
        module = MODULES.get(self.who)
        return "" if module is None or importlib.util.find_spec(module) else module

    def plain(self) -> dict[str, Any]:
        return asdict(self)


EAGER = ("one at a time", "branch by branch")
CORES = ("1 thread", "2 threads", "2 processes")
PLACEMENTS = ("process_per_node", "packed")


@dataclass(frozen=True, slots=True)
class Experiment:
    """A model and data.

    Attributes:
        config: in configs/.
        settings: of all who take part: those that make an epoch short.
        ways: of PyTorch: {way: sizes of an update}.
        others: of other peers: (who, way, size, cores).
        in_flight: of ours, beside what the config says.
        epochs: of ours, the first of which is warm-up.
        needs: a file or folder in AMP_DATA, '' for none.
    """

    config: str
    settings: Sequence[str]
    ways: Mapping[str, Sequence[int]]
    others: Sequence[tuple[str, str, int, str]] = ()
    in_flight: Sequence[int] = (0,)
    epochs: int = 3
    needs: str = ""

    def contestants(self) -> list[Contestant]:
        ours = [Contestant("ours", p, keys) for keys in self.in_flight for p in PLACEMENTS]
        by_hand = [
            Contestant("pytorch", way, size, cores)
            for way, sizes in self.ways.items()
            for size in sizes
            for cores in CORES
        ]
        return [*ours, *by_hand, *(Contestant(*other) for other in self.others)]


EXPERIMENTS: Mapping[str, Experiment] = {
    "trees": Experiment(
        "sentiment.yaml",
        ["data.valid=1000"],
        {"by level": (25, 100), "branch by branch": (25,)},
        [("dynet", "autobatch", size, "1 thread") for size in (25, 100)],
        in_flight=(16, 64),
        needs="sst",
    ),
    "sequences": Experiment(
        "list_reduction.yaml",
        ["data.train=50000", "data.valid=5000"],
        {"by step": (100,), "by module": (100,), "one at a time": (100,)},
    ),
    "images": Experiment(
        "fashion_mnist.yaml",
        ["data.train=20000", "data.valid=5000"],
        {"batches": (100,), "one at a time": (100,)},
        needs="fashion_mnist",
    ),
    "molecules": Experiment(
        "qm9.yaml",
        ["data.train=4000", "data.valid=1000"],
        {"block-diagonal": (20,), "one at a time": (20,)},
        [("geometric", "block-diagonal", 20, cores) for cores in CORES],
        needs="qm9",
    ),
}
