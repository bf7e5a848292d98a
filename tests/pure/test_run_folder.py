"""What a run leaves is whole, and what cannot be written is told with what to do."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from amp_runtime.config.schema import Config
from amp_runtime.errors import DataError, OutputError, UsageError
from amp_runtime.output.run_folder import RunFolder

PLAIN = {
    "name": "small",
    "model": {"builder": "mlp"},
    "data": {"source": "pixels"},
    "training": {"optimizer": {"name": "sgd", "lr": 0.1}},
}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    config = Config.model_validate({**PLAIN, "runtime": {"runs": str(tmp_path)}})
    return RunFolder.create(config, [], [0])


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """Have longer writes fail half-way, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_manifest_that_cannot_be_written_leaves_the_former_one(folder):
    with largest_file(100_000), pytest.raises(OutputError, match="File too large; raise the limit"):
        folder.finish("why " * 100_000, 70)
    assert json.loads((folder.path / "manifest.json").read_text())["name"] == "small"
    assert "ended" not in json.loads((folder.path / "manifest.json").read_text())


def test_parameters_that_cannot_be_written_leave_nothing_half(folder):
    with largest_file(100_000), pytest.raises(OutputError, match="File too large"):
        folder.write_parameters({"linear": {"weight": np.zeros(50_000)}})
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "config.yaml", "logs", "manifest.json",
    ]  # fmt: skip


def test_a_run_folder_that_is_gone_is_not_called_a_full_disk(folder):
    shutil.rmtree(folder.path)
    with pytest.raises(OutputError, match=r"No such file .*; leave the run folder in its place"):
        folder.finish("done", 0)


def test_ids_that_stand_for_other_words_than_in_the_run_are_refused(folder):
    words = {"token": ("<unk>", "caf\u00e9", "no"), "label": ("0", "1")}
    folder.check_vocabularies(words)  # a run without vocabularies takes any
    folder.write_vocabularies({})
    assert not folder.vocabularies.exists()
    folder.write_vocabularies(words)
    folder.check_vocabularies(words)
    for other, message in (
        (("<unk>", "no", "caf\u00e9"), "1 in field 'token' stands for 'no', but 'caf\u00e9' in"),
        (("<unk>", "caf\u00e9"), "field 'token' has 2 values, but 3 in the run; ids come from"),
        ((), "field 'token' has 0 values, but 3"),
    ):
        with pytest.raises(DataError, match=message):
            folder.check_vocabularies({**words, "token": other})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("null", "cannot read the plan: 'NoneType' object"),
        ("[1]", "cannot read the plan: list indices"),
        ('{"form', "cannot read the plan: "),
        ("{}", "cannot read the plan: lacks 'format'"),
        ('{"format": 1}', "a plan of format 1, not 3; workers and controller must be of one"),
        ('{"format": 3, "workers": []}', "cannot read the plan: lacks 'run'; train the run again"),
        ('{"format": 3, "workers": [null]}', "cannot read the plan: "),
    ],
)
def test_a_damaged_plan_is_named(folder, text, message):
    folder.plan.write_text(text)
    with pytest.raises(DataError, match=f"^{folder.plan}: {message}"):
        folder.read_plan()


def test_a_run_without_a_plan_is_told_so(folder):
    with pytest.raises(UsageError, match=r"has no plan\.json; a run writes it when"):
        folder.read_plan()


@pytest.mark.parametrize("words", [3, "ab", [1, 2], None, {"a": 0}])
def test_damaged_vocabularies_are_named(folder, words):
    folder.vocabularies.write_text(json.dumps({"label": ["0"], "token": words}))
    with pytest.raises(DataError, match=r"vocabularies\.json: .* no list of words for .*'token'"):
        folder.read_vocabularies()
