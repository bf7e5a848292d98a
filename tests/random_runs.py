"""Random graphs as hypothesis draws them, and runs of them under any delivery."""

from __future__ import annotations

import random
from typing import Any

import random_graphs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from random_graphs import ELEMENTWISE, STEPS, Maker
from scripted import Delivery, ScriptedRun

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.data.dataset import Dataset
from amp_runtime.graph.wiring import Wiring
from amp_runtime.nodes.updates import Schedule
from amp_runtime.reference import Reference
from amp_runtime.rows.spec import Array
from workers.registry import Registry

N_TRAIN, N_VALID, UPDATE_EVERY = 6, 3, 3

recipes = st.lists(
    st.tuples(
        st.integers(0, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 5), st.integers(1, 3)
    ),
    max_size=9,
)
ROUND = next(n for n in range(len(STEPS), len(STEPS) + 6) if n % 2 and n % 3)
"""Each step twice, with numbers that differ modulo 2 and 3: both forms of those that have two."""
EVERYTHING = [
    *((n % ROUND, 7 * n, n, 1 + n % 3) for n in range(2 * ROUND) if n % ROUND < len(STEPS)),
    *((STEPS.index(Maker.add_elementwise), n, n, 1) for n in range(len(ELEMENTWISE))),
]
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], print_blob=True)


def run_settings(schedule=Schedule.SYNCHRONOUS, **options: Any) -> ControllerSettings:
    return ControllerSettings(
        **{"schedule": schedule, "update_every": UPDATE_EVERY, "seed": 11, **options}
    )


def placed(wiring: Wiring, seed: int) -> list[int]:
    """Return random peers for all nodes; every peer from 1 on has one."""
    generator, n = random.Random(seed), len(wiring.nodes)
    n_peers = generator.randint(1, n)
    peers = [*range(1, n_peers + 1), *(generator.randint(1, n_peers) for _ in range(n - n_peers))]
    generator.shuffle(peers)
    return peers


def data(seed: int) -> tuple[Dataset, Dataset]:
    """Return examples to train on and to validate with."""
    return random_graphs.examples(N_TRAIN, seed), random_graphs.examples(N_VALID, seed + 1)


def initial_parameters(wiring: Wiring, given: ControllerSettings) -> dict[str, dict[str, Array]]:
    """Return the parameters that the nodes of any run start with."""
    fresh = Reference(wiring, Registry(), *data(0), given)
    return {node.name: dict(node.parameters) for node in fresh.host.parameterised()}


def scripted(
    wiring: Wiring,
    given: ControllerSettings,
    seed: int,
    delivery: Delivery,
    *,
    data_seed: int = 0,
) -> ScriptedRun:
    """Return a run over hosts that has come to its end, with all that must hold asserted."""
    run = ScriptedRun.of(
        wiring,
        *data(data_seed),
        given,
        placed(wiring, seed),
        seed=seed,
        delivery=delivery,
    )
    flight = run.controller.in_flight

    def check() -> None:
        assert flight.instances <= given.max_active_keys
        assert flight.rows <= flight.max_rows or flight.instances == 1

    run.after_event = check
    run.run()
    flight.assert_drained()
    run.controller.assert_invariants()
    for host in run.hosts.values():
        host.assert_invariants()
        assert (host.arena.live, host.parked_rows, host.idle) == (0, 0, True)
        for node in host.nodes.values():
            assert node.stash.open_positions().tolist() == []
    trained = sum(r.examples for r in run.results if r.split == "train")
    assert trained == N_TRAIN * given.max_epochs
    assert all(r.complete for r in run.results)
    return run
