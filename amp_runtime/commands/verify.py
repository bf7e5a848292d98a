"""`verify [RUN]`: whether a run's checkpoints are what they were written as."""

from __future__ import annotations

import argparse

from amp_runtime.commands import takes_run

arguments = takes_run


def command(given: argparse.Namespace) -> None:
    """Check every hash of RUN's checkpoints; name each file that is damaged."""
    from amp_runtime.checkpoint.store import verify
    from amp_runtime.errors import CheckpointError
    from amp_runtime.output.run_folder import RunFolder

    run = RunFolder.find(given.run)
    whole, faults = verify(run.checkpoints)
    for line in whole:
        print(line)
    for fault in faults:
        print(f"damaged: {fault}")
    if faults:
        raise CheckpointError(
            f"{len(faults)} fault{'s'[: len(faults) > 1]}; the first: {faults[0]}",
            where=str(run.checkpoints),
            fix="run --resume ... --allow-older goes on from the newest checkpoint that is whole",
        )
    print(f"{len(whole)} checkpoint{'s'[: len(whole) != 1]} of {run.path}, all whole")
