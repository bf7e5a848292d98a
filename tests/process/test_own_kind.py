"""A parameterised kind of a user's own, in a file beside the config, is a kind like ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.process


@pytest.fixture
def config(runner):
    shutil.copy(Path(__file__).with_name("own_kinds.py"), runner.home)
    return runner.config(
        model={"builder": "own_kinds:build"},
        data={"source": "own_kinds:examples"},
        training={
            "optimizer": {"name": "sgd", "lr": 0.1},
            "update_every": 10,
            "max_epochs": 10,
        },
        dtype="float64",
        verify=True,
    )


def test_it_trains_in_a_process_of_its_own_and_its_parameters_are_saved(runner, config):
    ended = runner.run(config)
    assert ended.code == 0, ended.err
    found = load_file(runner.last.folder / "parameters.safetensors")
    # The data are 3 * x - 1, without noise.
    np.testing.assert_allclose(found["affine.factor"], [3], atol=1e-3)
    np.testing.assert_allclose(found["affine.shift"], [-1], atol=1e-3)
    assert "kinds=own_kinds:Affine" in runner.last.log("affine")


def test_its_options_come_from_the_config_and_are_checked_as_ours_are(runner, config):
    frozen = ("nodes.affine.optimizer={name: sgd, lr: 1e-9}", "nodes.affine.factor=2.5")
    ended = runner.run(config, *frozen)
    assert ended.code == 0, ended.err
    found = load_file(runner.last.folder / "parameters.safetensors")
    np.testing.assert_allclose(found["affine.factor"], [2.5], atol=1e-4)
    for setting, said in (
        ("nodes.affine.factor=-1", r"factor"),
        ("nodes.affine.factr=1", "did you mean 'factor'"),
    ):
        ended = runner.run(config, setting)
        assert ended.code == 78
        assert said in ended.last_line
        assert "affine" in ended.last_line
