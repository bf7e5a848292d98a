"""Checkpoints on disk: whole or refused by name, whatever happens to a byte, a file or the disk.

Tests named after rows of the fault catalogue say which row they are.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wirings import chain, examples

from amp_runtime import failpoints
from amp_runtime.checkpoint import files
from amp_runtime.checkpoint.container import pack, unpack
from amp_runtime.checkpoint.files import read_shard, write_shard
from amp_runtime.checkpoint.fitting import check_fits, data_hash
from amp_runtime.checkpoint.manifest import FILE, About, Manifest
from amp_runtime.checkpoint.parameters import read_parameters
from amp_runtime.checkpoint.store import CheckpointStore, check, name_of, newest, verify
from amp_runtime.control.actions import Abandon, Commit
from amp_runtime.errors import CheckpointError, UsageError
from amp_runtime.rows.saved import Saved
from amp_runtime.wire.protocol import Shard

ADAM = {"name": "adam", "lr": 0.05}


def about(**given: Any) -> About:
    graph = chain(training={"optimizer": ADAM}).to_plain()
    plain: dict[str, Any] = {
        "name": "test", "version": "1", "seed": 3, "schedule": "synchronous", "config": {},
        "graph": json.loads(json.dumps(graph)), "data": {"train": "aa", "valid": "bb"},
    }  # fmt: skip
    return About(**plain | given)


def saved_of(number: int) -> dict[str, Saved]:
    weight = np.full((3, 2), float(number))
    node = Saved({"version": number}, {"node/parameters/weight": weight})
    return {"linear": node, "loss": Saved({"metrics": [1.5, 2]})}


class Kept:
    """A store in a folder, and what it said."""

    def __init__(self, path: Path, **given: Any) -> None:
        self.said: list[str] = []
        options: dict[str, Any] = {"keep_last": 2, "keep_best": 0, "fail_limit": 3}
        self.store = CheckpointStore(path, about(), say=self.said.append, **options | given)

    def make(self, number: int, score: float | None = None) -> bool:
        folder = self.store.begin(number)
        if folder is None:
            return False
        shards = {}
        try:
            for name, saved in saved_of(number).items():
                shards[name] = write_shard(folder, name, saved)
        except CheckpointError as error:
            self.store.abandon(Abandon(number, str(error), on_disk=True))
            return False
        place = {"epoch": number, "trained": 10 * number, "stages": 2 * number}
        return self.store.commit(Commit(number, shards, Saved({"place": place}), score))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path / "checkpoints")
    yield made
    made.store.close()


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir() if p.name.startswith("checkpoint"))


# ------------------------------------------------------------------------- the container


def test_what_is_packed_comes_back_and_others_can_read_it():
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "none": np.zeros((0, 4)),
        "one": np.array(3, np.int64),
        "turned": np.arange(6.0).reshape(2, 3).T,
        "flags": np.array([True, False]),
    }
    numbers = {"version": 3, "nan": float("nan"), "list": [0.1, None, "x"], "inner": {"a": 1}}
    data = b"".join(pack(Saved(numbers, arrays)))
    found = unpack(data)
    assert json.dumps(found.numbers) == json.dumps(numbers)
    theirs = safetensors.numpy.load(data)
    for name, array in arrays.items():
        for read in (found.arrays[name], theirs[name]):
            assert (read.dtype, read.shape, read.tobytes()) == (
                array.dtype, array.shape, np.ascontiguousarray(array).tobytes()
            )  # fmt: skip


def test_an_array_of_objects_is_not_kept():
    with pytest.raises(CheckpointError, match="'odd' is complex128"):
        list(pack(Saved({}, {"odd": np.zeros(2, complex)})))
    with pytest.raises(CheckpointError, match="more than the 4096"):
        list(pack(Saved({}, {str(n): np.zeros(1) for n in range(5000)})))


def header(entries: dict[str, Any], body: bytes = b"", numbers: str = "{}") -> bytes:
    text = json.dumps({"__metadata__": {"numbers": numbers}, **entries}).encode()
    return struct.pack("<Q", len(text)) + text + body


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "hold no header"),
        (struct.pack("<Q", 2**63) + b"{}", "a header of 9223372036854775808"),
        (struct.pack("<Q", 2 << 20) + b" " * (3 << 20), "1048576 are the most"),
        (struct.pack("<Q", 4) + b"nope", "no JSON"),
        (struct.pack("<Q", 40_000) + b"[" * 40_000, "no JSON"),
        (struct.pack("<Q", 2) + b"[]", "no mapping"),
        (struct.pack("<Q", 2) + b"{}", "no numbers"),
        (header({}, numbers="[]"), "list, no mapping"),
        (header({"a": {**ENTRY, "dtype": "O"}}, b"x" * 8), "'a' is damaged"),
        (header({"a": {**ENTRY, "shape": [-2]}}, b"x" * 8), "'a' is damaged"),
        (header({"a": {**ENTRY, "shape": [2.0]}}, b"x" * 8), "'a' is damaged"),
        (header({"a": {**ENTRY, "shape": [True, 2]}}, b"x" * 8), "'a' is damaged"),
        (header({"a": {**ENTRY, "shape": [1] * 65}}, b"x" * 4), "'a' is damaged"),
        (header({"a": {**ENTRY, "shape": [2**62, 2]}}, b"x" * 8), "'a' is at 0 to 8"),
        (header({"a": {**ENTRY, "data_offsets": [0, 4]}}, b"x" * 8), "'a' is at 0 to 4"),
        (header({"a": {**ENTRY, "data_offsets": [1, 9]}}, b"x" * 9), "'a' is at 1 to 9"),
        (header({"a": ENTRY, "b": ENTRY}, b"x" * 16), "'b' is at 0 to 8, but must be at 8"),
        (header({"a": ENTRY}, b"x" * 7), "'a' is at 0 to 8"),
        (header({"a": ENTRY}, b"x" * 9), "1 bytes follow"),
        (header({str(n): {**ENTRY, "shape": [0], "data_offsets": [0, 0]} for n in range(5000)}),
         "at most 4096 arrays"),
    ],
    ids=str,
)  # fmt: skip
def test_129_a_hostile_shard_is_refused(data, said):
    with pytest.raises(CheckpointError, match=said):
        unpack(data)


# ----------------------------------------------------------------------------- the store


def test_the_newest_is_gone_on_from_and_old_ones_go(kept):
    assert kept.store.resume() is None
    for number in range(1, 5):
        assert kept.make(number)
    assert names(kept.store.path) == [name_of(3), name_of(4)]
    resume = kept.store.resume()
    assert resume is not None
    assert Path(resume.folder).name == name_of(4)
    assert resume.run.numbers["place"]["epoch"] == 4
    again = read_shard(Path(resume.folder), resume.shards["linear"])
    assert again.arrays["node/parameters/weight"].tolist() == [[4.0, 4.0]] * 3
    manifest, notes = newest(kept.store.path)
    assert (manifest.number, manifest.about, notes) == (4, about(), [])
    whole, faults = verify(kept.store.path)
    assert (len(whole), faults) == (2, [])


def test_the_best_stay_too(tmp_path):
    kept = Kept(tmp_path / "c", keep_last=1, keep_best=2)
    for number, score in enumerate([0.3, 0.9, None, 0.5, 0.1, None], 1):
        kept.make(number, score)
    assert names(kept.store.path) == [name_of(2), name_of(4), name_of(6)]
    kept.store.close()
    again = Kept(tmp_path / "c", keep_last=1, keep_best=2)  # it reads the scores
    assert again.store.number == 6
    again.make(7, 0.7)
    assert names(again.store.path) == [name_of(2), name_of(7)]
    parameters, name = read_parameters(again.store.path, "best")
    assert (name, parameters["linear"]["weight"][0, 0]) == (name_of(2), 2.0)
    assert read_parameters(again.store.path, "latest")[1] == name_of(7)
    assert read_parameters(again.store.path, "2")[1] == name_of(2)
    with pytest.raises(UsageError, match=r"no checkpoint '3'.*2, 7"):
        read_parameters(again.store.path, "3")
    again.store.close()


def test_55_two_runs_do_not_write_to_one_folder(kept):
    with pytest.raises(CheckpointError, match=rf"another run writes.*{os.getpid()}.*since"):
        Kept(kept.store.path)
    kept.store.close()
    kept.store = Kept(kept.store.path).store


def test_56_what_a_killed_run_left_is_swept_and_a_live_one_s_is_not(tmp_path):
    path = tmp_path / "c"
    script = (
        "import sys, time; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\nfrom test_checkpoint_files import Kept\n"
        "kept = Kept(Path(sys.argv[1])); kept.make(1); kept.store.begin(2)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    tests = Path(__file__).parents[1]
    folders = [str(tests.parent), str(tests), str(tests / "pure")]
    command = [sys.executable, "-c", script, str(path), *folders]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        temporary = f"{name_of(2)}.tmp-{process.pid}"
        with pytest.raises(CheckpointError, match=f"another run writes.*{process.pid}"):
            Kept(path)
        assert temporary in names(path)
        process.send_signal(signal.SIGKILL)
    again = Kept(path)
    assert names(path) == [name_of(1)]
    assert newest(path)[0].number == 1
    again.store.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two checkpoints; tests change copies of it."""
    path = tmp_path_factory.mktemp("whole") / "checkpoints"
    kept = Kept(path)
    kept.make(1)
    kept.make(2)
    kept.store.close()
    return path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def everything(path: Path) -> list[Path]:
    """Return the files of the newest checkpoint, and LATEST."""
    return [*sorted((path / name_of(2)).iterdir()), path / "LATEST"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), which=st.integers(0, 4))
