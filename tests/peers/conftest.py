"""PyTorch starts no thread while a test runs: none is taken for one that the test left behind."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_new_threads_of_torch() -> None:
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)  # else a pool is started by the first large array of any test
        torch.ones(1, requires_grad=True).sum().backward()
