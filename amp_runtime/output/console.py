"""What a run prints: one line per stage, live on a terminal, and the closing table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from amp_runtime.control.stages import Progress, Split, StageResult

REFRESH_S = 0.5


class Console:
    """Prints to `stream`; plain lines where it is no terminal.

    A closed pipe (`| head -1`), a terminal that is gone or a full disk ends the printing,
    not the run.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream: TextIO | None = stream or sys.stdout  # None: started with it closed
        self._live = self._stream is not None and self._stream.isatty()
        self._drawn = 0
        self._last_refresh = float("-inf")

    def say(self, text: str) -> None:
        self._print(text)

    def stage(self, result: StageResult, max_epochs: int, in_flight: int) -> None:
        """Print a stage's final line."""
        self._print(stage_line(result, max_epochs, in_flight))

    def refresh(self, progress: Callable[[float], Progress | None], now: float) -> None:
        """Redraw the line of the current stage, on a terminal and not too often.

        Args:
            progress: asked how far the stage is, only when the line is drawn; None: no stage.
        """
        if not self._live or now - self._last_refresh < REFRESH_S:
            return
        if (found := progress(now)) is not None:
            self._last_refresh = now
            self._draw(progress_line(found))

    def _print(self, text: str) -> None:
        self._draw("")
        self._write(text + "\n")

    def _draw(self, line: str) -> None:
        if line or self._drawn:
            self._write("\r" + line.ljust(self._drawn) + ("" if line else "\r"))
            self._drawn = len(line)

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._stream = None


def stage_line(result: StageResult, max_epochs: int, in_flight: int) -> str:
    """Return as in `epoch  1/40 train  100000 examples in 12.3 s (8130/s)  loss 0.412  ...`."""
    parts = [
        f"{_head(result.split, result.epoch, max_epochs)}  {result.examples:>7} examples in "
        f"{result.seconds:5.1f} s ({result.examples_per_s:.0f}/s)",
        *([_metrics(result.metrics)] if result.metrics else []),
    ]
    if result.staleness is not None:
        parts.append(f"staleness {result.staleness:.1f}")
    if result.split is Split.TRAIN and result.epoch:
        parts.append(f"in flight {in_flight}")
    if not result.complete:
        parts.append("stopped early")
    return "  ".join(parts)


def progress_line(progress: Progress) -> str:
    """Return the line of a stage that is not over."""
    parts = [
        f"{_head(progress.split, progress.epoch, progress.max_epochs)}  "
        f"{progress.examples:>7} of {progress.n_examples} ({progress.examples_per_s:.0f}/s)",
        _metrics(progress.metrics),
    ]
    if progress.staleness is not None:
        parts.append(f"staleness {progress.staleness:.1f}")
    parts.append(f"in flight {progress.in_flight}")
    if progress.eta_s is not None:
        parts.append(f"ETA {_duration(progress.eta_s)}")
    return "  ".join(part for part in parts if part)


def _head(split: Split, epoch: int, max_epochs: int) -> str:
    if split is Split.FILE:
        return "predict"
    if not epoch:
        return f"evaluate {split.value}"
    return f"epoch {epoch:>{len(str(max_epochs))}}/{max_epochs} {split.value}"


def _metrics(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
