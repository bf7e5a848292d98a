"""`predict RUN FILE [out=FILE] [reader=NAME] [key=value ...]`: what a run makes of new examples."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from amp_runtime.commands import node_kinds

OUT_KEY, READER_KEY, CHECKPOINT_KEY = "out=", "reader=", "checkpoint="
ELSEWHERE_KEY = "runtime.runs="
SETTINGS = ("runtime", "training.max_active_keys", "training.max_active_rows", "verify")
"""Keys of the config that another value makes sense for; the others are the model's."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run folder, its name within runs/, or `last`")
    parser.add_argument(
        "file",
        metavar="FILE",
        help="examples, labels not needed: JSON lines whose keys are the fields of an example, "
        "or a file in the own form of the run's data source",
    )
    parser.add_argument(
        "words",
        metavar="key=value",
        nargs="*",
        help="out=predictions.jsonl, instead of the standard output; reader=module:function, "
        "which is given the path of FILE and yields the fields of each example; "
        "checkpoint=latest, best or a number, instead of the end of the run; or a key of "
        f"{SETTINGS[0]}, {', '.join(SETTINGS[1:])}",
    )


def command(given: argparse.Namespace) -> None:
    """Print what a finished RUN predicts for the examples of FILE, as JSON lines."""
    from amp_runtime import names
    from amp_runtime.commands.running import parameters_of, place, told_to
    from amp_runtime.config.schema import load_config
    from amp_runtime.errors import EXIT_OK, UsageError
    from amp_runtime.graph.ends import prediction_forms
    from amp_runtime.loops.controller_loop import ControllerLoop
    from amp_runtime.output.console import Console
    from amp_runtime.output.predictions import PredictionWriter
    from amp_runtime.output.run_folder import RunFolder
    from amp_runtime.predicting import prepare_predictions

    started = time.monotonic()
    if not given.file:
        raise UsageError("no file of examples is named", fix="make predict FILE=new.jsonl")
    out, reader_name, which, overrides = _sorted_out(given.words)
    run = RunFolder.find(given.run)
    parameters, of = parameters_of(run, which)
    vocabularies = run.read_vocabularies()
    config = load_config(run.config, overrides)
    names.search_also(config.folder)
    kinds = node_kinds()
    wiring = run.read_plan().wiring
    file = Path(given.file)
    reader = names.resolve(reader_name, what="a reader of FILE") if reader_name else None
    prepared = prepare_predictions(config, wiring, parameters, vocabularies, file, kinds, reader)
    placed = place(prepared, kinds)
    elsewhere = any(word.startswith(ELSEWHERE_KEY) for word in overrides)  # run may be read-only
    base = Path(config.runtime.runs) if elsewhere else run.path
    folder = RunFolder.create(
        config, given.words, placed.cores, placed.notes, base=base / "predictions"
    )
    console = Console(sys.stderr if out is None else None)
    with told_to(folder), _opened(out) as stream:
        writer = PredictionWriter(
            stream,
            prediction_forms(wiring, kinds),
            vocabularies,
            prepared.valid.about.told,
            run.read_units(),
        )
        loop = ControllerLoop(
            prepared, placed.placement, folder, console, on_predicted=writer.write
        )
        console.say(f"{run.path}{of}: {len(prepared.valid)} examples of {file}, {placed.words}")
        for note in placed.notes:
            console.say(note)
        finished = loop.run()
        if loop.interruption is not None:
            raise loop.interruption
    folder.finish(finished.why, EXIT_OK)
    seconds = time.monotonic() - started
    told = f"; predictions in {out}" if out is not None else ""
    console.say(f"{writer.n_examples} examples, {seconds:.1f} s in all{told}")


def _sorted_out(words: Sequence[str]) -> tuple[Path | None, str, str, list[str]]:
    """Return where predictions go, the reader's name, the checkpoint ('': none), the overrides.

    Raises:
        UsageError: an override that would change nothing, or the model.
    """
    from amp_runtime.errors import UsageError

    outs = [word.removeprefix(OUT_KEY) for word in words if word.startswith(OUT_KEY)]
    readers = [word.removeprefix(READER_KEY) for word in words if word.startswith(READER_KEY)]
    which = [w.removeprefix(CHECKPOINT_KEY) for w in words if w.startswith(CHECKPOINT_KEY)]
    own = (OUT_KEY, READER_KEY, CHECKPOINT_KEY)
    overrides = [word for word in words if not word.startswith(own)]
    for word in overrides:
        key = word.partition("=")[0]
        if not any(key == setting or key.startswith(f"{setting}.") for setting in SETTINGS):
            raise UsageError(
                f"predictions cannot be made with another {key}",
                fix=f"out=FILE, reader=NAME, checkpoint=WHICH, or keys of {', '.join(SETTINGS)}",
            )
    reader, checkpoint = "".join(readers[-1:]), "".join(which[-1:])
    return (Path(outs[-1]) if outs else None), reader, checkpoint, overrides


@contextlib.contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    """Open what predictions are written to; a file is there whole or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    from amp_runtime.output.whole_file import WholeFile

    if out is None:
        yield sys.stdout
        return
    file = WholeFile(out, fix="name another file: out=...")
    try:
        yield file.stream
        file.keep()
    finally:
        file.discard()
