"""The parameters of a checkpoint, by IR node: to evaluate and to predict with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from amp_runtime.checkpoint.files import read_shard
from amp_runtime.checkpoint.manifest import CONTROLLER, Manifest
from amp_runtime.checkpoint.store import check, folders, name_of, newest
from amp_runtime.control.parameters import NodeParameters
from amp_runtime.errors import UsageError
from amp_runtime.rows.spec import Array


def read_parameters(path: Path, which: str) -> tuple[NodeParameters, str]:
    """Return the parameters of a checkpoint, and its name.

    Args:
        path: of a run's checkpoints.
        which: `latest`, `best`, or a number.
    Raises:
        UsageError: there is no such checkpoint.
        CheckpointError: it is damaged.
    """
    if which == "latest":
        manifest, _ = newest(path)
    else:
        manifest = _found(path, which)
        if faults := check(path / name_of(manifest.number)):
            raise faults[0]
    folder = path / name_of(manifest.number)
    centres = read_shard(folder, manifest.shards[CONTROLLER]).part("averaging")
    by_node: dict[str, list[Mapping[str, Array]]] = {}
    for node, shard in manifest.shards.items():
        parameters = read_shard(folder, shard).part("node").part("parameters").arrays
        if parameters:
            by_node.setdefault(node.partition(".")[0], []).append(parameters)
    found = {}
    for node, several in by_node.items():
        found[node] = centres.part(node).part("centre").arrays or _mean(several)
    return found, folder.name


def _found(path: Path, which: str) -> Manifest:
    there = folders(path)
    if which == "best":
        manifests = [Manifest.read(folder) for folder in there.values()]
        scored = [m for m in manifests if m.score is not None]
        if not scored:
            raise UsageError(
                f"no checkpoint in {path} is of the end of an epoch",
                fix="checkpoint.keep_best: 1 keeps one; or name a number",
            )
        return max(scored, key=lambda m: (m.score, m.number))
    if not which.isdecimal() or int(which) not in there:
        numbers = ", ".join(map(str, there)) or "there is none"
        raise UsageError(f"no checkpoint {which!r}", fix=f"latest, best, or a number: {numbers}")
    return Manifest.read(there[int(which)])


def _mean(several: list[Mapping[str, Array]]) -> Mapping[str, Array]:
    """Return the parameters of replicas as one: those of the first, where all are equal."""
    first = several[0]
    if all(s[name].tobytes() == array.tobytes() for name, array in first.items() for s in several):
        return first
    n = len(several)
    return {name: sum((s[name] for s in several[1:]), first[name]) / n for name in first}
