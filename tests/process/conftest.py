import pytest


@pytest.fixture(autouse=True)
def _nothing_left(nothing_left: str) -> None:
    """Every test here leaves nothing behind."""
