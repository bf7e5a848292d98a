"""PyTorch's own threads are there before a test begins, so that none is taken for left behind."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="session", autouse=True)
def threads_of_autograd() -> None:
    if importlib.util.find_spec("torch"):
        import torch

        torch.ones(1, requires_grad=True).sum().backward()
