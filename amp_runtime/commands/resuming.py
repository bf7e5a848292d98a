"""From a run's config to the store of its checkpoints, and back from one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from amp_runtime.checkpoint.fitting import check_fits, data_hash
from amp_runtime.checkpoint.manifest import About
from amp_runtime.checkpoint.store import CheckpointStore, name_of, newest
from amp_runtime.errors import UsageError
from amp_runtime.output.run_folder import RunFolder, installed_version
from amp_runtime.prepare import Prepared

Say = Callable[[str], None]


def open_store(prepared: Prepared, folder: RunFolder, say: Say) -> CheckpointStore:
    """Return the store of a run's checkpoints, which no other run may write to meanwhile.

    Raises:
        CheckpointError: another does, or the folder cannot be written.
    """
    options = prepared.config.checkpoint
    return CheckpointStore(
        folder.checkpoints,
        _about(prepared),
        keep_last=options.keep_last,
        keep_best=options.keep_best,
        fail_limit=options.fail_limit,
        say=say,
    )


def resume_run(
    prepared: Prepared,
    run: RunFolder,
    overrides: Sequence[str],
    say: Say,
    *,
    allow_older: bool,
) -> tuple[CheckpointStore, list[str]]:
    """Return the store of a run that goes on from its newest checkpoint, and notes on that.

    Args:
        allow_older: from the newest that is whole, where the newest is not.
    Raises:
        UsageError: it is recorded.
        CheckpointError: there is none, it is damaged, does not fit, or another run goes on.
        DataError: ids in the data stand for other words than they did.
    """
    if prepared.config.runtime.record:
        raise UsageError(
            "a run that goes on is not recorded: a replay begins where training does",
            fix="set runtime.record=false",
        )
    run.check_vocabularies(prepared.train.about.vocabularies)
    store = open_store(prepared, run, say)
    try:
        manifest, notes = newest(run.checkpoints, allow_older=allow_older)
        name = name_of(manifest.number)
        notes += check_fits(manifest.about, _about(prepared), f"{run.checkpoints}/{name}")
        store.go_on_from(manifest)
        run.reopen(prepared.config, overrides, name)
        run.drop_stages(int(manifest.place["stages"]))
    except BaseException:
        store.close()
        raise
    place = manifest.place
    where = f"epoch {place['epoch']}, {place['trained']} examples trained on"
    return store, [f"going on from {name}: {where}", *notes]


def _about(prepared: Prepared) -> About:
    config, graph = prepared.config, prepared.wiring.to_plain()
    return About(
        name=config.name,
        version=installed_version(),
        seed=config.seed,
        schedule=config.training.schedule,
        graph=json.loads(json.dumps(graph)),  # as it is read
        data={"train": data_hash(prepared.train), "valid": data_hash(prepared.valid)},
        config=config.to_plain(),
    )
