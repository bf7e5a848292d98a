"""`predict`: JSON lines in the order of the examples, by real workers, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import PACKED, Ended, environment, leaving_nothing, wait_until

from amp_runtime.data import VALID, load_split

pytestmark = pytest.mark.process
TIMEOUT_S = 90
N_VALID = 50
KEEPING = {
    "optimizer": {"name": "sgd", "lr": 0.1},
    "update_every": 20,
    "max_epochs": 2,
    "save_predictions": True,
}


@pytest.fixture(scope="module")
def _once() -> dict[str, Path]:
    return {}


@pytest.fixture
def run(runner, _once, tmp_path_factory, tmp_path) -> Path:
    """A copy of the folder of one finished run in float64, made once."""
    if not _once:
        settings = "training.max_epochs=2", "dtype=float64", PACKED
        assert runner.run(runner.config(), *settings, timeout_s=TIMEOUT_S).code == 0
        _once["run"] = tmp_path_factory.mktemp("finished") / "run"
        shutil.copytree(runner.last.folder, _once["run"])
    return Path(shutil.copytree(_once["run"], tmp_path / "copy"))


def started(run: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "amp_runtime", "predict", str(run), *words],
        cwd=run.parent,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def predict(run: Path, *words: str) -> Ended:
    process = started(run, *words)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Ended(process.returncode, out, err, 0.0)


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def validation(run: Path, n: int = N_VALID) -> Path:
    """Write the validation examples of the run, without their labels."""
    made = load_split("list_reduction", VALID, 0, {"train": 1, "valid": n})
    tokens = made.field("tokens")
    examples = np.split(tokens.values, tokens.offsets[1:-1])
    file = run.parent / "new.jsonl"
    file.write_text("".join(json.dumps({"tokens": e.tolist()}) + "\n" for e in examples))
    return file


def test_lines_are_in_order_and_right_as_often_as_in_the_last_validation(run):
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    ended = predict(run, str(validation(run)))
    assert ended.code == 0, ended.err
    found = lines(ended.out)
    assert [line["example"] for line in found] == list(range(N_VALID))
    label = load_split("list_reduction", VALID, 0, {"train": 1, "valid": N_VALID}).field("label")
    right = np.mean([line["label"] for line in found] == label.values)
    last = lines((run / "metrics.jsonl").read_text())[-1]
    assert right == pytest.approx(last["accuracy"])
    for line in found:
        assert line["label_word"] == str(line["label"])
        assert line["label"] == int(np.argmax(line["probabilities"]))
        assert sum(line["probabilities"]) == pytest.approx(1)
    assert f"{N_VALID} examples of " in ended.err
    assert {p: p.read_bytes() for p in before} == before  # the run itself stays as it was


def test_a_run_that_may_only_be_read_predicts_where_it_is_told_to_keep_what_it_did(run, tmp_path):
    (run / "predictions").touch()  # root may write to any folder, but not into a file
    ended = predict(run, str(validation(run, 3)))
    assert ended.code == 74
    assert ended.last_line.endswith("set runtime.runs to a folder that you can write to")
    ended = predict(run, str(validation(run, 3)), f"runtime.runs={tmp_path / 'mine'}")
    assert (ended.code, len(lines(ended.out))) == (0, 3), ended.err
    (folder,) = (tmp_path / "mine" / "predictions").iterdir()
    assert json.loads((folder / "manifest.json").read_text())["exit_code"] == 0


PLACEMENTS = ("process_per_node", "packed")


@pytest.mark.parametrize(("placement", "other"), [PLACEMENTS, PLACEMENTS[::-1]])
def test_a_fresh_process_predicts_what_the_last_validation_did_wherever_nodes_are_to_the_last_bit(
    runner, placement, other
):
    config = runner.config(dtype="float64", training=KEEPING)
    assert runner.run(config, f"runtime.placement={placement}", timeout_s=TIMEOUT_S).code == 0
    run = runner.last.folder
    kept = (run / "valid_predictions.jsonl").read_text()
    assert len(lines(kept)) == N_VALID
    assert sorted(p.name for p in run.glob("*valid_predictions*")) == ["valid_predictions.jsonl"]
    label = load_split("list_reduction", VALID, 0, {"train": 1, "valid": N_VALID}).field("label")
    right = np.mean([line["label"] for line in lines(kept)] == label.values)
    assert right == pytest.approx(runner.last.stages()[-1]["accuracy"])
    ended = predict(run, str(validation(run)), f"runtime.placement={other}")
    assert (ended.code, ended.out) == (0, kept), ended.err


def treebank(home: Path) -> tuple[dict[str, Any], Path]:
    """Return the data of a run, and its validation trees with labels of another kind."""
    words = ["good", "bad", "film", "not", "a"]
    generator = np.random.default_rng(1)

    def tree(n: int) -> str:
        label = generator.integers(5)
        if n == 1:
            return f"({label} {generator.choice(words)})"
        left = int(generator.integers(1, n))
        return f"({label} {tree(left)} {tree(n - left)})"

    for name, n_trees in (("train", 60), ("dev", 12), ("test", 1)):
        text = "".join(tree(int(generator.integers(1, 9))) + "\n" for _ in range(n_trees))
        (home / f"{name}.txt").write_text(text)
    file = home / "new.txt"
    file.write_text(re.sub(r"\(\d", "(X", (home / "dev.txt").read_text()))
    return {"source": "treebank", "path": str(home)}, file


def images(home: Path) -> tuple[dict[str, Any], Path]:
    """Return the data of a run, and its validation images as an array."""
    table = np.random.default_rng(1).integers(0, 256, (70, 17)) % ([256] * 16 + [10])
    np.savetxt(home / "images.csv", table, "%d", ",")
    data = {"source": "pixels", "path": str(home / "images.csv"), "valid": 10}
    options = {name: value for name, value in data.items() if name != "source"}
    pixels = load_split("pixels", VALID, 0, options).field("pixels").values
    np.save(home / "new.npy", np.rint(pixels * 255).astype(np.uint8).reshape(-1, 4, 4))
    return data, home / "new.npy"


def questions(home: Path) -> tuple[dict[str, Any], Path]:
    """Return the data of a run, and the stories it is validated with, without answers."""
    story = "1 {0}s are afraid of {1}s.\n2 {1}s are afraid of {0}s.\n3 eve is a {0}.\n"
    ask = "4 What is eve afraid of?"
    pairs = [("cat", "dog"), ("dog", "cat"), ("cow", "cat")]
    asked = "".join(f"{story.format(*pair)}{ask}\n" for pair in pairs)
    answered = "".join(f"{story.format(*pair)}{ask}\t{pair[1]}\t1 3\n" for pair in pairs)
    (home / "valid.txt").write_text(answered)
    (home / "new.txt").write_text(asked)
    return {
        "source": "babi15",
        "train": 20,
        "valid": 3,
        "valid_path": "valid.txt",
    }, home / "new.txt"


@pytest.mark.parametrize(
    ("builder", "files", "told"),
    [
        ("tree_lstm", treebank, ["words"]),
        ("mlp", images, []),
        ("ggsnn_node", questions, ["story", "about", "nodes"]),
    ],
)
def test_files_of_a_source_are_predicted_as_its_examples_were(runner, builder, files, told):
    data, file = files(runner.home)
    hidden = [5] if builder == "mlp" else 5
    model = {"builder": builder, "hidden": hidden}
    config = runner.config(dtype="float64", model=model, data=data, training=KEEPING)
    settings = "training.max_epochs=1", PACKED
    ended = runner.run(config, *settings, timeout_s=TIMEOUT_S, cwd=runner.home)
    assert ended.code == 0, ended.err
    ended = predict(runner.last.folder, str(file), PACKED)
    assert ended.code == 0, ended.err
    found = lines(ended.out)
    assert [list(line)[1 : 1 + len(told)] for line in found] == [told] * len(found)
    ours = [{n: value for n, value in line.items() if n not in told} for line in found]
    assert ours == lines((runner.last.folder / "valid_predictions.jsonl").read_text())


def test_molecules_are_predicted_from_smiles_in_the_unit_of_the_property(runner):
    n, home = 12, runner.home
    rows = np.arange(n)
    np.savez(  # of two atoms each, C and O
        home / "molecules.npz",
        atomic_number=np.tile([6, 8], n), node_offset=np.arange(0, 2 * n + 1, 2),
        edge_offset=np.arange(n + 1), edge_src=0 * rows, edge_dst=0 * rows + 1,
        edge_type=rows % 3, target=np.stack([rows * 1.0], 1), target_name=np.array(["HOMO_au"]),
    )  # fmt: skip
    data = {
        "source": "qm9", "path": str(home / "molecules.npz"), "target": "homo", "valid": 2
    }  # fmt: skip
    model = {"builder": "ggsnn_graph", "hidden": 6}
    config = runner.config(dtype="float64", model=model, data=data, training=KEEPING)
    settings = "training.max_epochs=1", PACKED
    assert runner.run(config, *settings, timeout_s=TIMEOUT_S).code == 0
    run = runner.last.folder
    kept = lines((run / "valid_predictions.jsonl").read_text())
    (home / "new.smi").write_text("CO methanol\nC=O\n")
    ended = predict(run, str(home / "new.smi"), PACKED)
    assert ended.code == 0, ended.err
    found = lines(ended.out)
    assert [line.pop("smiles") for line in found] == ["CO", "C=O"]
    for line in kept + found:
        assert sorted(line) == ["example", "target", "target_hartree"]
        in_unit = np.array(line["target"]) * rows.std() + rows.mean()
        np.testing.assert_allclose(line["target_hartree"], in_unit, rtol=1e-12)


def test_words_and_lists_of_the_source_are_taken_and_a_file_is_written(run):
    json_lines, text = run.parent / "a.jsonl", run.parent / "a.txt"
    json_lines.write_text('{"tokens": ["range", 4, 9, 1], "id": 7}\n\n{"tokens": [13, "3"]}\n')
    text.write_text("range 4 9 1\n13 3\n")
    first = predict(run, str(json_lines), PACKED, "out=a.out")
    second = predict(run, str(text), "out=b.out", "training.max_active_keys=1")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "predictions in a.out" in first.out
    a, b = (lines((run.parent / name).read_text()) for name in ("a.out", "b.out"))
    assert a == b  # to the last bit: in float64 a number's text is the number
    assert sorted(p.name for p in run.parent.glob("*.out*")) == ["a.out", "b.out"]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('{"tokens": [10, 1]}\n{"token": [1]}', 78, r"new.jsonl:2: lacks field 'tokens' \(did"),
        ('{"tokens": [10.5]}', 78, r"new.jsonl:1, field 'tokens': holds 10.5, not a whole"),
        ('{"tokens": [10, 14]}', 78, r"holds 14, outside 0 to 13"),
        ('{"tokens": ["rnge", 1]}', 78, r"'rnge', which is no word of the run \(did you mean"),
        ('{"tokens": [[10]]}', 78, r"is int32\[rows, 1\], not int32\[rows\]"),
        ('{"tokens": ', 78, r"new.jsonl:1: is no JSON"),
        ("[10, 1]", 78, r"new.jsonl:1: is \[10, 1\], not an object"),
        ("\n", 78, r"new.jsonl: holds no example"),
    ],
)
def test_a_line_that_does_not_fit_is_named_before_anything_starts(run, verb, text, code, message):
    (file := run.parent / "new.jsonl").write_text(text)
    ended = verb(run.parent, "predict", run, file)
    assert (ended.code, ended.out) == (code, "")
    assert re.search(message, ended.last_line), ended.err
    assert not (run / "predictions").exists()


def test_what_is_missing_or_would_change_the_model_is_refused(run, verb):
    def refused(*words: object) -> Ended:
        return verb(run.parent, "predict", run, *words)

    ended = refused("nowhere.jsonl")
    assert (ended.code, "nowhere.jsonl" in ended.last_line) == (74, True)
    ended = refused("")  # as make gives it
    assert (ended.code, "no file of examples is named" in ended.last_line) == (64, True)
    file = validation(run)
    ended = refused(file, "model.hidden=9")
    assert (ended.code, "cannot be made with another model.hidden" in ended.last_line) == (64, True)
    ended = refused(file, "out=nowhere/a")
    assert (ended.code, "nowhere/a: cannot write" in ended.last_line) == (74, True)
    (run / "parameters.safetensors").unlink()
    shutil.rmtree(run / "checkpoints")
    ended = refused(file)
    assert (ended.code, "has no parameters.safetensors" in ended.last_line) == (64, True)


def test_ctrl_c_leaves_no_file_and_no_process(run):
    file = validation(run, 20_000)
    process = started(run, str(file), "out=a.out")
    wait_until(
        lambda: [p for p in run.glob("predictions/*/logs/*.0.log") if " linked " in p.read_text()],
        "a worker that is linked",
        TIMEOUT_S,
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith("stopped by SIGINT")
    assert list(run.parent.glob("*a.out*")) == []
    (manifest,) = run.glob("predictions/*/manifest.json")
    assert json.loads(manifest.read_text())["exit_code"] == 130


def test_who_has_read_enough_ends_it_and_nothing_is_left(run, tmp_path, monkeypatch):
    (private := tmp_path / "private").mkdir()
    monkeypatch.setenv("TMPDIR", str(private))
    monkeypatch.setenv("AMP_TEST", mark := "predict-head")
    with leaving_nothing(private, mark):
        process = started(run, str(validation(run)))
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
