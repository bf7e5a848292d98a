"""Whole numbers that are counted while workers are killed at random (`make chaos` kills 200)."""

from __future__ import annotations

import pytest
from chaos import survive

pytestmark = pytest.mark.fault


def test_each_example_counts_once_an_epoch_whatever_is_killed(runner):
    assert "counted once each" in survive(runner, kills=4, seed=1)
