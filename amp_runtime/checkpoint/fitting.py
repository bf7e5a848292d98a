"""Whether a run may go on from a checkpoint: what must be as it was, and what may differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from amp_runtime.checkpoint.container import raw_bytes
from amp_runtime.checkpoint.manifest import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.field import Scaled
from amp_runtime.errors import CheckpointError
from amp_runtime.optim import make_optimizer

_MAY_DIFFER = (
    "lr_schedule",
    "clip",
    "initializer",
    "update_every",
    "min_update_frequency",
    "average_every",
    "backward_weights",
    "nan_limit",
)
"""Options of training that change what comes, and not what is kept."""
_FIX = "give it the model, data and options that the run had"


def data_hash(dataset: Dataset) -> str:
    """Return a hash of all examples of a split, in their order."""
    digest = hashlib.sha256()
    for name, field in sorted(dataset.fields.items()):
        column = field.column
        stored = column.stored if isinstance(column, Scaled) else column
        scale = column.divisor if isinstance(column, Scaled) else 1.0
        for part in (stored, field.offsets):
            digest.update(f"{name} {part.dtype} {part.shape} {scale} ".encode())
            digest.update(raw_bytes(part))
    return digest.hexdigest()


def check_fits(was: About, now: About, where: str) -> list[str]:
    """Assert that a run may go on from a checkpoint; return what its user should know.

    Raises:
        CheckpointError: names all fields that differ, and both values.
    """
    seed = f"seed is {now.seed}, was {was.seed}"
    # What was asked for first, then what follows from it: shapes.
    differing = sorted(
        _graphs_differ("", was.graph, now.graph), key=lambda said: ".options." not in said
    )
    if was.schedule != now.schedule:
        differing.append(f"training.schedule is {now.schedule}, was {was.schedule}")
    for split, given in was.data.items():
        if now.data.get(split) != given:
            why = f"; {seed}" if was.seed != now.seed else ""
            differing.append(f"the {split} examples are others than they were{why}")
    if differing:
        more = f"; and {len(differing) - 5} more" if len(differing) > 5 else ""
        raise CheckpointError(
            "; ".join(differing[:5]) + more, where=f"does not fit checkpoint {where}", fix=_FIX
        )
    return [f"{seed}: examples come in another order from here on"] * (was.seed != now.seed)


def _graphs_differ(path: str, was: Any, now: Any) -> Iterator[str]:
    """Yield what differs in two graphs as plain data, and matters."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for name in [*was, *(name for name in now if name not in was)]:
            inner = f"{path}.{name}" if path else str(name)
            if name == "training":
                yield from _training_differs(inner, was.get(name), now.get(name))
            elif name != "load":  # an estimate
                yield from _graphs_differ(inner, was.get(name), now.get(name))
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple):
        if len(was) != len(now):
            yield f"{path} has {len(now)} entries, had {len(was)}"
            return
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            named = one.get("name") if isinstance(one, Mapping) else None
            yield from _graphs_differ(f"{path}.{named or number}", one, other)
    elif was != now:
        yield f"{path} is {now!r:.80}, was {was!r:.80}"


def _training_differs(path: str, was: Any, now: Any) -> Iterator[str]:
    """Yield what differs in the training options of a node, and in what is kept by them."""
    if not was or not now:
        if was or now:
            yield f"{path} is {now!r:.80}, was {was!r:.80}"
        return
    for name in {**was, **now}:
        one, other = was.get(name), now.get(name)
        if name == "optimizer":
            one, other = _kept_by(one), _kept_by(other)
        if one != other and name not in _MAY_DIFFER:
            yield f"{path}.{name} is {other!r:.120}, was {one!r:.120}"


def _kept_by(optimizer: Mapping[str, Any]) -> str:
    """Return the name of an optimiser, and what it keeps of each parameter."""
    kept = ", ".join(make_optimizer(optimizer, {}).initial_state())
    return f"{optimizer['name']}{' with ' + kept if kept else ''}"
