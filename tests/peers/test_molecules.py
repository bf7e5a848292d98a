"""Our gated graph network of molecules is PyTorch's: loss, gradients, error, clipped updates."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("torch", reason="PyTorch is not installed (make peers)")

import torch

from amp_runtime.commands import node_kinds
from amp_runtime.config.schema import load_config
from amp_runtime.prepare import Prepared, prepare
from amp_runtime.reference import Reference
from tests.peers.torch_models import loss_and_gradients, train_steps
from tests.peers.torch_molecules import MoleculeGGSNN, graph_batch, mean_absolute_error
from tests.pure.test_qm9 import SMALL

pytestmark = pytest.mark.peers
ARCHIVE = Path(os.environ.get("AMP_DATA", ""), "qm9", "qm9_graphs.npz")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def made(tmp_path, request):
    """Prepare QM9's own config, on four molecules made by hand or on real ones."""

    real = request.param

    def build(n_train: int, dtype: str, **training: object) -> Prepared:
        path = ARCHIVE
        if not real:
            path = tmp_path / "four.npz"
            np.savez(path, **SMALL)
            n_train = 4
        elif not path.is_file():
            pytest.skip("AMP_DATA/qm9/qm9_graphs.npz is not there")
        config = {
            "name": "molecules",
            "model": {"builder": "ggsnn_graph", "hidden": 100, "steps": 4},
            "data": {
                "source": "qm9", "path": str(path), "train": n_train,
                "valid": 30 if real else 0, "batch": 5,
            },
            "dtype": dtype,
            "seed": 3,
            "training": {"schedule": "synchronous", "max_epochs": 1, **training},
        }  # fmt: skip
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        return prepare(load_config(tmp_path / "config.yaml"), node_kinds())

    return build


def reference(prepared: Prepared) -> Reference:
    return Reference(
        prepared.wiring, node_kinds(), prepared.train, prepared.valid, prepared.settings
    )


def initial(prepared: Prepared) -> dict[str, dict[str, np.ndarray]]:
    return {
        node.name: {name: array.copy() for name, array in node.parameters.items()}
        for node in reference(prepared).host.parameterised()
    }


# Of the four one is a single atom without a bond.
@pytest.mark.parametrize("made", [False, True], indirect=True, ids=["by hand", "real"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_loss_and_gradients_of_some_molecules_are_those_of_pytorch(made, dtype, tolerance):
    n = 25
    prepared = made(n, dtype, update_every=n, optimizer={"name": "sgd", "lr": 1.0})
    real = len(prepared.train) == n
    start, run = initial(prepared), reference(prepared)
    after = run.run().parameters
    batch = graph_batch(prepared.train, np.arange(len(prepared.train)))
    loss, wanted = loss_and_gradients(MoleculeGGSNN, start, batch, dtype)
    assert run.results[0].metrics["loss"] == pytest.approx(loss, rel=tolerance)
    for node, arrays in start.items():
        for name, array in arrays.items():
            # The step is the gradient: lr is 1. In float32 its rounding is the parameter's.
            step = array.astype(np.float64) - after[node][name]
            scale = np.linalg.norm(wanted[node][name])
            rounding = np.linalg.norm(array) * np.finfo(dtype).eps
            far = np.linalg.norm(step - wanted[node][name])
            assert far <= tolerance * scale + rounding, (node, name)
            # No molecule made by hand has an aromatic bond.
            assert np.any(step) or (not real and node == "message-3"), (node, name)


@pytest.mark.parametrize("made", [True], indirect=True)
def test_clipped_updates_and_the_error_are_those_of_pytorch(made):
    n, size = 60, 20
    adam = {"name": "adam", "lr": 0.001}
    prepared = made(n, "float64", update_every=size, optimizer=adam, clip={"norm": 1.0})
    start, run = initial(prepared), reference(prepared)
    finished = run.run()
    order = prepared.train.order(prepared.settings.seed, 1)
    steps = [graph_batch(prepared.train, order[at : at + size]) for at in range(0, n, size)]
    wanted = train_steps(
        MoleculeGGSNN, start, steps, "adam", {"lr": 0.001}, "float64", clip_norm=1.0
    )
    assert sum(report.clipped or 0 for report in finished.reports[1].nodes.values()) > 0
    for node, arrays in wanted.items():
        for name, array in arrays.items():
            ours = finished.parameters[node][name]
            assert np.abs(ours - array).max() <= 1e-8 * np.abs(array).max(), (node, name)
    net = MoleculeGGSNN(wanted, torch.float64)
    error = mean_absolute_error(net, prepared.valid, at_once=7)
    scale = prepared.valid.about.scales["target"]["error_ratio"]
    metrics = run.results[1].metrics
    assert metrics["absolute_error"] == pytest.approx(error, rel=1e-8)
    assert metrics["error_ratio"] == pytest.approx(scale * error, rel=1e-8)
