"""The checkpoints of one run: `runs/<run>/checkpoints/`.

    checkpoint-000012/           MANIFEST.json, <node>.safetensors, _controller.safetensors
    checkpoint-000013.tmp-<pid>  one that is being written, or that a killed run left
    LATEST                       name of the newest, and hash of its manifest
    lock                         held by the run that writes here: pid, host, since when

Written by: a temporary folder, shards and manifest through to the disk, a rename, then `LATEST` by
another. So there is the old set or the new one, and never a mix.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from amp_runtime import failpoints
from amp_runtime.checkpoint.files import (
    cannot_write,
    read_checked,
    read_plain,
    read_shard,
    shard_file,
    sync_folder,
    write_shard,
    write_through,
)
from amp_runtime.checkpoint.manifest import CONTROLLER, FILE, About, Manifest
from amp_runtime.control.actions import Abandon, Commit
from amp_runtime.control.checkpoints import Resume
from amp_runtime.errors import AmpError, CheckpointError

FOLDER = "checkpoints"
LATEST = "LATEST"
LOCK = "lock"
_NAME = re.compile(r"checkpoint-(\d{6,})")
_TEMPORARY = re.compile(r"(checkpoint-\d{6,}|LATEST)\.tmp-\w+")
_LATEST = re.compile(r"(checkpoint-\d{6,}) ([0-9a-f]{64})\n")


def name_of(number: int) -> str:
    return f"checkpoint-{number:06}"


class CheckpointStore:
    """Writes the checkpoints of a run, and knows what it goes on from.

    Args:
        path: of the folder, made where it is not there.
        about: the run, as each manifest says it.
        keep_last, keep_best: how many checkpoints stay.
        fail_limit: so many in a row that cannot be written end the run.
        say: told of what failed.
    Raises:
        CheckpointError: the folder cannot be made or written, or another run writes there.

    Attributes:
        number: of the newest checkpoint that there ever was.
        generation: of the run, now.
    """

    def __init__(
        self,
        path: Path,
        about: About,
        *,
        keep_last: int,
        keep_best: int,
        fail_limit: int,
        say: Callable[[str], None],
    ) -> None:
        self.path = path
        self._about = about
        self._keep_last, self._keep_best = keep_last, keep_best
        self._fail_limit, self._say = fail_limit, say
        self._failures = 0
        self.generation = 0
        self._newest: Manifest | None = None
        self._lock = _locked(path)
        try:
            self._sweep()
            self._scores = {n: _score(folder) for n, folder in folders(path).items()}
        except BaseException:
            self.close()
            raise
        self.number = max(self._scores, default=0)

    def close(self) -> None:
        """Let another run write here; what was being written is gone."""
        with contextlib.suppress(OSError):
            self._sweep()
        os.close(self._lock)

    # ---- to go on

    def go_on_from(self, manifest: Manifest) -> None:
        """Go on from a checkpoint of this folder, in a generation of its own: it is the newest
        now."""
        self._newest, self.generation = manifest, manifest.generation + 1

    def resume(self) -> Resume | None:
        """Return the newest checkpoint of this run; None where there is none yet.

        Raises:
            CheckpointError: its controller's shard is damaged.
        """
        if self._newest is None:
            return None
        folder = (self.path / name_of(self._newest.number)).resolve()
        shards = dict(self._newest.shards)
        run = read_shard(folder, shards.pop(CONTROLLER))
        return Resume(str(folder), shards, run)

    # ---- to write

    def begin(self, number: int) -> Path | None:
        """Make the folder that shards are written to; None where it cannot be.

        Raises:
            CheckpointError: so many in a row could not be written.
        """
        folder = self._temporary(number)
        try:
            folder.mkdir()
        except OSError as error:
            self._failed(number, str(cannot_write(folder / FILE, error, 0)))
            return None
        return folder.resolve()

    def commit(self, done: Commit) -> bool:
        """Make a checkpoint the newest, and remove those that are not kept; whether it is.

        Raises:
            CheckpointError: so many in a row could not be written.
        """
        temporary, folder = self._temporary(done.number), self.path / name_of(done.number)
        try:
            shards = {**done.shards, CONTROLLER: write_shard(temporary, CONTROLLER, done.run)}
            manifest = Manifest(
                number=done.number,
                written=_now(),
                generation=self.generation,
                place=done.run.numbers["place"],
                score=done.score,
                shards=shards,
                about=self._about,
            )
            data = manifest.to_bytes()
            failpoints.hit("ckpt.before_manifest")
            write_through(temporary / FILE, [data])
            sync_folder(temporary)
            failpoints.hit("ckpt.before_rename")
            temporary.rename(folder)
            sync_folder(self.path)
            failpoints.hit("ckpt.before_latest")
            self._point_at(folder.name, data)
        except OSError as error:
            self._failed(done.number, str(cannot_write(temporary / FILE, error, 0)))
            return False
        except CheckpointError as error:
            self._failed(done.number, str(error))
            return False
        self._failures = 0
        self.number, self._newest = done.number, manifest
        self._scores[done.number] = done.score
        self._remove_others()
        return True

    def abandon(self, abandoned: Abandon) -> None:
        """Forget a checkpoint that came to nothing.

        Raises:
            CheckpointError: so many in a row could not be written.
        """
        if abandoned.on_disk:
            self._failed(abandoned.number, abandoned.why)
        else:
            self._say(f"error: checkpoint {abandoned.number} is not made: {abandoned.why}")
            self._discard(abandoned.number)

    def go_back(self, generation: int) -> Manifest | None:
        """Return the checkpoint that a new generation goes on from; None: there is none yet."""
        self.generation = generation
        self._sweep()
        return self._newest

    def _point_at(self, name: str, manifest: bytes) -> None:
        """Let `LATEST` name a checkpoint."""
        temporary = self.path / f"{LATEST}.tmp-{os.getpid()}"
        temporary.unlink(missing_ok=True)
        line = f"{name} {hashlib.sha256(manifest).hexdigest()}\n"
        write_through(temporary, [line.encode()])
        temporary.rename(self.path / LATEST)
        sync_folder(self.path)

    def _failed(self, number: int, why: str) -> None:
        self._failures += 1
        self._discard(number)
        said = f"checkpoint {number} cannot be written: {why}"
        if self._failures >= self._fail_limit:
            raise CheckpointError(
                f"{said}; {self._failures} in a row could not",
                fix="free some space, or raise checkpoint.fail_limit",
            )
        kept = "the one before it stays" if self._newest else "there is none yet"
        self._say(f"error: {said}; {kept}, and training goes on")

    def _discard(self, number: int) -> None:
        _remove(self._temporary(number))

    def _temporary(self, number: int) -> Path:
        return self.path / f"{name_of(number)}.tmp-{os.getpid()}"

    def _remove_others(self) -> None:
        """Remove all but the last and the best."""
        numbers = sorted(self._scores, reverse=True)
        keep = {self.number, *numbers[: self._keep_last]}
        scored = [n for n in numbers if self._scores[n] is not None]
        scored.sort(key=lambda n: (self._scores[n], n), reverse=True)
        keep.update(scored[: self._keep_best])
        for number in self._scores.keys() - keep:
            # By another name first: one that is half removed is none.
            with contextlib.suppress(OSError):
                (self.path / name_of(number)).rename(self._temporary(number))
            self._discard(number)
            del self._scores[number]

    def _sweep(self) -> None:
        """Remove what was being written by a run that was killed, or before a failure.

        The lock says that no other run is writing.
        """
        for path in _temporaries(self.path):
            _remove(path)


def folders(path: Path) -> dict[int, Path]:
    """Return the folders of all checkpoints, by number, as they are named."""
    if not path.is_dir():
        return {}
    found = ((_NAME.fullmatch(entry.name), entry) for entry in sorted(path.iterdir()))
    return {int(match[1]): entry for match, entry in found if match}


def newest(path: Path, *, allow_older: bool = False) -> tuple[Manifest, list[str]]:
    """Return the checkpoint that `LATEST` names, and what the user should know.

    Args:
        allow_older: take the newest that is whole, where that is not.
    Raises:
        CheckpointError: there is none, or it is damaged; names file and sizes.
    """
    if not (path / LATEST).exists() and not (path / LATEST).is_symlink() and not folders(path):
        raise CheckpointError("there is no checkpoint", where=str(path), fix="train the run anew")
    try:
        manifest = _latest(path)
        if faults := check(path / name_of(manifest.number)):
            raise faults[0]
        return manifest, []
    except AmpError as error:
        if not allow_older:
            fix = "--allow-older goes on from the newest checkpoint that is whole, if one is"
            raise type(error)(error.what, where=error.where, fix=fix) from error.__cause__
        for number, folder in sorted(folders(path).items(), reverse=True):
            if not check(folder):
                said = f"the newest checkpoint is damaged ({error}); going on from {number}"
                return Manifest.read(folder), [said]
        raise CheckpointError("no checkpoint is whole", where=str(path)) from error


def _latest(path: Path) -> Manifest:
    """Return the manifest that `LATEST` names, which must be as it was then."""
    data = read_plain(path / LATEST, 4096)
    match = _LATEST.fullmatch(data.decode("ascii", "replace"))
    if match is None:
        raise CheckpointError(f"names no checkpoint: {data[:80]!r}", where=str(path / LATEST))
    folder = path / match[1]
    if folder.is_symlink() or not folder.is_dir():
        raise CheckpointError(f"names {match[1]}, which is no folder", where=str(path / LATEST))
    text = read_plain(folder / FILE, 64 << 20)
    if hashlib.sha256(text).hexdigest() != match[2]:
        raise CheckpointError("is not the one that LATEST names", where=str(folder / FILE))
    manifest = Manifest.read(folder)
    if name_of(manifest.number) != match[1]:
        raise CheckpointError(f"is of {name_of(manifest.number)}", where=str(folder / FILE))
    return manifest


def check(folder: Path) -> list[CheckpointError]:
    """Return what is wrong with one checkpoint; [] where it is whole."""
    try:
        if folder.is_symlink():
            raise CheckpointError("is a link", where=str(folder))
        manifest = Manifest.read(folder)
    except CheckpointError as error:
        return [error]
    faults = []
    if folder.name != name_of(manifest.number):
        said = f"is of checkpoint {manifest.number}"
        faults.append(CheckpointError(said, where=str(folder / FILE)))
    expected = {shard_file(node): shard for node, shard in manifest.shards.items()}
    for name in sorted({entry.name for entry in folder.iterdir()} - expected.keys() - {FILE}):
        said = f"is no part of the checkpoint, which has {', '.join(sorted(expected))}"
        faults.append(CheckpointError(said, where=str(folder / name)))
    for name, shard in expected.items():
        try:
            read_checked(folder / name, shard.n_bytes, shard.sha256)
        except CheckpointError as error:
            faults.append(error)
    return faults


def verify(path: Path) -> tuple[list[str], list[CheckpointError]]:
    """Return a line for each checkpoint that is whole, and all that is wrong."""
    whole, faults = [], []
    for folder in folders(path).values():
        if wrong := check(folder):
            faults += wrong
            continue
        manifest = Manifest.read(folder)
        n_bytes = sum(shard.n_bytes for shard in manifest.shards.values())
        whole.append(
            f"{folder.name}: {len(manifest.shards)} shards, {n_bytes} bytes, epoch "
            f"{manifest.place['epoch']}, {manifest.place['trained']} examples trained on"
        )
    if folders(path) or (path / LATEST).exists() or (path / LATEST).is_symlink():
        try:
            _latest(path)
        except CheckpointError as error:
            faults.append(error)
    return whole, faults


def _score(folder: Path) -> float | None:
    with contextlib.suppress(CheckpointError):
        return Manifest.read(folder).score
    return None


def _locked(path: Path) -> int:
    """Return a descriptor that holds the lock of a folder of checkpoints.

    Raises:
        CheckpointError: another run holds it, or the folder cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(path / LOCK, flags, 0o644)
    except OSError as error:
        raise CheckpointError(
            f"cannot be made or written: {error.strerror}",
            where=str(path),
            fix="make the run folder one that you can write to, or set checkpoint.every=never",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
        os.pwrite(lock, json.dumps(holder).encode(), 0)
    except OSError as error:
        said = os.pread(lock, 4096, 0).decode(errors="replace")
        os.close(lock)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise cannot_write(path / LOCK, error, 100) from error
        raise CheckpointError(
            f"another run writes there: {said or 'nobody knows which'}",
            where=str(path),
            fix="wait for its end, or stop it",
        ) from None
    return lock


def _temporaries(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if _TEMPORARY.fullmatch(entry.name)]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
