"""What a checkpoint is of, and what its files are: `MANIFEST.json`, which vouches for itself.

    {"checkpoint": {...}, "sha256": "..."}        as compact JSON, with sorted keys

The hash is of the checkpoint's own JSON; a file that is not to the byte what its content is
written as has been changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amp_runtime.checkpoint.files import read_plain
from amp_runtime.errors import CheckpointError
from amp_runtime.wire.protocol import Shard

FORMAT = 1
FILE = "MANIFEST.json"
CONTROLLER = "_controller"
"""Stands for the controller where nodes are named: no node's name begins so."""
MOST_BYTES = 64 << 20
_NODE = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}(\.\d{1,6})?|_controller")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class About:
    """What a run's checkpoints have in common: what it must be that goes on from one.

    Attributes:
        graph: of the run, as plain data.
        data: hash of the examples, by split.
        config: all keys, as plain data.
    """

    name: str
    version: str
    seed: int
    schedule: str
    graph: Mapping[str, Any]
    data: Mapping[str, str]
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint.

    Attributes:
        written: when, for people.
        generation: of the run.
        place: where the run was, for people; the controller's shard says it too.
        score: the higher the better; None: of no epoch.
        shards: by node, the controller's among them.
    """

    number: int
    written: str
    generation: int
    place: Mapping[str, Any]
    score: float | None
    shards: Mapping[str, Shard]
    about: About

    def to_bytes(self) -> bytes:
        shards = {
            node: {"n_bytes": shard.n_bytes, "sha256": shard.sha256}
            for node, shard in self.shards.items()
        }
        plain = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in _PLAIN},
            "shards": shards,
            "about": asdict(self.about),
        }
        body = _compact(plain)
        return _whole(body, hashlib.sha256(body).hexdigest())

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Return the manifest of the checkpoint in `folder`.

        Raises:
            CheckpointError: it is missing, damaged, or of a newer version.
        """
        path = folder / FILE
        data = read_plain(path, MOST_BYTES)
        try:
            outer = json.loads(data)
            plain, given = outer["checkpoint"], outer["sha256"]
            if plain["format"] > FORMAT:
                raise CheckpointError(
                    f"was written by a newer version of amp_runtime: format {plain['format']}, "
                    f"known up to {FORMAT}",
                    where=str(path),
                    fix="use that version",
                )
            body = _compact(plain)
            true = hashlib.sha256(body).hexdigest()
            if given != true or data != _whole(body, true):
                raise ValueError("it is not what it was written as")
            return _from_plain(plain)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise CheckpointError(f"is damaged: {error}", where=str(path)) from error


_PLAIN = ("number", "written", "generation", "place", "score")


def _from_plain(plain: Mapping[str, Any]) -> Manifest:
    shards = {}
    for node, entry in plain["shards"].items():
        shard = Shard(node, entry["n_bytes"], entry["sha256"], True)
        sizes = type(shard.n_bytes) is int and shard.n_bytes >= 0
        if not (_NODE.fullmatch(node) and _HASH.fullmatch(shard.sha256) and sizes):
            raise ValueError(f"a shard that is none: {node!r:.80}")
        shards[node] = shard
    about = About(**plain["about"])
    return Manifest(**{n: plain[n] for n in _PLAIN}, shards=shards, about=about)


def _compact(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def _whole(body: bytes, sha256: str) -> bytes:
    return b'{"checkpoint":' + body + b',"sha256":"' + sha256.encode() + b'"}\n'
