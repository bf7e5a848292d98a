"""`evaluate RUN [split=...] [key=value ...]`: a finished run's parameters on any examples."""

from __future__ import annotations

import argparse
import time

from amp_runtime.commands import node_kinds

SPLIT_KEY = "split="
CHECKPOINT_KEY = "checkpoint="


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="RUN",
        nargs="*",
        help="a run folder, its name within runs/, or `last`, which is the default; then "
        "split=valid (the default) or split=train; checkpoint=latest, best or a number instead of "
        "the parameters that the run ended with; and key=value for any key of the run's "
        "config, as in data.path=new.csv.gz",
    )


def command(given: argparse.Namespace) -> None:
    """Print loss and metrics of a finished RUN, forward only, on its or on other examples."""
    from dataclasses import replace

    from amp_runtime.commands.running import parameters_of, place, told_to
    from amp_runtime.control.parameters import check_nodes
    from amp_runtime.control.stages import Split, StageResult
    from amp_runtime.errors import EXIT_OK, DataError
    from amp_runtime.loops.controller_loop import ControllerLoop
    from amp_runtime.nodes.node import Evaluation
    from amp_runtime.output.console import Console
    from amp_runtime.output.run_folder import RunFolder
    from amp_runtime.prepare import prepare_file

    started = time.monotonic()
    console = Console()
    run_name, split_name, which, overrides = _sorted_out(given.words)
    run, split = RunFolder.find(run_name), Split(split_name)
    parameters, of = parameters_of(run, which)
    kinds = node_kinds()
    prepared = prepare_file(run.config, overrides, kinds)
    config = prepared.config
    check_nodes(parameters, prepared.wiring.parameterised)
    run.check_vocabularies(prepared.train.about.vocabularies)
    dataset = prepared.train if split is Split.TRAIN else prepared.valid
    if not len(dataset):
        raise DataError(f"no example in split {split.value}", where=dataset.where)
    settings = replace(prepared.settings, evaluate=split, evaluation=Evaluation.METRICS)
    prepared = replace(prepared, parameters=parameters, settings=settings)
    placed = place(prepared, kinds)
    folder = RunFolder.create(
        config, given.words, placed.cores, placed.notes, base=run.path / "evaluations"
    )
    results: list[StageResult] = []
    loop = ControllerLoop(prepared, placed.placement, folder, console, results.append)
    with told_to(folder):
        of = f"{run.path}{of}: {len(dataset)} examples of split {split.value}"
        console.say(f"{of}, {placed.words}")
        for note in placed.notes:
            console.say(note)
        finished = loop.run()
    if loop.interruption is not None:
        folder.finish(finished.why, loop.interruption.exit_code)
        raise loop.interruption
    run.add_evaluation(results[0], overrides, folder)
    folder.finish(finished.why, EXIT_OK)
    console.say(f"{time.monotonic() - started:.1f} s in all; added to {run.evaluations}")


def _sorted_out(words: list[str]) -> tuple[str, str, str, list[str]]:
    """Return the run, the split, the checkpoint or '', and the overrides.

    Raises:
        UsageError: two runs, or a split that is none.
    """
    from amp_runtime.errors import UsageError

    own = (SPLIT_KEY, CHECKPOINT_KEY)
    overrides = [word for word in words if "=" in word and not word.startswith(own)]
    which = [w.removeprefix(CHECKPOINT_KEY) for w in words if w.startswith(CHECKPOINT_KEY)]
    splits = [word.removeprefix(SPLIT_KEY) for word in words if word.startswith(SPLIT_KEY)]
    runs = [word for word in words if "=" not in word]
    if len(runs) > 1:
        raise UsageError(f"two runs are named, {' and '.join(runs[:2])}", fix="name one")
    if splits and splits[-1] not in ("train", "valid"):
        raise UsageError(f"no split {splits[-1]!r}", fix="split=valid or split=train")
    return (runs or ["last"])[0], (splits or ["valid"])[-1], "".join(which[-1:]), overrides
