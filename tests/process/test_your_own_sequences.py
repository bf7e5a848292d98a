"""The programs of docs/your_own_sequences.md run as they stand there, and predict."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runs import PACKED, Ended, environment

pytestmark = pytest.mark.process
PAGE = Path(__file__).parents[2] / "docs/your_own_sequences.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def home(runner) -> Path:
    """Save the blocks as the page says, and write the sentences."""
    quotes, jumps, _ = blocks("python")
    (runner.home / "quotes.py").write_text(quotes)
    (runner.home / "jumps.py").write_text(jumps)
    for yaml in blocks("yaml"):
        name = re.match("name: (.*)", yaml)[1]
        (runner.home / f"{name}.yaml").write_text(yaml)
    with (runner.home / "quotes.txt").open("w") as text:
        program = (
            "import random, runpy; random.seed(1); runpy.run_path('quotes.py', None, '__main__')"
        )
        command = [sys.executable, "-c", program]
        subprocess.run(command, stdout=text, cwd=runner.home, check=True, env=environment())
    return runner.home


def predict(runner, file: Path) -> Ended:
    command = [sys.executable, "-m", "amp_runtime", "predict", str(runner.last.folder), str(file)]
    done = subprocess.run(
        command, cwd=runner.home, env=environment(), capture_output=True, text=True, timeout=90
    )
    return Ended(done.returncode, done.stdout, done.stderr, 0.0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tagger_reaches_its_target_and_tags_each_word(home, runner):
    text = home / "quotes.txt"
    ended = runner.run(home / "quotes.yaml", f"data.path={text}", PACKED, timeout_s=200)
    assert (ended.code, ended.err) == (0, "")
    assert "target reached: accuracy" in ended.out
    sentences = [["we", '"', "go", '"', "now"], ["never", '"']]
    (home / "new.jsonl").write_text("".join(json.dumps({"tokens": s}) + "\n" for s in sentences))
    (home / "new.txt").write_text("\n\n".join("\n".join(s) for s in sentences))
    told = predict(runner, home / "new.jsonl")
    assert told.code == 0, told.err
    first, second = map(json.loads, told.out.splitlines())
    assert first["step"] == [0, 1, 2, 3, 4]
    # Of 50 words it may still get one wrong.
    right = zip(first["label_word"], ["out", "in", "in", "in", "out"], strict=True)
    assert sum(told == due for told, due in right) >= 4
    assert len(second["label_word"]) == 2
    assert [len(row) for row in first["probabilities"]] == [2] * 5
    from_text = [json.loads(line) for line in predict(runner, home / "new.txt").out.splitlines()]
    assert [line.pop("words") for line in from_text] == sentences
    assert from_text == [first, second]  # to the last bit
    (home / "new.jsonl").write_text('{"tokens": ["we"]}\n{"tokens": []}\n')
    refused = predict(runner, home / "new.jsonl")
    assert refused.code == 78
    assert "new.jsonl:2: has 0 elements in 'tokens', but needs 1 at least" in refused.last_line


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_jumps_are_told_from_levels(home, runner):
    ended = runner.run(home / "jumps.yaml", PACKED, timeout_s=200)
    assert (ended.code, ended.err) == (0, "")
    assert "target reached: accuracy" in ended.out
    up = [[0.1], [0.0], [0.1], [1.1], [1.0], [1.2]]
    (home / "new.jsonl").write_text(json.dumps({"values": up}) + "\n")
    told = predict(runner, home / "new.jsonl")
    assert told.code == 0, told.err
    line = json.loads(told.out)
    assert line["label"] == 0
    assert len(line["probabilities"]) == 3


def test_a_wrong_line_of_the_text_is_named_before_anything_starts(home, runner):
    text = home / "quotes.txt"
    text.write_text("we out\nalone\n")
    ended = runner.run(home / "quotes.yaml", f"data.path={text}")
    assert ended.code == 78
    assert "quotes.txt:2: has 1 columns, but line 1 has 2" in ended.last_line
