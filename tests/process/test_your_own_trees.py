"""The program of docs/your_own_trees.md runs as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runs import PACKED, environment

pytestmark = pytest.mark.process
PAGE = Path(__file__).parents[2] / "docs/your_own_trees.md"
CHILD_SUM = ["model.builder=child_sum", "model.types=5", "model.classes=2", "model.hidden=16"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def config(runner) -> Path:
    """Save the blocks as the page says, and write the formulas."""
    program = runner.home / "formulas.py"
    program.write_text("\n\n".join(blocks("python")))
    (yaml,) = blocks("yaml")
    (runner.home / "formulas.yaml").write_text(yaml)
    with (runner.home / "formulas.jsonl").open("w") as lines:
        command = [sys.executable, str(program)]
        subprocess.run(command, stdout=lines, check=True, env=environment(), timeout=60)
    return runner.home / "formulas.yaml"


@pytest.mark.timeout(300)
def test_the_program_reaches_its_target(config, runner):
    data = f"data.path={runner.home / 'formulas.jsonl'}"
    ended = runner.run(config, data, PACKED, timeout_s=280)
    assert ended.code == 0, ended.err
    assert "target reached: accuracy" in ended.out
    new = runner.home / "new.txt"
    formulas = [["and", "true", ["not", "true"]], ["or", ["not", "false"], "false"]]
    new.write_text("".join(json.dumps({"formula": formula}) + "\n" for formula in formulas))
    words = str(runner.last.folder), str(new), "reader=formulas:new_formulas"
    told = subprocess.run(
        [sys.executable, "-m", "amp_runtime", "predict", *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert told.returncode == 0, told.stderr
    labels = [json.loads(line)["label"] for line in told.stdout.splitlines()]
    assert labels == [0, 1], told.stdout


@pytest.mark.timeout(300)
def test_the_same_trees_go_through_the_ready_model(config, runner):
    ended = runner.run(
        config,
        f"data.path={runner.home / 'formulas.jsonl'}",
        "data.source=formulas:typed_examples",
        *CHILD_SUM,
        PACKED,
        "training.max_examples=400",
        timeout_s=280,
    )
    assert ended.code == 0, ended.err
    assert runner.last.stages()[-1]["split"] == "valid"


def test_a_wrong_tree_is_refused_by_file_and_line_before_anything_starts(config, runner):
    lines = [json.dumps({"formula": "true", "is": True})] * 3
    (runner.home / "formulas.jsonl").write_text("\n".join(lines))
    program = runner.home / "formulas.py"
    program.write_text(program.read_text().replace("parents.append(parent)", "parents.append(0)"))
    ended = runner.run(config, f"data.path={runner.home / 'formulas.jsonl'}")
    assert ended.code != 0
    assert "formulas.jsonl:2: a tree has no root" in ended.last_line


def test_every_link_of_the_page_leads_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", PAGE.read_text())
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
