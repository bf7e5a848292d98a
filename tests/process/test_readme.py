"""The README's own model and data run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str, first: str) -> str:
    """Return the code block of `language` that begins with `first`."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [text for text in blocks if text.startswith(first)]
    return found


def test_the_example_of_ones_own_model_and_data_reaches_its_target(runner):
    (runner.home / "parity.py").write_text(block("python", "import numpy"))
    config = runner.home / "parity.yaml"
    config.write_text(block("yaml", "name: parity"))
    ended = runner.run(config, timeout_s=110)
    assert ended.code == 0
    assert "target reached: accuracy" in ended.out


def test_the_readme_opens_with_the_two_commands():
    assert re.search(r"```\nmake run .*\nmake test ", README[:200])


def test_every_link_into_the_repository_leads_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 5
    assert [link for link in links if not (Path(__file__).parents[2] / link).exists()] == []