def test_50_a_flipped_bit_anywhere_is_found(whole, place, bit, which):
    path = everything(whole)[which]
    before = path.read_bytes()
    at = int(place * len(before))
    path.write_bytes(before[:at] + bytes([before[at] ^ (1 << bit)]) + before[at + 1 :])
    try:
        with pytest.raises(CheckpointError):
            newest(whole)
        assert verify(whole)[1]
    finally:
        path.write_bytes(before)


def test_50_each_byte_of_the_manifest_and_of_latest_counts(whole):
    for path in (whole / name_of(2) / FILE, whole / "LATEST"):
        before = path.read_bytes()
        step = max(len(before) // 64, 1)
        for at in range(0, len(before), step):
            path.write_bytes(before[:at] + bytes([before[at] ^ 0x20]) + before[at + 1 :])
            with pytest.raises(CheckpointError):
                newest(whole)
        path.write_bytes(before)
    assert newest(whole)[0].number == 2


@pytest.mark.parametrize("left", [lambda n: 0, lambda n: 1, lambda n: n // 2, lambda n: n - 1])
def test_49_a_file_cut_short_is_refused_with_its_sizes_and_an_older_set_may_be_taken(copy, left):
    for path in everything(copy):
        before = path.read_bytes()
        path.write_bytes(before[: left(len(before))])
        with pytest.raises(CheckpointError, match="--allow-older") as refused:
            newest(copy)
        if path.suffix == ".safetensors":
            assert f"{path}: has {left(len(before))} bytes, but had {len(before)}" in str(
                refused.value
            )
        assert any(str(path) in str(fault) for fault in verify(copy)[1])
        manifest, (note,) = newest(copy, allow_older=True)
        expected = 2 if path.name == "LATEST" else 1
        assert (manifest.number, f"going on from {expected}" in note) == (expected, True)
        path.write_bytes(before)


def test_51_a_shard_missing_extra_or_swapped_is_refused_by_name(copy):
    folder = copy / name_of(2)
    one, other = folder / "linear.safetensors", folder / "loss.safetensors"

    def refused(said: str) -> None:
        with pytest.raises(CheckpointError, match=said):
            newest(copy)

    one.rename(folder / "aside")
    refused(r"aside: is no part of the checkpoint, which has .*linear\.safetensors")
    (folder / "aside").rename(copy / "aside")
    refused(r"linear\.safetensors: is missing")
    other.rename(one)
    (copy / "aside").rename(other)
    refused(r"linear\.safetensors: has")
    assert len(verify(copy)[1]) == 2


def test_52_latest_leads_nowhere_else(copy, tmp_path):
    latest, good = copy / "LATEST", (copy / "LATEST").read_text()
    digest = good.split()[1]
    for text in (
        f"../../x {digest}\n", f"/etc {digest}\n", f"{name_of(9)} {digest}\n", "", f"{digest}\n",
        good + good, good.upper(), f"{name_of(1)} {digest}\n",
    ):  # fmt: skip
        latest.write_text(text)
        with pytest.raises(CheckpointError, match="LATEST"):
            newest(copy)
    latest.unlink()
    with pytest.raises(CheckpointError, match="LATEST: is missing"):
        newest(copy)
    (tmp_path / "elsewhere").write_text(good)
    latest.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="LATEST: is a link"):
        newest(copy)
    latest.unlink()
    os.mkfifo(latest)
    with pytest.raises(CheckpointError, match="no regular file"):
        newest(copy)


def test_128_no_file_outside_the_folder_is_read(copy, tmp_path):
    folder = copy / name_of(2)
    shard = folder / "linear.safetensors"
    (tmp_path / "outside").write_bytes(shard.read_bytes())
    shard.unlink()
    shard.symlink_to(tmp_path / "outside")
    with pytest.raises(CheckpointError, match="is a link"):
        newest(copy)
    manifest = Manifest.read(folder)
    for node in ("/etc/x", "../x", "a/b", ".."):
        odd = Shard(node, 1, "0" * 64, True)
        written = Manifest(
            **{n: getattr(manifest, n) for n in ("number", "written", "generation", "place")},
            score=None, shards={node: odd}, about=manifest.about,
        ).to_bytes()  # fmt: skip
        (folder / FILE).write_bytes(written)
        with pytest.raises(CheckpointError, match="a shard that is none"):
            Manifest.read(folder)
    shutil.move(folder, tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"no folder|is a link"):
        newest(copy)
    assert check(folder)


def test_54_a_newer_format_is_refused(copy):
    path = copy / name_of(2) / FILE
    data = json.loads(path.read_bytes())
    data["checkpoint"]["format"] = 99
    path.write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="newer version of amp_runtime: format 99"):
        Manifest.read(path.parent)


def test_nothing_there_is_said(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        newest(tmp_path / "none")
    assert verify(tmp_path / "none") == ([], [])


# -------------------------------------------------------------------------- full disks


def failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int, at: int) -> list[int]:
    """Let the call number `at` of an os function in these modules fail."""
    real: Callable[..., Any] = getattr(os, name)
    calls: list[int] = []

    def shim(*given: Any, **options: Any) -> Any:
        calls.append(0)
        if len(calls) == at:
            raise OSError(number, os.strerror(number))
        return real(*given, **options)

    monkeypatch.setattr(os, name, shim)
    return calls


class Died(BaseException):
    """The process is no more."""


@pytest.mark.parametrize(
    "place", ["ckpt.before_manifest", "ckpt.before_rename", "ckpt.before_latest"]
)
def test_10_who_dies_while_it_writes_leaves_the_set_before_it_whole(tmp_path, monkeypatch, place):
    def hit(name: str) -> None:
        if name == place:
            raise Died

    first = Kept(tmp_path / "checkpoints")
    assert first.make(1)
    monkeypatch.setattr(failpoints, "hit", hit)
    with pytest.raises(Died):
        first.make(2)
    monkeypatch.undo()
    first.store.close()
    assert newest(tmp_path / "checkpoints")[0].number == 1
    again = Kept(tmp_path / "checkpoints")
    assert again.make(3)
    assert newest(tmp_path / "checkpoints")[0].number == 3
    again.store.close()


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_44_48_a_failing_fsync_or_rename_abandons_that_set_alone(kept, monkeypatch, number, at):
    assert kept.make(1)
    calls = failing(monkeypatch, "fsync", number, at)
    done = kept.make(2)
    monkeypatch.undo()
    assert done == (len(calls) < at)
    if not done:
        (line,) = kept.said
        assert line.startswith("error: checkpoint 2 cannot be written: ")
        assert os.strerror(number) in line
        assert "bytes" in line
        assert "training goes on" in line
    assert all(not fault for fault in [verify(kept.store.path)[1]] if done)
    manifest, _ = newest(kept.store.path)
    assert manifest.number in (1, 2)  # after the rename of LATEST it is the new one
    assert kept.make(3)
    assert newest(kept.store.path)[0].number == 3
    assert not [n for n in names(kept.store.path) if "tmp" in n]


def test_45_a_file_larger_than_the_limit(kept):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    assert kept.make(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, before[1]))
    try:
        assert not kept.make(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "File too large; it needs" in kept.said[0]
    assert "are available" in kept.said[0]
    assert newest(kept.store.path)[0].number == 1


def test_47_a_folder_that_is_gone_ends_the_run_after_some_failures(tmp_path):
    kept = Kept(tmp_path / "c", fail_limit=3)
    assert kept.make(1)
    shutil.rmtree(tmp_path / "c")
    assert not kept.make(2)
    assert not kept.make(3)
    with pytest.raises(CheckpointError, match="3 in a row could not") as ended:
        kept.make(4)
    assert ended.value.exit_code == 74
    kept.store.close()


def test_47_a_folder_that_is_a_file_is_refused_at_the_start(tmp_path):
    (tmp_path / "c").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be made.*every=never"):
        Kept(tmp_path / "c")


def test_43_46_a_full_disk_of_its_own(tmp_path):
    """On a real tmpfs, without bytes first and then without inodes."""
    tests = Path(__file__).parents[1]
    script = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "import os\nfrom pathlib import Path\nfrom test_checkpoint_files import Kept\n"
        "from amp_runtime.checkpoint.store import newest, verify\n"
        "root = Path(sys.argv[1]); kept = Kept(root / 'c')\n"
        "assert kept.make(1)\n"
        "fill = (root / 'fill').open('wb', buffering=0)\n"
        "try:\n"
        "    while True: fill.write(b'x' * 4096)\n"
        "except OSError: pass\n"
        "assert not kept.make(2)\n"
        "os.truncate(root / 'fill', 0); fill.close()\n"
        "assert newest(root / 'c')[0].number == 1\n"
        "n = 0\n"
        "try:\n"
        "    while True: (root / f'f{n}').touch(); n += 1\n"
        "except OSError: pass\n"
        "assert not kept.make(3)\n"
        "for i in range(n): (root / f'f{i}').unlink()\n"
        "assert kept.make(4)\n"
        "assert verify(root / 'c')[1] == []\n"
        "print(*kept.said, sep='\\n')\n"
    )
    folders = [str(tests.parent), str(tests), str(tests / "pure")]
    mount = f'mount -t tmpfs -o size=1m,nr_inodes=40 tmpfs {tmp_path} && exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", mount, "sh", sys.executable, "-c", script]
    done = subprocess.run([*command, str(tmp_path), *folders], capture_output=True, text=True)
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"no mount namespace: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("No space left on device" in line and "bytes" in line for line in lines)


