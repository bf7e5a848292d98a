"""`runs/<name>-<time>/`: everything that a run leaves behind, for people and programs.

config.yaml               all keys, defaults included; can be run again
manifest.json             commit, versions, host, cores, BLAS kernel, start and end
plan.json                 the graph and its placement, as the workers read it
metrics.jsonl             one line per stage
report.txt                the closing table
parameters.safetensors    <node>.<parameter>, as they were at the end
valid_predictions.jsonl   of the last complete validation, with training.save_predictions
vocabularies.json         what ids in the data stand for, where the data source says so
units.json                what values in the data were before they were standardised, likewise
predictions/              a folder for each `predict`, as a run has
evaluations.jsonl         one line per `evaluate`; each has a folder in evaluations/, as a run has
checkpoints/              what `run --resume` goes on from
logs/<worker>.<incarnation>.log
trace/<worker>            what it did in which order, with runtime.record
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.config.schema import Config
from amp_runtime.control.parameters import NodeParameters
from amp_runtime.control.stages import StageResult
from amp_runtime.data.about import Unit
from amp_runtime.errors import DataError, OutputError, ParametersError, StartError, UsageError
from amp_runtime.output.whole_file import FIXES
from amp_runtime.processes.blas import blas_kernel
from amp_runtime.processes.plan import Plan
from amp_runtime.rows.spec import Array

_FIXES = {
    **FIXES,
    errno.ENOENT: "leave the run folder in its place while the run goes on",
}

VERSIONS_OF = ("amp_runtime", "numpy", "pyzmq", "msgpack", "safetensors")


class RunFolder:
    """The folder of one run; use `create` for a new one, `find` for an old one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.logs = path / "logs"
        self.trace = path / "trace"
        self.plan = path / "plan.json"
        self.metrics = path / "metrics.jsonl"
        self.report = path / "report.txt"
        self.parameters = path / "parameters.safetensors"
        self.valid_predictions = path / "valid_predictions.jsonl"
        self.vocabularies = path / "vocabularies.json"
        self.units = path / "units.json"
        self.checkpoints = path / "checkpoints"
        self.evaluations = path / "evaluations.jsonl"
        self._manifest: dict[str, Any] = {}

    @staticmethod
    def create(
        config: Config,
        overrides: Sequence[str],
        cores: Sequence[int],
        notes: Sequence[str] = (),
        base: Path | None = None,
    ) -> RunFolder:
        """Make a fresh folder and write what is known before the run.

        Args:
            notes: what a reader of the manifest should know beside it.
            base: where the folder is made; None: in `runtime.runs`.
        Raises:
            OutputError: it cannot be made or written.
        """
        stem = f"{config.name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
        base = base or Path(config.runtime.runs)
        try:
            base.mkdir(parents=True, exist_ok=True)
            path = _fresh(base, stem)
            folder = RunFolder(path)
            folder.logs.mkdir()
            folder.config.write_text(config.to_yaml())
        except OSError as error:
            raise OutputError(
                f"cannot make a run folder: {error.strerror}",
                where=str(base / stem),
                fix="set runtime.runs to a folder that you can write to",
            ) from error
        threads, kernel = blas_kernel()
        folder._manifest = {
            "name": config.name,
            "started": datetime.now().astimezone().isoformat(timespec="seconds"),
            "overrides": list(overrides),
            "commit": _commit(),
            "python": sys.version.split()[0],
            "versions": {name: _version(name) for name in VERSIONS_OF},
            "host": socket.gethostname(),
            "system": platform.platform(),
            "cores": list(cores),
            "notes": list(notes),
            "blas": kernel,
            "blas_threads_of_the_controller": threads,
        }
        folder._write(folder._write_manifest)
        return folder

    def reopen(self, config: Config, overrides: Sequence[str], checkpoint: str) -> None:
        """Go on in the folder of a run that has ended: note it, and the config of now.

        Raises:
            OutputError: it cannot be written.
            DataError: its manifest is damaged.
        """
        self._manifest = dict(self._read_mapping(self.path / "manifest.json"))
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        resumed = {"time": now, "from": checkpoint, "overrides": list(overrides)}
        resumed["commit"] = _commit()
        ended = {key: self._manifest.pop(key, None) for key in ("ended", "why", "exit_code")}
        self._manifest.setdefault("resumed", []).append({**resumed, "before": ended})
        self._write(lambda: _replace(self.config, config.to_yaml().encode()))
        self._write(self._write_manifest)

    @staticmethod
    def find(name: str, base: str = "runs") -> RunFolder:
        """Return an existing run: a folder's path, a name within `base`, or `last`.

        Raises:
            UsageError: there is no such run.
        """
        if name == "last":
            runs = sorted(Path(base).glob("*/manifest.json"), key=lambda p: p.stat().st_mtime)
            if not runs:
                raise UsageError(f"no run in {base}/ yet", fix="make run starts one")
            return RunFolder(runs[-1].parent)
        for path in (Path(name), Path(base) / name):
            if (path / "manifest.json").is_file():
                return RunFolder(path)
        raise UsageError(f"no run {name!r}", fix=f"name a folder in {base}/, or `last`")

    def add_stage(self, result: StageResult) -> None:
        """Append a stage to `metrics.jsonl`."""
        line = {
            "split": result.split.value,
            "epoch": result.epoch,
            "seconds": round(result.seconds, 3),
            **_metrics(result),
            "examples": result.examples,
            "examples_per_s": round(result.examples_per_s, 1),
            "staleness": result.staleness,
            "complete": result.complete,
        }
        self._write(lambda: _append(self.metrics, json.dumps(line) + "\n"))

    def drop_stages(self, keep: int = 0) -> None:
        """Forget the stages in `metrics.jsonl` but the first: training goes back."""
        lines = self.metrics.read_bytes().splitlines(keepends=True) if self.metrics.exists() else []
        if len(lines) > keep:
            self._write(lambda: _replace(self.metrics, b"".join(lines[:keep])))

    def add_evaluation(
        self, result: StageResult, overrides: Sequence[str], folder: RunFolder
    ) -> None:
        """Append to `evaluations.jsonl` what an evaluation of this run came to.

        Args:
            folder: of the evaluation itself.
        """
        line = {
            "time": datetime.now().astimezone().isoformat(timespec="seconds"),
            "split": result.split.value,
            "overrides": list(overrides),
            **_metrics(result),
            "examples": result.examples,
            "seconds": round(result.seconds, 3),
            "folder": str(folder.path.relative_to(self.path)),
        }
        self._write(lambda: _append(self.evaluations, json.dumps(line) + "\n"))

    def finish(self, why: str, exit_code: int) -> None:
        """Record how the run ended."""
        ended = datetime.now().astimezone().isoformat(timespec="seconds")
        self._manifest |= {"ended": ended, "why": why, "exit_code": exit_code}
        self._write(self._write_manifest)

    def write_plan(self, plan: Plan) -> None:
        self._write(lambda: plan.write(self.plan))

    def read_plan(self) -> Plan:
        """Return what `write_plan` was given.

        Raises:
            UsageError: the run has none: it ended before its workers were started.
            DataError: the file is damaged.
        """
        try:
            return Plan.read(self.plan)
        except StartError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise UsageError(
                    f"run {self.path} has no {self.plan.name}",
                    fix="a run writes it when its workers start; name another",
                ) from None
            fix = error.fix or "train the run again"
            raise DataError(error.what, where=error.where, fix=fix) from error.__cause__

    def make_trace(self) -> Path:
        """Make the folder that workers record in; return its absolute path."""
        self._write(self.trace.mkdir)
        return self.trace.resolve()

    def read_stages(self) -> list[dict[str, Any]]:
        """Return the lines of `metrics.jsonl`, none where no stage has ended.

        Raises:
            DataError: the file is damaged.
        """
        try:
            lines = self.metrics.read_text().splitlines() if self.metrics.exists() else []
            return [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            raise _damaged(self.metrics, error) from error

    def write_report(self, text: str) -> None:
        self._write(lambda: self.report.write_text(text))

    def write_parameters(self, parameters: Mapping[str, Mapping[str, Array]]) -> None:
        """Write the final parameters, `<node>.<parameter>`, whole or not at all."""
        from safetensors.numpy import save

        arrays = {
            f"{node}.{name}": np.ascontiguousarray(array)
            for node, some in sorted(parameters.items())
            for name, array in some.items()
        }

        self._write(lambda: _replace(self.parameters, save(arrays)))

    def read_parameters(self) -> NodeParameters:
        """Return the final parameters, as `write_parameters` was given them.

        Raises:
            UsageError: the run left none.
            ParametersError: the file is damaged.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            arrays = load(self.parameters.read_bytes())
        except FileNotFoundError:
            raise UsageError(
                f"run {self.path} has no {self.parameters.name}",
                fix="a run leaves its parameters when it ends without a failure; name another",
            ) from None
        except (OSError, SafetensorError) as error:
            raise ParametersError(
                f"cannot be read: {error}", where=str(self.parameters), fix="train the run again"
            ) from error
        parameters: dict[str, dict[str, Array]] = {}
        for name, array in arrays.items():
            node, _, parameter = name.partition(".")  # no node's name has a dot
            parameters.setdefault(node, {})[parameter] = array
        return parameters

    def write_vocabularies(self, vocabularies: Mapping[str, Sequence[str]]) -> None:
        """Write what ids stand for: {field: words}; nothing where there is none."""
        if vocabularies:
            text = json.dumps(vocabularies, indent=1, ensure_ascii=False) + "\n"
            self._write(lambda: self.vocabularies.write_text(text, "utf-8"))

    def read_vocabularies(self) -> Mapping[str, Sequence[str]]:
        """Return what `write_vocabularies` was given; {} where there was nothing.

        Raises:
            DataError: the file is damaged.
        """
        found = self._read_mapping(self.vocabularies)
        for name, words in found.items():
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise _damaged(self.vocabularies, f"no list of words for field {name!r}")
        return found

    def write_units(self, units: Mapping[str, Unit]) -> None:
        """Write what standardised values mean: {field: unit}; nothing where there is none."""
        if units:
            plain = {name: asdict(unit) for name, unit in units.items()}
            text = json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
            self._write(lambda: self.units.write_text(text, "utf-8"))

    def read_units(self) -> Mapping[str, Unit]:
        """Return what `write_units` was given; {} where there was nothing.

        Raises:
            DataError: the file is damaged.
        """
        found = self._read_mapping(self.units)
        try:
            return {name: Unit(**unit) for name, unit in found.items()}
        except TypeError as error:
            raise _damaged(self.units, error) from error

    def _read_mapping(self, file: Path) -> Mapping[str, Any]:
        """Return a mapping that a file of JSON holds, {} where there is no file."""
        try:
            return dict(json.loads(file.read_text("utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            raise _damaged(file, error) from error

    def check_vocabularies(self, vocabularies: Mapping[str, Sequence[str]]) -> None:
        """Assert that ids stand for what they stood for when this run learned.

        Raises:
            DataError: they do not: its parameters would be used for other words.
        """
        for name, before in self.read_vocabularies().items():
            now = vocabularies.get(name, ())
            if list(now) == list(before):
                continue
            said = f"field {name!r} has {len(now)} values, but {len(before)}"
            both = enumerate(zip(now, before, strict=False))
            if (at := next((n for n, (a, b) in both if a != b), None)) is not None:
                said = f"{at} in field {name!r} stands for {now[at]!r}, but {before[at]!r}"
            raise DataError(
                f"{said} in the run",
                where=str(self.vocabularies),
                fix="ids come from the training data: they must be those that the run had",
            )

    def _write_manifest(self) -> None:
        text = json.dumps(self._manifest, indent=1) + "\n"
        _replace(self.path / "manifest.json", text.encode())

    def _write(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            raise OutputError(
                f"cannot write: {error}",
                where=str(self.path),
                fix=_FIXES.get(error.errno or 0, ""),
            ) from error


def _damaged(file: Path, error: Exception | str) -> DataError:
    return DataError(f"cannot be read: {error}", where=str(file), fix="train the run again")


def _fresh(base: Path, stem: str) -> Path:
    """Make and return `base/stem`, or `stem-2`, ... where two runs began in one second."""
    number = 1
    while True:
        path = base / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: what was there stays until the new one is complete."""
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to be told
            temporary.unlink(missing_ok=True)


def _metrics(result: StageResult) -> dict[str, float | None]:
    """Return the metrics for JSON, where NaN is none: one that is not finite is null."""
    return {n: v if math.isfinite(v) else None for n, v in result.metrics.items()}


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _commit() -> str:
    """Return the commit of this checkout, `+changes` if any; '' outside of one."""
    root = Path(__file__).parents[2]
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + ("+changes" if _git(root, "status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()


def installed_version() -> str:
    """Return the version of amp_runtime."""
    return _version("amp_runtime")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
