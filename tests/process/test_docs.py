"""The programs of the tutorials run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["illness", "counting"])
def test_the_graphs_of_ones_own_reach_their_target(name, runner):
    data, model, counting = blocks("your_own_graphs.md", "python")
    (runner.home / "illness.py").write_text(f"{data}\n\n{model}")
    (runner.home / "counting.py").write_text(counting)
    (config,) = [y for y in blocks("your_own_graphs.md", "yaml") if y.startswith(f"name: {name}")]
    (runner.home / f"{name}.yaml").write_text(config)
    ended = runner.run(runner.home / f"{name}.yaml", timeout_s=110)
    assert (ended.code, ended.err) == (0, "")
    assert "target reached" in ended.out


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (DOCS / page).read_text())
    assert [link for link in links if not (DOCS / link).exists()] == []