def test_135_what_is_not_finite_is_not_the_newest(kept):
    kept.make(1)
    assert kept.store.begin(2) is not None
    kept.store.abandon(Abandon(2, "not finite: linear", on_disk=False))
    assert newest(kept.store.path)[0].number == 1
    assert names(kept.store.path) == [name_of(1)]
    assert kept.said == ["error: checkpoint 2 is not made: not finite: linear"]


# ------------------------------------------------------------------------ does it fit?


def fits(was: About, now: About) -> list[str]:
    return check_fits(was, now, "here")


def with_training(**given: Any) -> About:
    graph = chain(training={"optimizer": ADAM, **given}).to_plain()
    return about(graph=json.loads(json.dumps(graph)))


def test_what_may_differ_does():
    assert fits(about(), about()) == []
    assert fits(about(), with_training(optimizer={"name": "adam", "lr": 0.5})) == []
    assert fits(about(), with_training(update_every=7, clip={"norm": 1.0})) == []
    assert fits(about(), with_training(lr_schedule={"name": "step", "every": 5})) == []


def test_91_another_seed_is_told():
    (note,) = fits(about(), about(seed=4))
    assert "seed is 4, was 3" in note


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (about(schedule="asynchronous"), "schedule is asynchronous, was synchronous"),
        (about(data={"train": "zz", "valid": "bb"}), "the train examples are others"),
        (about(data={"train": "zz", "valid": "bb"}, seed=9), "others than they were; seed is 9"),
        (with_training(optimizer={"name": "sgd", "lr": 1.0}),
         r"linear.training.optimizer is 'sgd', was 'adam with mean, mean_square'"),
        (with_training(compensation={"predict": "linear"}), "training.compensation is"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_53_103_what_does_not_fit_is_refused_with_both_values(now, said):
    with pytest.raises(CheckpointError, match=said):
        fits(about(), now)


def test_53_another_graph_is_refused_with_the_field():
    plain = about().graph
    other = json.loads(json.dumps(plain))
    other["nodes"][0]["options"]["features"] = 3
    with pytest.raises(CheckpointError, match=r"nodes.linear.options.features is 3, was 2"):
        fits(about(), about(graph=other))
    other = json.loads(json.dumps(plain))
    other["dtype"] = "float32"
    with pytest.raises(CheckpointError, match="dtype is 'float32', was 'float64'"):
        fits(about(), about(graph=other))
    other = json.loads(json.dumps(plain))
    other["nodes"].pop()
    with pytest.raises(CheckpointError, match="nodes has 1 entries, had 2"):
        fits(about(), about(graph=other))


def test_103_the_hash_of_the_data_is_of_every_value():
    one, same, other = examples([1, 2]), examples([1, 2]), examples([2, 1])
    assert data_hash(one) == data_hash(same) != data_hash(other)
    assert data_hash(examples([1, 2], seed=1)) != data_hash(one)


def test_shards_that_were_written_by_chance_come_back(tmp_path):
    generator = random.Random(1)
    for number in range(20):
        shape = tuple(generator.randint(0, 4) for _ in range(generator.randint(0, 3)))
        array = np.random.default_rng(number).normal(size=shape)
        shard = write_shard(tmp_path, f"n{number}", Saved({"x": number}, {"a": array}))
        assert (tmp_path / files.shard_file(f"n{number}")).stat().st_size == shard.n_bytes
        found = read_shard(tmp_path, shard)
        assert found.arrays["a"].tobytes() == array.tobytes()
