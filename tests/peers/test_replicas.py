"""Replicas step with the sum of their gradients: any number of them equals autograd."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from runs import Runner
from safetensors.numpy import load_file

pytest.importorskip("torch", reason="PyTorch is not installed (make peers)")

from amp_runtime.commands import node_kinds
from amp_runtime.config.schema import load_config
from amp_runtime.prepare import prepare
from amp_runtime.reference import Reference
from tests.peers import test_equality as equality

pytestmark = pytest.mark.peers
_torch_has_its_threads = equality._torch_has_its_threads

CASES = [
    *(("rnn", optimizer) for optimizer in equality.OPTIMIZERS),
    ("mlp", "adam"),
    ("ggsnn_node", "sgd"),
    ("tree_lstm", "adam", "stashed"),
    ("child_sum", "adam", "recompute"),
]
N_REPLICAS = (2, 3)


def replicas(case: equality.Case, n: int) -> list[str]:
    """Return settings that give each node with parameters `n` replicas."""
    return [f"nodes.{name}.replicas={n}" for name in case.prepared.wiring.parameterised]


@pytest.mark.parametrize("which", CASES, ids="-".join)
def test_reference_with_replicas_of_every_node_equals_autograd(
    which: Sequence[str], runner: Runner
):
    case = equality.case_of(tuple(which), runner)
    for n in N_REPLICAS:
        prepared = prepare(load_config(case.config, replicas(case, n)), node_kinds())
        finished = Reference(
            prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
        ).run()
        for node in (node for node in prepared.wiring.nodes if node.parameterised):
            assert node.replicas == n
            assert finished.reports[1].nodes[node.name].updates == equality.UPDATES
        equality.assert_equal(equality.flat(finished.parameters), case)


@pytest.mark.process
@pytest.mark.parametrize("placement", ["process_per_node", "packed"])
@pytest.mark.parametrize("n", N_REPLICAS)
@pytest.mark.parametrize("which", [("rnn", "adam"), ("tree_lstm", "sgd", "stashed")], ids="-".join)
def test_processes_with_replicas_equal_autograd(
    which: Sequence[str], n: int, placement: str, runner: Runner
):
    case = equality.case_of(tuple(which), runner)
    settings = [f"runtime.placement={placement}", *replicas(case, n)]
    ended = runner.run(case.config, *settings, timeout_s=120)
    assert ended.code == 0, ended.err
    equality.assert_equal(load_file(runner.last.folder / "parameters.safetensors"), case)
